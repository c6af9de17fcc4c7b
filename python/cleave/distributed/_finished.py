"""What is done to a whole sum behind the kernel that makes it: gates, which join two of its columns, and 8 bits with
scales that are found. Both begin with float32 that nobody has rounded.

A large sum for all ranks is quantised where its rows are, so that its second trip has a byte of each value.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_compiling

from .._epilogue.activations import GATED, GRAPHS, PAIRED
from .._epilogue.values import evaluate
from . import _sums
from ._direct import call
from ._peers import name_of, peers_of

_ops = torch.ops.cleave
_BY_ROWS = ("row", "block_1x128")  # scales that do not depend on how rows are dealt
_SCALES = ("out_scale", "scale_major", "use_ue8m0")


def is_more(options: dict[str, Any]) -> bool:
    """Whether a sum has it."""
    return bool(options) and (options.get("activation") in GATED or any(name in options for name in _SCALES))


def finished_sum(
    name: str, group: Any, a: Tensor, operands: tuple[Any, ...], bias: Tensor | None, c: Tensor | None, **options: Any
) -> Tensor | tuple[Tensor, Tensor]:
    """A sum's operator of that name, of a and the other operands; or the result in 8 bits and its scales."""
    group_name = name_of(group, name)
    activation, dtype = options.pop("activation", "none"), options.pop("out_dtype", None)
    granularity, *form = (options.pop(option, None) for option in _SCALES)
    form = {option: x for option, x in zip(_SCALES[1:], form, strict=True) if x is not None}
    gated = activation in GATED
    if granularity is None:
        dtype = dtype or _default_dtype(a)
    _check(activation if gated else None, granularity, form, dtype, operands[0].shape[-1], c, options)
    options |= {"activation": "none" if gated else activation, "out_dtype": torch.float32}

    def finish(sums: Tensor) -> tuple[Tensor, ...]:
        made = gate(activation, sums) if gated else sums
        if granularity is None:
            return (made.to(dtype),)
        return _ops.quantize(made, dtype, granularity, **form)

    # Compiled calls do not ask how many ranks there are, and have the same bits.
    at_once = granularity is None or name.endswith("reduce_scatter") or is_compiling()
    if at_once or _is_one_shot(a, operands[0], group_name, options):
        made = finish(call(name, a, *operands, group_name, bias, c, **options))
        return made if granularity is not None else made[0]
    peers = peers_of(group_name)
    first, rows = peers.rank * peers.share(a.shape[0]), a.shape[0]
    c = None if c is None else c[first : first + peers.own(rows)]
    scattered = name.replace("all_reduce", "reduce_scatter")
    q, scale = finish(call(scattered, a, *operands, group_name, bias, c, **options))
    moved = {"rows": rows, "transport": options.get("transport", "auto")}
    all_q = _ops.all_gather_rows(q.view(torch.uint8), group_name, **moved).view(dtype)
    all_scales = _ops.all_gather_rows(scale.contiguous(), group_name, **moved)
    return all_q, all_scales.t().contiguous().t() if form.get("scale_major") == "mn" else all_scales


def gate(activation: str, sums: Tensor) -> Tensor:
    """[rows, n] of [rows, 2 * n], in float32."""
    graph = GRAPHS[activation]
    halves = (sums[:, 0::2], sums[:, 1::2]) if activation in PAIRED else sums.chunk(2, 1)
    wanted = graph.outputs["d"][1]
    return evaluate(graph, [wanted], dict(zip(graph.sums, halves, strict=True)))[wanted]


def _default_dtype(a: Tensor) -> torch.dtype:
    return torch.bfloat16 if a.itemsize == 1 else a.dtype


def _is_one_shot(a: Tensor, b: Tensor, group_name: str, options: dict[str, Any]) -> bool:
    partial = options.get("partial_dtype") or _default_dtype(a)
    return _sums.is_one_shot(a.shape[0] * b.shape[1] * partial.itemsize, peers_of(group_name).size)


def _check(
    gates: str | None,
    granularity: str | None,
    form: dict[str, Any],
    dtype: torch.dtype | None,
    columns: int,
    c: Tensor | None,
    options: dict[str, Any],
) -> None:
    if gates is not None and columns % 2:
        raise ValueError(f"b has {columns} columns; {gates} joins two of them, so they must be even")
    if gates is not None and c is not None:
        raise ValueError(f"c is given, but activation is {gates}, to which nothing is added; leave c out")
    if granularity is None:
        if form:
            raise ValueError(f"{next(iter(form))} is given, but no scales are found; pass out_scale, or leave it out")
        if options.get("scale_d") is not None:
            raise ValueError(f"scale_d is given beside activation {gates}, whose result has none; pass out_scale")
        if dtype not in (torch.float16, torch.bfloat16, torch.float32):
            raise TypeError(
                f"out_dtype is {dtype} beside activation {gates}; it must be float16, bfloat16 or float32, or of 8 "
                "bits with out_scale"
            )
        return
    if granularity not in _BY_ROWS:
        raise ValueError(
            f"out_scale is {granularity!r}; it must be {' or '.join(map(repr, _BY_ROWS))}: a scale of more rows would "
            "depend on how they are dealt"
        )
    if options.get("scale_d") is not None:
        raise ValueError(
            f'scale_d is given beside out_scale="{granularity}", which finds scales; leave one of them out'
        )
    if dtype is None or dtype.itemsize != 1:
        raise TypeError(f'out_dtype is {dtype} beside out_scale="{granularity}"; pass torch.int8 or an 8-bit float')
