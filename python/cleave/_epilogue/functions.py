"""What an epilogue function may do to its values beside Python's operators, and what it returns."""

from __future__ import annotations

from typing import Any

from .errors import refuse
from .value import Reduced, Value, apply


def exp(x: Value) -> Value:
    """e to the power of x."""
    return apply("exp", x)


def log(x: Value) -> Value:
    """The natural logarithm."""
    return apply("log", x)


def sqrt(x: Value) -> Value:
    """The square root."""
    return apply("sqrt", x)


def rsqrt(x: Value) -> Value:
    """1 / sqrt(x)."""
    return apply("rsqrt", x)


def tanh(x: Value) -> Value:
    """The hyperbolic tangent."""
    return apply("tanh", x)


def erf(x: Value) -> Value:
    """The error function."""
    return apply("erf", x)


def sigmoid(x: Value) -> Value:
    """1 / (1 + exp(-x))."""
    return apply("sigmoid", x)


def where(condition: Value, then: Value | float, otherwise: Value | float) -> Value:
    """`then` where the condition, the result of a comparison, holds, else `otherwise`."""
    return apply("where", condition, then, otherwise)


def minimum(x: Value | float, y: Value | float) -> Value:
    """The smaller one; NaN if one of them is."""
    return apply("minimum", x, y)


def maximum(x: Value | float, y: Value | float) -> Value:
    """The larger one; NaN if one of them is."""
    return apply("maximum", x, y)


def clamp(x: Value, min: Value | float | None = None, max: Value | float | None = None) -> Value:
    """x, but at least `min` and at most `max`; a NaN stays one."""
    if min is not None:
        x = maximum(x, min)
    return x if max is None else minimum(x, max)


def relu(x: Value) -> Value:
    """x, or 0 where it is not positive: activation="relu". Its derivative at 0 is 0, as torch's."""
    return apply("relu", x)


def relu2(x: Value) -> Value:
    """The square of relu: activation="relu2"."""
    positive = relu(x)
    return positive * positive


def gelu(x: Value, approximate: str = "none") -> Value:
    """x times the normal distribution's probability below it: activation="gelu".

    approximate="tanh" is activation="gelu_tanh".
    """
    if approximate == "tanh":
        return 0.5 * x * (1.0 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))
    if approximate != "none":
        refuse(f'approximate is {approximate!r}; it must be "none" or "tanh"')
    return 0.5 * x * (1.0 + erf(x * 0.7071067811865476))


def silu(x: Value) -> Value:
    """x * sigmoid(x): activation="silu"."""
    return apply("silu", x)


def sum(x: Value, over: str = "all") -> Reduced:
    """The sum of x over "columns" of D, over "rows", or over "all".

    Over columns it is one value per row, as x.sum(-1) in torch; over rows one per column, as x.sum(-2).

    An output beside D, in float32. It has the shape of an input that is a `cleave.column`, a `cleave.row` or a
    `cleave.scalar`: of D [M, N] these are [M], [N] and []; of a batch [B, M, 1], [B, 1, N] and [B, 1, 1]; of
    convolutions one value per pixel [N, 1, H, W], per channel [C] and []; of their weight gradients one per filter
    [K], per channel and tap [1, C, R, S] and []. Bitwise the same in every run of a plan.
    """
    return Reduced("sum", x, over)


def sum_of_squares(x: Value, over: str = "all") -> Reduced:
    """The sum of x * x, as `cleave.sum`: what norms are made of."""
    return Reduced("sum", x * x, over)


def absmax(x: Value, over: str = "all") -> Reduced:
    """The largest magnitude of x, as `cleave.sum`: what scales are made of. NaN where x has one. It has no gradient."""
    return Reduced("absmax", x, over)


class Outputs:
    """What an epilogue function with several outputs returns; made by `cleave.outputs`."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values


def outputs(*, d: Any, **others: Any) -> Outputs:
    """Several outputs of an epilogue function: D and, by name, others of its shape.

    A product with such a function returns a tuple: D, then the others in this order. `value.to(dtype)` says
    of which type an output is; else it is of D's. An output that is a value's `cleave.sum`,
    `cleave.sum_of_squares` or `cleave.absmax` has the shape and type that these say.
    """
    return Outputs({"d": d, **others})
