"""The scales of D that a product finds (out_scale): what D stands for by them, and whether they are right."""

from __future__ import annotations

from typing import Any

from .arrays import Arrays
from .case import GemmCase
from .dtypes import DTYPES
from .quantization import dequantize, largest_magnitudes

_BLOCK = (1, 128)
# Units in the last place of float32 that finding a scale may cost.
_ULPS = 4


def dequantize_result(arrays: Arrays, result: Any, scale: Any) -> Any:
    """float64 scale * value."""
    return dequantize(arrays, result, scale, _BLOCK)


def of_elements(arrays: Arrays, scale: Any, values: Any) -> Any:
    """The scale of each of the values."""
    return dequantize(arrays, arrays.xp.ones_like(values), scale, _BLOCK)


def are_right(arrays: Arrays, case: GemmCase, scale: Any, values: Any, slack: Any) -> Any:
    """Whether the scale of each of the float64 values, which may be off by `slack`, is the one that its block has."""
    xp, largest = arrays.xp, DTYPES[case.result_dtype].largest
    expected = largest_magnitudes(arrays, values, _BLOCK) / largest
    off = largest_magnitudes(arrays, slack, _BLOCK) / largest + _ULPS * DTYPES["float32"].roundoff * expected
    found, least, most = arrays.float64(scale), expected - off, expected + off
    if case.use_ue8m0:
        least, most = _power_of_two_from(arrays, least), _power_of_two_from(arrays, most)
        right = (found == least) | (found == most)
    else:
        right = (found >= least) & (found <= most)
    return of_elements(arrays, xp.where(right, 1.0, 0.0), values) == 1


def _power_of_two_from(arrays: Arrays, x: Any) -> Any:
    """The least that is as large; 0 of what is not positive."""
    xp = arrays.xp
    return xp.where(x > 0, xp.exp2(xp.ceil(xp.log2(xp.where(x > 0, x, 1.0)))), 0.0)
