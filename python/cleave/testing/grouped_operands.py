"""Operands of a grouped case: what a mixture of experts would hold, of random normal values."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

from .._weights.experts import experts_of
from .arrays import Arrays
from .case import Block, GemmCase
from .grouped_case import GroupedCase
from .operands import Operands, factor, found_scales, result
from .quantization import quantize
from .weights import beside_codes, make_weight


@dataclass(kw_only=True)
class GroupedOperands(Operands):
    """As the library takes them; `offs` has the groups' ends."""

    offs: Any


def make_operands(arrays: Arrays, case: GroupedCase, seed: int = 0) -> GroupedOperands:
    """Standard normal inputs, in what belongs to no group too, and a poisoned output."""
    import numpy

    dense = case.product
    blocks = dense.scale_blocks or (None, None)
    k_major = dense.layout[0] == "t", dense.layout[1] == "n"
    weights, scale_b = None, None
    if case.weights != "none":
        if case.form == "wgrad":
            raise ValueError("form is wgrad, whose operands are both of tokens, but weights are packed; leave one out")
        weights = make_weight(arrays, dense, case.groups, 4 * seed + 1)
        a, scale_a = factor(arrays, (dense.m, dense.k), case.dtype, k_major[0], blocks[0], 4 * seed)
        b = weights.packed
        lead = ()
    elif case.form == "wgrad":
        a, scale_a = _cut(arrays, case, dense.m, k_major[0], blocks[0], 4 * seed)
        b, scale_b = _cut(arrays, case, dense.n, k_major[1], blocks[1], 4 * seed + 1)
        lead = (case.groups,)
    else:
        a, scale_a = factor(arrays, (dense.m, dense.k), case.dtype, k_major[0], blocks[0], 4 * seed)
        b, scale_b = _stacked(arrays, case, k_major[1], blocks[1], 4 * seed + 1)
        lead = ()
    scales = beside_codes(weights) if weights else {}
    if dense.scale_blocks:
        by_row = case.scaling == "row"
        scales["scale_a"] = scale_a[..., 0] if by_row else scale_a
        if not weights:
            scales["scale_b"] = scale_b[..., 0] if by_row else scale_b.swapaxes(-1, -2)
    out, c = result(arrays, dense, (*lead, dense.m, dense.n))
    biased = case.bias != "none"
    return GroupedOperands(
        a=a,
        b=b if weights else b.swapaxes(-1, -2),
        bias=arrays.normal((case.groups, dense.columns), dense.bias_dtype, 4 * seed + 2) if biased else None,
        out=out,
        scales=scales,
        scale_out=found_scales(arrays, dense, lead),
        weights=weights,
        c=c,
        offs=arrays.from_numpy(numpy.array([end for _, end in case.ranges]), "int32"),
    )


def of_group(case: GroupedCase, operands: GroupedOperands, group: int) -> tuple[GemmCase, Operands]:
    """The group's product and its operands: views."""
    begin, end = case.ranges[group]
    a, b, out, scales = operands.a, operands.b, operands.out, dict(operands.scales)
    if operands.weights is not None:
        own = next(itertools.islice(experts_of(operands.weights), group, None))
        bias = None if operands.bias is None else operands.bias[group]
        scales = {"scale_a": scales["scale_a"][begin:end, None]} if case.scaling == "row" else {}
        return case.group(end - begin), Operands(a[begin:end], own.packed, bias, out[begin:end], scales, weights=own)
    if case.form == "wgrad":
        a, b, out = a[:, begin:end], b[begin:end], out[group]
        if case.scaling == "row":
            scales = {name: scale[group] for name, scale in scales.items()}
        elif scales:
            first, last = begin // _BLOCK, -(-end // _BLOCK)
            scales["scale_a"] = scales["scale_a"][:, first:last]
            scales["scale_b"] = scales["scale_b"][first:last]
    else:
        a, b, out = a[begin:end], b[group], out[begin:end]
        if scales:
            scales = {"scale_a": scales["scale_a"][begin:end], "scale_b": scales["scale_b"][group]}
    if case.scaling == "row":
        scales = {"scale_a": scales["scale_a"][:, None], "scale_b": scales["scale_b"][None, :]}
    bias = None if operands.bias is None else operands.bias[group]
    found = operands.scale_out
    if found is not None:
        found = found[group] if case.form == "wgrad" else found[begin:end]
    return case.group(end - begin), Operands(a, b, bias, out, scales, found)


_BLOCK = 128  # elements of K that share a scale


def _stacked(arrays: Arrays, case: GroupedCase, k_major: bool, block: Block | None, seed: int) -> tuple[Any, Any]:
    """[groups, rows, K], one matrix per group, and the scales."""
    shape = case.product.columns, case.product.k
    if not case.quantized:
        return factor(arrays, (case.groups, *shape), case.dtype, k_major, block, seed)
    # One by one: before they are quantised they are four times as large.
    made = [factor(arrays, shape, case.dtype, k_major, block, seed << 10 | group) for group in range(case.groups)]
    values = _stack(arrays, [values for values, _ in made], k_major)
    if not block:
        return values, None
    return values, _stack(arrays, [scale for _, scale in made], block != (1, _BLOCK))


def _stack(arrays: Arrays, matrices: list[Any], k_major: bool) -> Any:
    if k_major:
        return arrays.xp.stack(matrices)
    return arrays.xp.stack([matrix.swapaxes(0, 1) for matrix in matrices]).swapaxes(1, 2)


def _cut(
    arrays: Arrays, case: GroupedCase, rows: int, k_major: bool, block: Block | None, seed: int
) -> tuple[Any, Any]:
    """[rows, K], whose K is cut into groups, and the scales."""
    shape = rows, case.product.k
    if block != (1, None) or not case.quantized:
        return factor(arrays, shape, case.dtype, k_major, block, seed)
    # A row has a scale in each group.
    values, _ = factor(arrays, shape, case.dtype, k_major, None, seed)
    scales = arrays.full((case.groups, rows, 1), 1, "float32")
    for group, (begin, end) in enumerate(case.ranges):
        if begin != end:
            part = arrays.normal((rows, end - begin), "float32", seed << 10 | group)
            values[:, begin:end], scales[group] = quantize(arrays, part, case.dtype, block)
    return values, scales
