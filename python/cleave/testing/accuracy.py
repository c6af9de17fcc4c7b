"""How far results are from float64, and how far they may be."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .._epilogue.activations import GATED
from . import out_scales
from .activations import activate, carried, opened
from .arrays import Arrays
from .case import GemmCase
from .dtypes import DTYPES
from .operands import Operands, real_factors

# Half of how far a product of float32 operands may be off (docs/precision.md).
_PRODUCT_ROUNDOFF = {"tf32": 2.0**-11, "ieee": 0.0, "tf32x3": 2.0**-22, "bf16x3": 2.0**-16}
# What one step may lose where the tensor cores sum 8-bit floats.
_FP8_SUM_ROUNDOFF = 2.0**-13


@dataclass(frozen=True)
class Reference:
    """float64 values; how large those of each row are; and how far results may be from them."""

    values: Any
    row_magnitudes: Any
    tolerance: Any


@dataclass(frozen=True)
class Errors:
    """Errors of one output against float64.

    max_relative: largest absolute error over the reference's largest magnitude; rms_relative: root
    mean square of the error over that of the reference; max_row: the largest of the rows' maximum
    errors, each over its row's magnitude; max_absolute, rms_absolute: undivided. NaN if the output
    has one. acceptable: every element is within its tolerance.
    """

    max_relative: float
    rms_relative: float
    max_row: float
    max_absolute: float
    rms_absolute: float
    acceptable: bool


def compare(arrays: Arrays, result: Any, expected: Reference) -> Errors:
    difference = abs(arrays.float64(result) - expected.values)
    if math.prod(difference.shape) == 0:
        return Errors(0.0, 0.0, 0.0, 0.0, 0.0, True)
    max_absolute = float(difference.max())
    rms_absolute = _rms(difference)
    rows = arrays.xp.amax(difference, axis=-1)
    # What an all-zero reference (K = 0) leaves is the absolute error.
    magnitudes = arrays.xp.where(expected.row_magnitudes > 0, expected.row_magnitudes, 1.0)
    return Errors(
        max_relative=max_absolute / (float(abs(expected.values).max()) or 1.0),
        rms_relative=rms_absolute / (_rms(expected.values) or 1.0),
        max_row=float((rows / magnitudes).max()),
        max_absolute=max_absolute,
        rms_absolute=rms_absolute,
        acceptable=bool((difference <= expected.tolerance).all()),
    )


def overall(parts: Sequence[tuple[Errors, int]]) -> Errors:
    """Errors of several outputs, each with its size: the largest, and the mean squares'."""

    def largest(name: str) -> float:
        values = [getattr(errors, name) for errors, _ in parts]
        return math.nan if any(map(math.isnan, values)) else max(values, default=0.0)

    def root_mean_square(name: str) -> float:
        squares = sum(getattr(errors, name) ** 2 * count for errors, count in parts)
        return math.sqrt(squares / max(sum(count for _, count in parts), 1))

    return Errors(
        max_relative=largest("max_relative"),
        rms_relative=root_mean_square("rms_relative"),
        max_row=largest("max_row"),
        max_absolute=largest("max_absolute"),
        rms_absolute=root_mean_square("rms_absolute"),
        acceptable=all(errors.acceptable for errors, _ in parts),
    )


def rounding(values: Any, dtype: str) -> Any:
    """The largest error of each of the float64 `values` when it is rounded to `dtype`."""
    return DTYPES[dtype].roundoff * abs(values) + DTYPES[dtype].step / 2


def reference(arrays: Arrays, case: GemmCase, operands: Operands) -> Reference:
    """The product in float64, where the operands live, in the units in which D is stored.

    A row's magnitude is the root mean square that it would have if signs were random: unlike the
    values themselves, it is not small by cancellation.
    """
    a, b = real_factors(arrays, case, operands)
    column_squares = (b * b).sum(-2) / max(case.columns, 1)
    row_squares = ((a * a) @ column_squares[..., None])[..., 0]
    bias, scale_d = operands.bias, operands.scales.get("scale_d")
    bias = None if bias is None else arrays.float64(bias)
    return of_sums(arrays, case, a @ b.swapaxes(-1, -2), row_squares, bias, scale_d, operands.scale_out)


def of_sums(
    arrays: Arrays,
    case: GemmCase,
    values: Any,
    row_squares: Any,
    bias: Any = None,
    scale_d: Any = None,
    scale_out: Any = None,
) -> Reference:
    """What becomes of float64 sums of products, [..., rows, columns].

    row_squares: of each row, the mean square that it would have if signs were random. bias:
    float64, broadcast to `values`. scale_out: the scales that were found, with which D is compared.
    """
    if bias is not None:
        values = values + bias
        row_squares = row_squares + (bias * bias).sum() / max(math.prod(bias.shape), 1)
    magnitudes = arrays.xp.sqrt(row_squares)
    # A sum loses what it has reached: the largest of millions, six times its row's magnitude and more.
    slack = _sum_roundoff(case) * arrays.xp.maximum(magnitudes[..., None], abs(values))
    if case.activation in GATED:
        (gates, values), (gate_slack, slack) = (opened(case.activation, x) for x in (values, slack))
        factor = activate(arrays, "silu", gates)
        slack = slack * abs(factor) + carried("silu", gates, gate_slack) * abs(values)
        magnitudes = magnitudes * arrays.xp.sqrt((factor * factor).sum(-1) / max(case.n, 1))
        values = factor * values
    else:
        slack = carried(case.activation, values, slack)
        magnitudes = activate(arrays, case.activation, magnitudes)
        values = activate(arrays, case.activation, values)
    if scale_d is not None:
        scale = arrays.float64(scale_d)
        values = arrays.xp.clip(values / scale, *DTYPES[case.result_dtype].limits)
        magnitudes, slack = magnitudes / scale, slack / scale
    if scale_out is not None:
        scale = out_scales.of_elements(arrays, scale_out, values)
        stored = values / arrays.xp.where(scale > 0, scale, 1.0)
        rounded = scale * rounding(stored, case.result_dtype)
        # Where a scale is wrong, so is what it scales.
        right = out_scales.are_right(arrays, case, scale_out, values, slack)
        tolerance = arrays.xp.where(right, slack + rounded, -1.0)
        return Reference(values, magnitudes, 1.01 * tolerance)
    tolerance = slack + rounding(values, case.result_dtype)
    return Reference(values, magnitudes, 1.01 * tolerance)


def _sum_roundoff(case: GemmCase) -> float:
    """How far a sum may be off before it is rounded to D's type, over what it reaches."""
    if case.result_dtype == "int32":
        return 0.0
    float32 = DTYPES["float32"].roundoff
    if case.dtype == "int8" and not case.scaling.startswith("block"):
        return 32 * float32  # sums are exact; what they are scaled by is not
    # Rounding errors add up as random ones do, truncation in the tensor cores as it stands: 16
    # products a step, 32 of 8-bit floats.
    magnitudes = float32 * (32 * math.sqrt(max(case.k, 1)) + case.k / 2)
    if case.dtype == "float32":
        magnitudes += 16 * _PRODUCT_ROUNDOFF[case.precision]
    elif case.dtype.startswith("float8"):
        # Where float32 takes over every 128 products, they lose 4 steps of that part of the sum.
        steps = case.k / 32 if case.use_fast_accum else 4 * math.sqrt(case.k / 128)
        magnitudes += 4 * steps * _FP8_SUM_ROUNDOFF
    if case.weights == "int4":
        magnitudes += 8 * DTYPES[case.dtype].roundoff  # of elements, as which the weight is multiplied
    return magnitudes


def _rms(x: Any) -> float:
    return math.sqrt(float((x * x).mean()))
