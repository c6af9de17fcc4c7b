"""What an epilogue function is called with: values that write down what is done to them."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NoReturn

from .._core import EpilogueFunction, dtype_name
from .errors import (
    INSTEAD,
    EpilogueError,
    Place,
    callers_place,
    refuse,
    rethrow,
    rethrow_of_returned,
    rethrow_of_text,
)
from .inputs import InputShape


class Value:
    """A value of an epilogue function while it is traced: float32, of one element of D.

    It has Python's arithmetic (+ - * /, ** with whole exponents and 0.5, abs), comparisons, whose results are
    conditions for `cleave.where` and combine by & | ~, and `to(dtype)`, which rounds to a type. What it
    will be is not known yet: `if`, `and`, `float()` and loops over it are refused.
    """

    __slots__ = ("_condition", "_dtype", "_name", "_trace", "_unrounded")

    def __init__(self, trace: Trace, name: str, condition: bool = False) -> None:
        self._trace = trace
        self._name = name
        self._condition = condition
        self._dtype: str | None = None  # that `to` gave it
        self._unrounded = name

    @property
    def gate(self) -> Value:
        """The sum of the gate projection, where b has gate columns, then as many up columns."""
        return self._part("gate")

    @property
    def up(self) -> Value:
        """The sum of the up projection, which follows the gate's columns in b."""
        return self._part("up")

    @property
    def even(self) -> Value:
        """The sum of one of two projections whose columns take turns in b: of columns 0, 2, 4 and so on."""
        return self._part("even")

    @property
    def odd(self) -> Value:
        """The sum of the other one, of columns 1, 3, 5 and so on."""
        return self._part("odd")

    def _part(self, name: str) -> Value:
        if self._name != "acc":
            refuse(f"only the sum, the function's first parameter, has a {name}")
        return Value(self._trace, f"acc.{name}")

    def to(self, dtype: Any) -> Value:
        """Rounded to a type's nearest value, int8 and 8-bit floats saturated. As an output, of that type."""
        name = dtype_name(dtype)
        if name == "int32":
            refuse("a value cannot be int32; convert to a float type, int8 or an 8-bit float")
        result = Value(self._trace, self._name) if name == "float32" else apply(f"to_{name}", self)
        result._dtype, result._unrounded = name, self._name
        return result

    def __add__(self, other: Any) -> Value:
        return apply("add", self, other)

    def __radd__(self, other: Any) -> Value:
        return apply("add", other, self)

    def __sub__(self, other: Any) -> Value:
        return apply("subtract", self, other)

    def __rsub__(self, other: Any) -> Value:
        return apply("subtract", other, self)

    def __mul__(self, other: Any) -> Value:
        return apply("multiply", self, other)

    def __rmul__(self, other: Any) -> Value:
        return apply("multiply", other, self)

    def __truediv__(self, other: Any) -> Value:
        return apply("divide", self, other)

    def __rtruediv__(self, other: Any) -> Value:
        return apply("divide", other, self)

    def __pow__(self, exponent: Any) -> Value:
        if isinstance(exponent, float):
            if exponent in _ROOTS:
                return apply(_ROOTS[exponent], self)
            exponent = int(exponent) if exponent.is_integer() else exponent
        if not isinstance(exponent, int) or not 1 <= abs(exponent) <= _MOST_POWER:
            refuse(f"the exponent is {exponent!r}; it must be 0.5 or from 1 to {_MOST_POWER}, or as much below zero")
        if exponent < 0:
            return 1.0 / self**-exponent
        half = self ** (exponent // 2) if exponent > 1 else self
        return half if exponent == 1 else half * half if exponent % 2 == 0 else half * half * self

    def __neg__(self) -> Value:
        return apply("negative", self)

    def __pos__(self) -> Value:
        return self

    def __abs__(self) -> Value:
        return apply("absolute", self)

    def __lt__(self, other: Any) -> Value:
        return apply("less", self, other)

    def __le__(self, other: Any) -> Value:
        return apply("less_equal", self, other)

    def __gt__(self, other: Any) -> Value:
        return apply("less", other, self)

    def __ge__(self, other: Any) -> Value:
        return apply("less_equal", other, self)

    def __eq__(self, other: object) -> Value:  # type: ignore[override]
        return apply("equal", self, other)

    def __ne__(self, other: object) -> Value:  # type: ignore[override]
        return apply("not_equal", self, other)

    __hash__ = None  # type: ignore[assignment]

    def __and__(self, other: Any) -> Value:
        return apply("logical_and", self, other)

    def __or__(self, other: Any) -> Value:
        return apply("logical_or", self, other)

    def __invert__(self) -> Value:
        return apply("logical_not", self)

    def __bool__(self) -> NoReturn:
        refuse(
            "a value decides what the function does, but is not known when the function is traced; use "
            "cleave.where(condition, then, otherwise), and & | ~ instead of and, or, not"
        )

    def __float__(self) -> NoReturn:
        refuse(f"a value is not known when the function is traced; {INSTEAD}")

    __int__ = __index__ = __float__

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        refuse(f"a value has no {name}; {INSTEAD}")

    def __iter__(self) -> NoReturn:
        refuse("a value is one element of D; it cannot be taken apart")

    def __repr__(self) -> str:
        return f"<value {self._name} of {self._trace.name}>"


class Reduced:
    """A value of all elements of D that share a row or a column, or of all: an output, and nothing else.

    It is known only when D is, so that the function itself cannot go on with it.
    """

    __slots__ = ("_operation", "_shape", "_value")

    def __init__(self, operation: str, value: Value, over: str) -> None:
        if over not in _OVER:
            refuse(f'over is {over!r}; it must be "rows", "columns" or "all"')
        if not isinstance(value, Value):
            refuse(f"cleave.{operation} is for values of an epilogue function, got {type(value).__name__}")
        if value._condition:
            refuse(f"a condition is no number; use cleave.where(condition, 1, 0) in {operation}")
        self._operation, self._value, self._shape = operation, value, _OVER[over]

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        refuse(f"what is reduced can only be an output beside D, which has no {name}")

    def _refuse(self, *_: Any) -> NoReturn:
        refuse(
            "what is reduced is known when all of D is, and so can only be an output beside D: "
            'cleave.outputs(d=..., norm=cleave.sum_of_squares(x, over="columns"))'
        )

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __pow__ = _refuse
    __neg__ = __abs__ = __lt__ = __le__ = __gt__ = __ge__ = __bool__ = __float__ = __iter__ = _refuse


_OVER = {"columns": "column", "rows": "row", "all": "scalar"}  # what D, reduced over these, has the shape of
_MOST_POWER = 64
_ROOTS = {0.5: "sqrt", -0.5: "rsqrt"}
_CONDITIONS = {"less", "less_equal", "equal", "not_equal", "logical_and", "logical_or", "logical_not"}
_OF_CONDITIONS = {"logical_and": 2, "logical_or": 2, "logical_not": 1, "where": 1}  # how many operands, from the first


class Trace:
    """The text of a function that is being traced, line by line."""

    def __init__(self, name: str, inputs: dict[str, InputShape]) -> None:
        self.name = name
        self.lines = [f"{name} {shape.name}" for name, shape in inputs.items()]
        self.places: dict[int, Place] = {}  # of the caller's code, by the line, from 1 on, that it wrote
        self.count = 0

    def add(self, operation: str, operands: list[str]) -> str:
        name = f"%{self.count}"
        self.count += 1
        self.lines.append(f"{name} = {operation} {' '.join(operands)}")
        self.places[len(self.lines)] = callers_place()
        return name

    def run(
        self,
        function: Callable[..., Any],
        given: list[Value],
        named: dict[str, Value],
        outputs: Callable[[Any], dict[str, Any]],
    ) -> EpilogueFunction:
        """What the function does with such arguments; `outputs` reads what it returns."""
        code = function.__code__
        for line in range(1, len(self.lines) + 1):
            self.places[line] = code, code.co_firstlineno
        try:
            returned = function(*given, **named)
        except EpilogueError:
            raise
        except Exception as error:
            rethrow(error, code)
        try:
            for name, value in outputs(returned).items():
                self.output(name, value)
        except EpilogueError as error:
            rethrow_of_returned(error, code)
        try:
            return EpilogueFunction("\n".join(self.lines))
        except ValueError as error:
            rethrow_of_text(error, self.places, code)

    def output(self, name: str, value: Any) -> None:
        dtype = None
        if isinstance(value, Reduced):
            if name == "d":
                refuse("d is reduced; D has a value for each element, what is reduced is an output beside it")
            operand = _operand(value._value, self)
            self.lines.append(f"{name} = {value._operation} {value._shape} {operand}")
            return
        if isinstance(value, Value):
            dtype, operand = value._dtype, value._unrounded
            if value._condition:
                refuse(f"{name} is a condition; pass it through cleave.where")
        else:
            operand = _operand(value, self)
        self.lines.append(f"{name}{':' + dtype if dtype else ''} = {operand}")


def _operand(value: Any, trace: Trace) -> str:
    """A value's name, or a number's text."""
    if isinstance(value, Reduced):
        value._refuse()
    if isinstance(value, Value):
        if value._trace is not trace:
            refuse(f"a value of {value._trace.name}, which was traced before, is used in {trace.name}")
        return value._name
    if isinstance(value, bool) or not hasattr(value, "__float__") or hasattr(value, "__dlpack__"):
        refuse(
            f"{type(value).__name__} is no value of an epilogue function; pass arrays as inputs: parameters "
            "annotated cleave.scalar, cleave.row, cleave.column or cleave.matrix"
        )
    number = float(value)
    try:
        (single,) = struct.unpack("<f", struct.pack("<f", number))
    except OverflowError:
        refuse(f"{number!r} is too large for float32")
    return repr(single)


def apply(operation: str, *operands: Any) -> Value:
    traces = [operand._trace for operand in operands if isinstance(operand, Value)]
    if not traces:
        refuse(f"cleave.{operation} is for values of an epilogue function, got {type(operands[0]).__name__}")
    for place, operand in enumerate(operands):
        wanted = place < _OF_CONDITIONS.get(operation, 0)
        is_condition = isinstance(operand, Value) and operand._condition
        if wanted and not is_condition:
            refuse(f"{operation} takes a condition, the result of a comparison")
        if is_condition and not wanted:
            refuse(f"a condition is no number; use cleave.where(condition, 1, 0) in {operation}")
    name = traces[0].add(operation, [_operand(operand, traces[0]) for operand in operands])
    return Value(traces[0], name, operation in _CONDITIONS)
