"""What a product should be, in float64, and how far from it rounding may lead."""

from __future__ import annotations

from typing import Any

import numpy as np

from cleave._epilogue.activations import GATED
from cleave.testing import activations
from cleave.testing.arrays import NumpyArrays
from cleave.testing.dtypes import DTYPES

# What rounding to a type loses, of large values and of small ones, and where it ends.
ROUNDOFF = {name: dtype.roundoff for name, dtype in DTYPES.items()}
SMALLEST = {name: dtype.step / (2 if name == "int8" else 1) for name, dtype in DTYPES.items()}
RANGE = {name: dtype.limits for name, dtype in DTYPES.items() if dtype.limits}

MODES = ("none", "serial", "parallel", "cluster", "stream_k", "auto")
ACTIVATIONS = tuple(activations.ELEMENTWISE)


def activate(name: str, x: np.ndarray) -> np.ndarray:
    return activations.activate(NumpyArrays(), name, x)


def gemm(
    a: np.ndarray,
    b: np.ndarray,
    c: np.ndarray | None = None,
    bias: np.ndarray | None = None,
    alpha: float = 1.0,
    beta: float | None = None,
    activation: str = "none",
    zero: np.ndarray | float = 0.0,
) -> np.ndarray:
    """On float64 arrays; `zero` is taken off the product."""
    value = alpha * (a @ b - zero)
    if beta is None:
        beta = 0.0 if c is None else 1.0
    if beta != 0:
        value = value + beta * c
    if bias is not None:
        value = value + bias
    return activate(activation, value)


def assert_close(
    result: np.ndarray,
    dtype: str,
    a: np.ndarray,
    b: np.ndarray,
    *,
    slack: float = 1.0,
    scale_d: float = 1.0,
    **epilogue: Any,
) -> None:
    """`result`, of `dtype` but given as float64, is the product of a and b but for rounding.

    The bound is the classic one for sums in float32 in any order, K roundoffs of the sum of
    magnitudes, times `slack`. The product is stored divided by `scale_d`.
    """
    expected = gemm(a, b, **epilogue)
    assert result.shape == expected.shape
    if expected.size == 0:
        return
    magnitudes = {name: None if x is None else abs(x) for name, x in epilogue.items() if name in ("c", "bias")}
    magnitudes["zero"] = -abs(epilogue.get("zero", 0.0))
    scalars = {name: abs(x) for name, x in epilogue.items() if name in ("alpha", "beta") and x is not None}
    summed = gemm(abs(a), abs(b), **magnitudes, **scalars)
    # A few more roundings happen in the epilogue.
    bound = slack * (a.shape[-1] + 8) * ROUNDOFF["float32"] * summed
    activation = epilogue.pop("activation", "none")
    sums = gemm(a, b, **epilogue)
    # Small positive numbers times tiny tails: the float32 functions have errors of their own.
    if activation in GATED:
        gates, ups = activations.opened(activation, sums)
        gate_bound, up_bound = activations.opened(activation, bound)
        gate_bound = activations.carried("silu", gates, gate_bound)
        factor = abs(activate("silu", gates)) + gate_bound
        factor_bound = gate_bound + 4 * ROUNDOFF["float32"] * (1 + factor)
        bound = factor_bound * (abs(ups) + up_bound) + factor * up_bound
    else:
        bound = activations.carried(activation, sums, bound)
        if activation not in ("none", "relu"):
            bound += 4 * ROUNDOFF["float32"] * (1 + abs(expected))
    expected, bound = expected / scale_d, bound / scale_d
    bound += 1.01 * ROUNDOFF[dtype] * (abs(expected) + bound) + SMALLEST[dtype]
    if dtype in RANGE:
        result, expected = result.clip(*RANGE[dtype]), expected.clip(*RANGE[dtype])
    worst = np.unravel_index(np.argmax(abs(result - expected) - bound), expected.shape)
    assert (abs(result - expected) <= bound).all(), (
        f"at {worst}: {result[worst]}, expected {expected[worst]} within {bound[worst]}"
    )


def spread(scale: Any, rows: int, cols: int) -> np.ndarray:
    """One value for each element of [..., rows, cols], in float64.

    The scales are one for all, for a row, for a column, or for a block of 128, along each of the
    two dimensions.
    """
    scale = np.asarray(scale, np.float64)
    for axis, size in ((-2, rows), (-1, cols)):
        if scale.shape[axis] not in (1, size):
            scale = np.repeat(scale, 128, axis).take(range(size), axis)
    return np.broadcast_to(scale, (*scale.shape[:-2], rows, cols))
