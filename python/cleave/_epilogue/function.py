"""Epilogue functions: Python functions of a product's sums, traced once into what kernels are made of."""

from __future__ import annotations

import copyreg
import inspect
from collections.abc import Callable
from functools import update_wrapper
from typing import Any

from .._core import EpilogueFunction
from .derivative import has_derivative
from .errors import refuse
from .functions import Outputs
from .graph import SUM, SUMS, gradient_of, parse
from .inputs import SHAPES, InputShape, scalar
from .value import Trace, Value

# So that modules which hold one are copied and saved.
copyreg.pickle(EpilogueFunction, lambda function: (EpilogueFunction, (function.text,)))


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

    def __call__(self, *positional: Any, **inputs: Any) -> BoundEpilogue:
        if positional:
            named = ", ".join(f"{name}=..." for name in self._inputs)
            raise TypeError(f"{self.__name__}() takes its inputs by name: {self.__name__}({named})")
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
        Where this function takes `acc.gate` and `acc.up`, so does its backward, and returns theirs:
        `{"acc.gate": ..., "acc.up": ...}`; and so with `acc.even` and `acc.odd`.

        Raises:
            EpilogueError: (a ValueError) with the line of the function that cannot be traced.
            TypeError: a parameter that is none of these.
        """
        self._backward = _trace_backward(function, self._inputs, self.text)
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Copies, and other processes, have what the function does, without its Python code."""
        return {name: value for name, value in vars(self).items() if name != "__wrapped__"}

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
    and `acc.up` instead of the sum, and joins them: swiglu with limits, geglu. D has half of b's columns then. Where
    columns of the two take turns, it takes `acc.even` and `acc.odd`.

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
    name = getattr(function, "__name__", repr(function))
    signature = inspect.signature(function)
    try:
        annotations = inspect.get_annotations(function, eval_str=True)
    except Exception as error:  # whatever evaluating a string raises
        raise TypeError(
            f"an annotation of {name}() cannot be read: {type(error).__name__}: {error}. Inputs are annotated "
            "cleave.scalar, cleave.row, cleave.column or cleave.matrix, by names that the function's module has"
        ) from error
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
    trace = Trace(function.__name__, inputs)

    def made(returned: Any) -> dict[str, Any]:
        if returned is None or isinstance(returned, (tuple, list, dict)):
            what = "nothing" if returned is None else f"a {type(returned).__name__}"
            refuse(f"it returns {what}; return D's value, or cleave.outputs(d=..., name=...)")
        return returned.values if isinstance(returned, Outputs) else {"d": returned}

    return trace.run(function, [Value(trace, SUM)], {name: Value(trace, name) for name in inputs}, made)


def _trace_backward(function: Callable[..., Any], inputs: dict[str, InputShape], text: str) -> str:
    forward = parse(text)
    known = inputs | {f"grad_{n}": SHAPES[forward.shape(n)] for n in forward.outputs if has_derivative(forward, n)}
    trace = Trace(function.__name__, known)
    parameters = list(inspect.signature(function).parameters)
    for name in parameters:
        if name != SUM and name not in known:
            raise TypeError(f"parameter {name} of {trace.name}() is none of acc, {', '.join(known)}")
    results = {gradient_of(name): name for name in forward.sums}
    for name in inputs.keys() & results:
        raise TypeError(f"input {name} has the name that {trace.name}() gives {results[name]}'s gradient; rename it")

    def made(returned: Any) -> dict[str, Any]:
        names = [*forward.sums, *inputs]
        if not isinstance(returned, dict) or not returned.keys() <= set(names):
            refuse(f"it must return a dict of the gradients of {', '.join(names)}, by these names")
        return {gradient_of(name): value for name, value in returned.items()}

    text = trace.run(function, [], {name: Value(trace, name) for name in parameters}, made).text
    if foreign := SUMS.difference(forward.sums) & parse(text).read:
        raise TypeError(
            f"{trace.name}() takes {' and '.join(sorted(foreign))}, but the function whose backward it is "
            f"{' and '.join(forward.sums)}; take that"
        )
    return text
