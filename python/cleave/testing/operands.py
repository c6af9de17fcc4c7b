"""Operands of a case: random normal values, quantised where the case has 8-bit ones."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from .arrays import Arrays
from .case import Block, GemmCase, block_counts
from .dtypes import DTYPES
from .quantization import dequantize, quantize
from .weights import beside_codes, make_weight, values_of

# 8-bit results saturate at this many standard deviations of a product of standard normal factors.
_REACH = 4


@dataclass
class Operands:
    """`scales` has scale_a, scale_b and scale_d, as far as the case has them, by those names; scale_out: where the
    product leaves those that it finds. weights: a packed one, of which b has the codes and `scales` the rest. c: `out`,
    if the product is added to it."""

    a: Any
    b: Any
    bias: Any
    out: Any
    scales: dict[str, Any] = field(default_factory=dict)
    scale_out: Any = None
    weights: Any = None
    c: Any = None


def make_operands(arrays: Arrays, case: GemmCase, seed: int = 0) -> Operands:
    """Standard normal inputs, and a poisoned output; 2-D unless the case has a batch.

    Scales of 1x128 blocks have the rows of A (the columns of B) as their unit stride, as the peers
    demand it.
    """
    lead = (case.batch,) if case.batch != 1 else ()
    block_a, block_b = case.scale_blocks or (None, None)
    a, scale_a = factor(arrays, (*lead, case.m, case.k), case.dtype, case.layout[0] == "t", block_a, 4 * seed)
    weights, scale_b, scales = None, None, {}
    if case.weights != "none":
        weights = make_weight(arrays, case, case.batch if lead else 0, 4 * seed + 1)
        b, scales = weights.packed, beside_codes(weights)
    else:
        shape = (*lead, case.columns, case.k)
        b, scale_b = factor(arrays, shape, case.dtype, case.layout[1] == "n", block_b, 4 * seed + 1)
        b, scales = b.swapaxes(-1, -2), static_scale(arrays, case)
    if case.scale_blocks:
        scales["scale_a"] = scale_a
    if case.scale_blocks and not weights:
        scales["scale_b"] = scale_b.swapaxes(-1, -2)
    bias_shape = {"none": None, "row": (case.columns,), "column": (case.m, 1)}[case.bias]
    out, c = result(arrays, case, (*lead, case.m, case.n))
    return Operands(
        a=a,
        b=b,
        bias=arrays.normal(bias_shape, case.bias_dtype, 4 * seed + 2) if bias_shape else None,
        out=out,
        scales=scales,
        scale_out=found_scales(arrays, case, lead),
        weights=weights,
        c=c,
    )


def result(arrays: Arrays, case: GemmCase, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """out, poisoned, and c; both of them, zero, of a product that is added to."""
    out = arrays.full(shape, 0, case.result_dtype)
    if case.accumulate:
        return out, out
    arrays.poison(out)
    return out, None


def static_scale(arrays: Arrays, case: GemmCase) -> dict[str, Any]:
    """scale_d of an 8-bit D whose scales are not found."""
    largest = DTYPES[case.result_dtype].largest
    if not largest or case.out_scale:
        return {}
    return {"scale_d": arrays.full((1,), _REACH * math.sqrt(max(case.k, 1)) / largest, "float32")}


def found_scales(arrays: Arrays, case: GemmCase, lead: tuple[int, ...]) -> Any:
    """Where the scales of D go that the product finds, poisoned; None if it finds none."""
    if not case.out_scale:
        return None
    rows, columns = case.out_scale_shape
    by_rows = case.scale_major == "k"
    scales = arrays.full((*lead, *((rows, columns) if by_rows else (columns, rows))), 0, "float32")
    arrays.poison(scales)
    return scales if by_rows else scales.swapaxes(-1, -2)


def real_factors(arrays: Arrays, case: GemmCase, operands: Operands) -> tuple[Any, Any]:
    """What A [..., M, K] and B's transpose [..., N, K] stand for, in float64."""
    block_a, block_b = case.scale_blocks or (None, None)

    def real(values: Any, scale: Any, block: Block | None) -> Any:
        return dequantize(arrays, values, scale, block) if block else arrays.float64(values)

    a, scale_b = real(operands.a, operands.scales.get("scale_a"), block_a), operands.scales.get("scale_b")
    if operands.weights is not None:
        return a, values_of(arrays, operands.weights)
    return a, real(operands.b.swapaxes(-1, -2), None if scale_b is None else scale_b.swapaxes(-1, -2), block_b)


def factor(
    arrays: Arrays, shape: tuple[int, ...], dtype: str, k_major: bool, block: Block | None, seed: int
) -> tuple[Any, Any]:
    """[..., rows, K], with K or the rows as the unit stride, and the scales of the blocks: ones of what is not of 8
    bits, which the library refuses."""
    if DTYPES[dtype].largest is None:
        stored = shape if k_major else (*shape[:-2], shape[-1], shape[-2])
        values = arrays.normal(stored, dtype, seed)
        blocks = block and block_counts(shape, block)
        scale = arrays.full((*shape[:-2], *blocks), 1, "float32") if blocks else None
        return (values if k_major else values.swapaxes(-1, -2)), scale
    values, scale = arrays.normal(shape, "float32", seed), None
    if block:
        values, scale = quantize(arrays, values, dtype, block)
        scale = _rows_innermost(arrays, scale) if block == (1, 128) else scale
    elif dtype == "int8":
        values, _ = quantize(arrays, values, dtype, (None, None))
    values = arrays.cast(values, dtype)
    return (values if k_major else _rows_innermost(arrays, values)), scale


def _rows_innermost(arrays: Arrays, matrix: Any) -> Any:
    return arrays.contiguous(matrix.swapaxes(-1, -2)).swapaxes(-1, -2)
