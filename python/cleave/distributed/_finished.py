"""A sum in 8 bits with scales that are found: those of 128 columns by the kernel that adds up, those of rows, of which
none of its CTAs has all, by one behind it, from float32 that nobody has rounded.

A large sum for all ranks is quantised where its rows are, so that its second trip has a byte of each value.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_compiling

from . import _operators, _sums
from ._direct import are_plain, call, is_watched
from ._peers import name_of, peers_of

_ops = torch.ops.cleave
_BY_ROWS = ("row", "block_1x128")  # scales that do not depend on how rows are dealt
_SCALES = ("out_scale", "scale_major", "use_ue8m0")


def is_more(options: dict[str, Any]) -> bool:
    """Whether a sum has it."""
    return bool(options) and any(name in options for name in _SCALES)


def finished_sum(
    name: str, group: Any, a: Tensor, operands: tuple[Any, ...], bias: Tensor | None, c: Tensor | None, **options: Any
) -> Tensor | tuple[Tensor, Tensor]:
    """A sum's operator of that name, of a and the other operands; or the result in 8 bits and its scales."""
    group_name = name_of(group, name)
    granularity, *form = (options.pop(option, None) for option in _SCALES)
    form = {option: x for option, x in zip(_SCALES[1:], form, strict=True) if x is not None}
    _check(granularity, form, options)
    if granularity is None:
        return call(name, a, *operands, group_name, bias, c, **options)
    dtype = options.pop("out_dtype")

    def quantized(name: str, c: Tensor | None) -> tuple[Tensor, Tensor]:
        watched = granularity == "row" or is_watched((a, *operands, bias, c))
        if not watched and are_plain(name, options):
            lines = _sums.Lines(form.get("scale_major", "k"), form.get("use_ue8m0", False))
            given = *operands, group_name, bias, c
            return _operators.IMPLEMENTATIONS[name](a, *given, out_dtype=dtype, lines=lines, **options)
        sums = call(name, a, *operands, group_name, bias, c, out_dtype=torch.float32, **options)
        return _ops.quantize(sums, dtype, granularity, **form)

    # Compiled calls do not ask how many ranks there are, and have the same bits.
    if name.endswith("reduce_scatter") or is_compiling() or _is_one_shot(a, operands[0], group_name, options):
        return quantized(name, c)
    peers = peers_of(group_name)
    first, rows = peers.rank * peers.share(a.shape[0]), a.shape[0]
    c = None if c is None else c[first : first + peers.own(rows)]
    q, scale = quantized(name.replace("all_reduce", "reduce_scatter"), c)
    moved = {"rows": rows, "transport": options.get("transport", "auto")}
    all_q = _ops.all_gather_rows(q.view(torch.uint8), group_name, **moved).view(dtype)
    all_scales = _ops.all_gather_rows(scale.contiguous(), group_name, **moved)
    return all_q, all_scales.t().contiguous().t() if form.get("scale_major") == "mn" else all_scales


def _is_one_shot(a: Tensor, b: Tensor, group_name: str, options: dict[str, Any]) -> bool:
    partial = _sums.partial_of(a, options.get("partial_dtype"), options.get("order") == "k")
    return _sums.ways_of(a.shape[0], b.shape[1], partial, peers_of(group_name).size, False)[2]


def _check(granularity: str | None, form: dict[str, Any], options: dict[str, Any]) -> None:
    if granularity is None:
        if form:
            raise ValueError(f"{next(iter(form))} is given, but no scales are found; pass out_scale, or leave it out")
        return
    if granularity not in _BY_ROWS:
        raise ValueError(
            f"out_scale is {granularity!r}; it must be {' or '.join(map(repr, _BY_ROWS))}: a scale of more rows would "
            "depend on how they are dealt"
        )
    if form.get("scale_major", "k") not in ("k", "mn"):
        raise ValueError(f"scale_major is {form['scale_major']!r}; it must be 'k' or 'mn'")
    if options.get("scale_d") is not None:
        raise ValueError(
            f'scale_d is given beside out_scale="{granularity}", which finds scales; leave one of them out'
        )
    dtype = options.get("out_dtype")
    if dtype is None or dtype.itemsize != 1:
        raise TypeError(f'out_dtype is {dtype} beside out_scale="{granularity}"; pass torch.int8 or an 8-bit float')
