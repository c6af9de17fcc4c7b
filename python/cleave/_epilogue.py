"""Epilogue functions: Python functions of a product's sums, traced once into what kernels are made of."""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from functools import update_wrapper
from types import TracebackType
from typing import Any, NoReturn

from ._core import EpilogueFunction, dtype_name


class InputShape:
    """What one element of D has of an input of an epilogue function: an annotation of its parameter."""

    def __init__(self, name: str, meaning: str) -> None:
        self.name = name
        self.__doc__ = meaning

    def __repr__(self) -> str:
        return f"cleave.{self.name}"


scalar = InputShape(
    "scalar", "One value for all of D: a number, or an array of one element (per batch, [B, 1, 1]; per group, [G])."
)
row = InputShape(
    "row",
    "N values, one per column of D: a row vector, which all rows share; [N], [1, N], [B, 1, N], per group [G, N]. "
    "A convolution takes one per channel: [C] or [1, C, 1, 1].",
)
column = InputShape(
    "column",
    "M values, one per row of D: a column vector; [M], [M, 1] or [B, M, 1]. A convolution takes one per pixel: "
    "[N, 1, H, W].",
)
matrix = InputShape("matrix", "One value per element of D, of its shape; of convolutions in its order of memory.")


class Value:
    """A value of an epilogue function while it is traced: float32, of one element of D.

    It has Python's arithmetic (+ - * / ** with whole exponents, abs), comparisons, whose results are
    conditions for `cleave.where` and combine by & | ~, and `to(dtype)`, which rounds to a type. What it
    will be is not known yet: `if`, `and`, `float()` and loops over it are refused.
    """

    __slots__ = ("_condition", "_dtype", "_name", "_trace", "_unrounded")

    def __init__(self, trace: _Trace, name: str, condition: bool = False) -> None:
        self._trace = trace
        self._name = name
        self._condition = condition
        self._dtype: str | None = None  # that `to` gave it
        self._unrounded = name

    @property
    def gate(self) -> Value:
        """Of the sum: that of the gate projection, where b has gate columns, then as many up columns."""
        return self._part("gate")

    @property
    def up(self) -> Value:
        """Of the sum: that of the up projection, which follows the gate's columns in b."""
        return self._part("up")

    def _part(self, name: str) -> Value:
        if self._name != "acc":
            _refuse(f"only the sum, the function's first parameter, has a {name}")
        return Value(self._trace, f"acc.{name}")

    def to(self, dtype: Any) -> Value:
        """Rounded to a type's nearest value, int8 and 8-bit floats saturated. As an output, of that type."""
        name = dtype_name(dtype)
        if name == "int32":
            _refuse("a value cannot be int32; convert to a float type, int8 or an 8-bit float")
        result = Value(self._trace, self._name) if name == "float32" else _apply(f"to_{name}", self)
        result._dtype, result._unrounded = name, self._name
        return result

    def __add__(self, other: Any) -> Value:
        return _apply("add", self, other)

    def __radd__(self, other: Any) -> Value:
        return _apply("add", other, self)

    def __sub__(self, other: Any) -> Value:
        return _apply("subtract", self, other)

    def __rsub__(self, other: Any) -> Value:
        return _apply("subtract", other, self)

    def __mul__(self, other: Any) -> Value:
        return _apply("multiply", self, other)

    def __rmul__(self, other: Any) -> Value:
        return _apply("multiply", other, self)

    def __truediv__(self, other: Any) -> Value:
        return _apply("divide", self, other)

    def __rtruediv__(self, other: Any) -> Value:
        return _apply("divide", other, self)

    def __pow__(self, exponent: Any) -> Value:
        if not isinstance(exponent, int) or not 1 <= exponent <= _MOST_POWER:
            _refuse(f"the exponent is {exponent!r}; it must be a whole number from 1 to {_MOST_POWER}")
        half = self ** (exponent // 2) if exponent > 1 else self
        return half if exponent == 1 else half * half if exponent % 2 == 0 else half * half * self

    def __neg__(self) -> Value:
        return _apply("negative", self)

    def __pos__(self) -> Value:
        return self

    def __abs__(self) -> Value:
        return _apply("absolute", self)

    def __lt__(self, other: Any) -> Value:
        return _apply("less", self, other)

    def __le__(self, other: Any) -> Value:
        return _apply("less_equal", self, other)

    def __gt__(self, other: Any) -> Value:
        return _apply("less", other, self)

    def __ge__(self, other: Any) -> Value:
        return _apply("less_equal", other, self)

    def __eq__(self, other: object) -> Value:  # type: ignore[override]
        return _apply("equal", self, other)

    def __ne__(self, other: object) -> Value:  # type: ignore[override]
        return _apply("not_equal", self, other)

    __hash__ = None  # type: ignore[assignment]

    def __and__(self, other: Any) -> Value:
        return _apply("logical_and", self, other)

    def __or__(self, other: Any) -> Value:
        return _apply("logical_or", self, other)

    def __invert__(self) -> Value:
        return _apply("logical_not", self)

    def __bool__(self) -> NoReturn:
        _refuse(
            "a value decides what the function does, but is not known when the function is traced; use "
            "cleave.where(condition, then, otherwise), and & | ~ instead of and, or, not"
        )

    def __float__(self) -> NoReturn:
        _refuse("a value is not known when the function is traced; use Cleave's functions: cleave.exp, cleave.tanh ...")

    __int__ = __index__ = __float__

    def __iter__(self) -> NoReturn:
        _refuse("a value is one element of D; it cannot be taken apart")

    def __repr__(self) -> str:
        return f"<value {self._name} of {self._trace.name}>"


_MOST_POWER = 64
_CONDITIONS = {"less", "less_equal", "equal", "not_equal", "logical_and", "logical_or", "logical_not"}
_OF_CONDITIONS = {"logical_and": 2, "logical_or": 2, "logical_not": 1, "where": 1}  # how many operands, from the first


class EpilogueError(ValueError):
    """What is wrong with an epilogue function, and in which line."""


def _refuse(reason: str) -> NoReturn:
    """In the line of the caller's code that has led here."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    raise EpilogueError(_located(frame.f_code.co_name, frame.f_code.co_filename, frame.f_lineno, reason))


def _located(function: str, file: str, line: int, reason: str) -> str:
    import linecache

    source = linecache.getline(file, line).strip()
    return f"{function}, line {line} of {file}: {reason}" + (f"\n    {source}" if source else "")


def _rethrow(error: Exception, code: Any) -> NoReturn:
    """What Python itself, or a library, refused, with the line of the function."""
    line, frames = code.co_firstlineno, error.__traceback__
    while isinstance(frames, TracebackType):
        if frames.tb_frame.f_code is code:
            line = frames.tb_lineno
        frames = frames.tb_next
    raise EpilogueError(_located(code.co_name, code.co_filename, line, f"{type(error).__name__}: {error}")) from error


class _Trace:
    """The text of a function that is being traced, line by line."""

    def __init__(self, name: str, inputs: dict[str, InputShape]) -> None:
        self.name = name
        self.lines = [f"{name} {shape.name}" for name, shape in inputs.items()]
        self.count = 0

    def add(self, operation: str, operands: list[str]) -> str:
        name = f"%{self.count}"
        self.count += 1
        self.lines.append(f"{name} = {operation} {' '.join(operands)}")
        return name

    def run(
        self,
        function: Callable[..., Any],
        given: list[Value],
        named: dict[str, Value],
        outputs: Callable[[Any], dict[str, Any]],
    ) -> EpilogueFunction:
        """What the function does with such arguments; `outputs` reads what it returns."""
        try:
            for name, value in outputs(function(*given, **named)).items():
                self.output(name, value)
        except EpilogueError:
            raise
        except Exception as error:
            _rethrow(error, function.__code__)
        return EpilogueFunction("\n".join(self.lines))

    def output(self, name: str, value: Any) -> None:
        dtype = None
        if isinstance(value, Value):
            dtype, operand = value._dtype, value._unrounded
            if value._condition:
                _refuse(f"{name} is a condition; pass it through cleave.where")
        else:
            operand = _operand(value, self)
        self.lines.append(f"{name}{':' + dtype if dtype else ''} = {operand}")


def _operand(value: Any, trace: _Trace) -> str:
    """A value's name, or a number's text."""
    if isinstance(value, Value):
        if value._trace is not trace:
            _refuse(f"a value of {value._trace.name}, which was traced before, is used in {trace.name}")
        return value._name
    if isinstance(value, bool) or not hasattr(value, "__float__") or hasattr(value, "__dlpack__"):
        _refuse(
            f"{type(value).__name__} is no value of an epilogue function; pass arrays as inputs: parameters "
            "annotated cleave.scalar, cleave.row, cleave.column or cleave.matrix"
        )
    number = float(value)
    try:
        (single,) = struct.unpack("<f", struct.pack("<f", number))
    except OverflowError:
        _refuse(f"{number!r} is too large for float32")
    return repr(single)


def _apply(operation: str, *operands: Any) -> Value:
    traces = [operand._trace for operand in operands if isinstance(operand, Value)]
    if not traces:
        _refuse(f"cleave.{operation} is for values of an epilogue function, got {type(operands[0]).__name__}")
    for place, operand in enumerate(operands):
        wanted = place < _OF_CONDITIONS.get(operation, 0)
        is_condition = isinstance(operand, Value) and operand._condition
        if wanted and not is_condition:
            _refuse(f"{operation} takes a condition, the result of a comparison")
        if is_condition and not wanted:
            _refuse(f"a condition is no number; use cleave.where(condition, 1, 0) in {operation}")
    name = traces[0].add(operation, [_operand(operand, traces[0]) for operand in operands])
    return Value(traces[0], name, operation in _CONDITIONS)


def exp(x: Value) -> Value:
    """e to the power of x."""
    return _apply("exp", x)


def log(x: Value) -> Value:
    """The natural logarithm."""
    return _apply("log", x)


def sqrt(x: Value) -> Value:
    """The square root."""
    return _apply("sqrt", x)


def rsqrt(x: Value) -> Value:
    """1 / sqrt(x)."""
    return _apply("rsqrt", x)


def tanh(x: Value) -> Value:
    """The hyperbolic tangent."""
    return _apply("tanh", x)


def erf(x: Value) -> Value:
    """The error function."""
    return _apply("erf", x)


def sigmoid(x: Value) -> Value:
    """1 / (1 + exp(-x))."""
    return _apply("sigmoid", x)


def where(condition: Value, then: Value | float, otherwise: Value | float) -> Value:
    """`then` where the condition, the result of a comparison, holds, else `otherwise`."""
    return _apply("where", condition, then, otherwise)


def minimum(x: Value | float, y: Value | float) -> Value:
    """The smaller one; NaN if one of them is."""
    return _apply("minimum", x, y)


def maximum(x: Value | float, y: Value | float) -> Value:
    """The larger one; NaN if one of them is."""
    return _apply("maximum", x, y)


def clamp(x: Value, min: Value | float | None = None, max: Value | float | None = None) -> Value:
    """x, but at least `min` and at most `max`; a NaN stays one."""
    if min is not None:
        x = maximum(x, min)
    return x if max is None else minimum(x, max)


def relu(x: Value) -> Value:
    """x, or 0 where it is not positive: activation="relu". Its derivative at 0 is 0, as torch's."""
    return where(x <= 0, 0.0, x)


def relu2(x: Value) -> Value:
    """The square of relu: activation="relu2"."""
    return where(x < 0, 0.0, x * x)


def gelu(x: Value, approximate: str = "none") -> Value:
    """x times the normal distribution's probability below it: activation="gelu".

    approximate="tanh" is activation="gelu_tanh".
    """
    if approximate == "tanh":
        return 0.5 * x * (1.0 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))
    if approximate != "none":
        _refuse(f'approximate is {approximate!r}; it must be "none" or "tanh"')
    return 0.5 * x * (1.0 + erf(x * 0.7071067811865476))


def silu(x: Value) -> Value:
    """x * sigmoid(x): activation="silu"."""
    return x / (1.0 + exp(-x))


class Outputs:
    """What an epilogue function with several outputs returns; made by `cleave.outputs`."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values


def outputs(*, d: Any, **others: Any) -> Outputs:
    """Several outputs of an epilogue function: D and, by name, others of its shape.

    A product with such a function returns a tuple: D, then the others in this order. `value.to(dtype)` says
    of which type an output is; else it is of D's.
    """
    return Outputs({"d": d, **others})


class BoundEpilogue:
    """An epilogue function and its inputs, in its order: what products take as `epilogue`."""

    __slots__ = ("backward", "function", "inputs", "text")

    def __init__(self, function: EpilogueFunction, text: str, inputs: tuple[Any, ...], backward: str = "") -> None:
        """text: the function's. backward: that of `Epilogue.backward`, or none."""
        self.function = function
        self.text = text
        self.inputs = inputs
        self.backward = backward


class Epilogue:
    """An epilogue function; called with its inputs by name, it is what products take as `epilogue`."""

    def __init__(self, function: Callable[..., Any]) -> None:
        update_wrapper(self, function)
        self._inputs, self._defaults = _read_signature(function)
        self.function = _trace(function, self._inputs)
        self.text = self.function.text
        self._backward = ""

    def __call__(self, **inputs: Any) -> BoundEpilogue:
        try:
            values = tuple([inputs.pop(name) if name in inputs else self._defaults[name] for name in self._inputs])
        except KeyError as missing:
            raise TypeError(f"{self.__name__}() is missing its input {missing}") from None
        if inputs:
            raise TypeError(f"{self.__name__}() has no input {next(iter(inputs))!r}; it has {', '.join(self._inputs)}")
        return BoundEpilogue(self.function, self.text, values, self._backward)

    def backward(self, function: Callable[..., dict[str, Any]]) -> Epilogue:
        """Gives this function a backward of its own, for torch's autograd, instead of the one that is derived.

            @straight_through.backward
            def _(acc, limit, grad_d):
                return {"acc": cleave.where(abs(acc) < limit, grad_d, 0.0)}

        Parameters are, by name and as needed: `acc` and the inputs of this function, and the gradients of its
        outputs, `grad_d` and `grad_<name>`. It returns the gradients by the names of `acc` and of inputs, one
        value per element; those of scalars, rows and columns are summed for it. What it leaves out has none.

        Raises:
            EpilogueError: (a ValueError) with the line of the function that cannot be traced.
            TypeError: a parameter that is none of these.
        """
        self._backward = _trace_backward(function, self._inputs, self.function.outputs)
        return self

    def __repr__(self) -> str:
        return f"<cleave.epilogue {self.__name__}({', '.join(f'{n}: {s!r}' for n, s in self._inputs.items())})>"


def epilogue(function: Callable[..., Any]) -> Epilogue:
    """Makes a function of a product's sums what the product does to them before it stores them.

        @cleave.epilogue
        def gelu_residual(acc, bias: cleave.row, scale: cleave.scalar, residual: cleave.matrix):
            pre = acc * scale + bias
            return cleave.outputs(d=cleave.gelu(pre) + residual, pre=pre)

        d, pre = cleave.gemm(a, b, epilogue=gelu_residual(bias=b1, scale=0.5, residual=r))

    The first parameter is the sum of an element of D, as it would be stored without a function: alpha, scales, c
    and bias are in it. Others are inputs, annotated as `cleave.scalar` (a number or an array of one), `cleave.row`
    (N values), `cleave.column` (M values) or `cleave.matrix` (M x N); arrays are of any type of Cleave's, and a
    scalar may have a number as its default. All is float32 and elementwise. The function is called once, here, to
    see what it does: it must do the same for all values (`cleave.where` chooses), with Python's operators and
    Cleave's functions: exp, log, sqrt, rsqrt, tanh, erf, sigmoid, minimum, maximum, clamp, where, relu, relu2,
    gelu, silu, and `value.to(dtype)`. It returns D's value, or `cleave.outputs`.

    Where b holds a gate and an up projection, columns of one after those of the other, a function takes `acc.gate`
    and `acc.up` instead of the sum, and joins them: swiglu with limits, geglu. D has half of b's columns then.

    It runs in the kernel of the product, in every split mode, once for each element and on the sum of all
    slices; kernels are compiled once for a function, whatever the values of its inputs. Results are as
    repeatable as those of the product. Inputs may be captured in CUDA graphs, where arrays are read anew at each
    replay, numbers are those of the capture.

    Raises:
        EpilogueError: (a ValueError) with the line of the function that cannot be traced.
        TypeError: a parameter without such an annotation.
    """
    return Epilogue(function)


def _read_signature(function: Callable[..., Any]) -> tuple[dict[str, InputShape], dict[str, Any]]:
    import inspect

    name = getattr(function, "__name__", repr(function))
    signature = inspect.signature(function)
    annotations = inspect.get_annotations(function, eval_str=True)
    parameters = list(signature.parameters.values())
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    if not parameters or parameters[0].kind not in (inspect.Parameter.POSITIONAL_ONLY, named[0]):
        raise TypeError(f"{name}() takes no sum; its first parameter must be the sum of an element of D")
    inputs, defaults = {}, {}
    for parameter in parameters[1:]:
        shape = annotations.get(parameter.name)
        if not isinstance(shape, InputShape) or parameter.kind not in named:
            raise TypeError(
                f"parameter {parameter.name} of {name}() must be an input by name, annotated cleave.scalar, "
                "cleave.row, cleave.column or cleave.matrix"
            )
        inputs[parameter.name] = shape
        if parameter.default is not inspect.Parameter.empty:
            if shape is not scalar:
                raise TypeError(f"parameter {parameter.name} of {name}() has a default, but is no cleave.scalar")
            defaults[parameter.name] = parameter.default
    return inputs, defaults


def _trace(function: Callable[..., Any], inputs: dict[str, InputShape]) -> EpilogueFunction:
    trace = _Trace(function.__name__, inputs)

    def made(returned: Any) -> dict[str, Any]:
        if returned is None:
            raise TypeError("it returns nothing; return D's value or cleave.outputs(...)")
        return returned.values if isinstance(returned, Outputs) else {"d": returned}

    return trace.run(function, [Value(trace, "acc")], {name: Value(trace, name) for name in inputs}, made)


def _trace_backward(function: Callable[..., Any], inputs: dict[str, InputShape], outputs: list[str]) -> str:
    import inspect

    known = inputs | {f"grad_{name}": matrix for name in outputs}
    trace = _Trace(function.__name__, known)
    parameters = list(inspect.signature(function).parameters)
    for name in parameters:
        if name != "acc" and name not in known:
            raise TypeError(f"parameter {name} of {trace.name}() is none of acc, {', '.join(known)}")

    def made(returned: Any) -> dict[str, Any]:
        if not isinstance(returned, dict) or not returned.keys() <= {"acc", *inputs}:
            raise TypeError(f"it must return a dict of the gradients of {', '.join(['acc', *inputs])}, by these names")
        return returned

    return trace.run(function, [], {name: Value(trace, name) for name in parameters}, made).text
