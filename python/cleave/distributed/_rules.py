"""What products over ranks ask of their arguments, before anything is enqueued."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .. import _core
from .._epilogue.activations import GATED
from ._fold import MOST_FOLDED
from ._peers import Peers

_PARTIALS = (torch.float16, torch.bfloat16, torch.float32)


def columns_of(b: Tensor, activation: str) -> Any:
    """The columns of a product with b."""
    return b.shape[1] // 2 if activation in GATED else b.shape[1]


def check_operands(a: Tensor, b: Tensor, scaled: bool, name: str) -> None:
    if a.dim() != 2 or b.dim() != 2:
        raise ValueError(f"a is {list(a.shape)} and b is {list(b.shape)}; {name} takes matrices: flatten a's batch")
    if a.shape[1] != b.shape[0]:
        raise ValueError(
            f"a is {list(a.shape)} and b is {list(b.shape)}; a's columns must be as many as b's rows, on each rank its "
            "own part of K"
        )
    if a.device != b.device:
        raise ValueError(f"a is on {a.device} and b on {b.device}; move one of them")
    if a.itemsize > 1 and a.dtype not in _PARTIALS:
        raise TypeError(f"a is {a.dtype}; it must be torch.float16, torch.bfloat16 or torch.float32: convert a and b")
    if (a.itemsize == 1) != scaled:
        instead = "use quantized operands, or the product without scales" if scaled else "use its scaled form"
        raise TypeError(f"a is {a.dtype}, which {name} does not take; {instead}")


def check_epilogue(a: Tensor, columns: int, bias: Tensor | None, activation: str) -> None:
    if activation not in _core.choices["activation"]:
        raise ValueError(f"activation is {activation!r}; it must be one of {', '.join(_core.choices['activation'])}")
    if activation in GATED and columns % 2:
        raise ValueError(f"b has {columns} columns; {activation} joins two of them, so they must be even")
    if bias is not None and bias.shape != (columns,):
        raise ValueError(f"bias is {list(bias.shape)}; it must be [{columns}], a value for each column of the sum")
    _check_device(a, bias=bias)


def check_sum(
    a: Tensor,
    order: str,
    exact: bool,
    dtype: torch.dtype,
    rows: int,
    columns: int,
    activation: str,
    **added: Tensor | None,
) -> None:
    """rows: of what this rank gets of the sum. exact: it is one of integers, which check_exact has seen."""
    if order == "k" and not exact:
        why = "scales of blocks make floats of its sums" if a.dtype == torch.int8 else "its sums are floats"
        raise ValueError(
            f"order is 'k', the bits of one GPU, but a is {a.dtype}: {why}, and where K is cut changes their bits, "
            "whatever adds them up (docs/determinism.md). int8 with one scale for all or one for each row has them. "
            "Use order='rank', which repeats its own bits"
        )
    if order not in ("rank", "k"):
        raise ValueError(f"order is {order!r}; it must be 'rank' or 'k'")
    if not exact and dtype not in _PARTIALS:
        raise TypeError(f"partial_dtype is {dtype}; it must be torch.float16, torch.bfloat16 or torch.float32")
    c = added["c"]
    if c is not None and activation in GATED:
        raise ValueError(f"c is given, but activation is {activation}, to which nothing is added; leave c out")
    if c is not None and c.shape != (rows, columns):
        raise ValueError(f"c is {list(c.shape)}; it must be [{rows}, {columns}], as this rank's part of the sum")
    _check_device(a, **added)


Scales = tuple[Tensor | None, Tensor | None]


def is_exact(a: Tensor, b: Tensor, scale_a: Tensor | None, scale_b: Tensor | None) -> bool:
    """Whether sums are integers, scaled when they are whole."""
    by_vectors = all(
        x is None or x.numel() in (1, count) for x, count in ((scale_a, a.shape[0]), (scale_b, b.shape[1]))
    )
    return a.dtype == torch.int8 and by_vectors


def check_exact(partial_dtype: torch.dtype | None, peers: Peers) -> None:
    if partial_dtype not in (None, torch.int32):
        raise TypeError(f"partial_dtype is {partial_dtype}; with order 'k' partial results are torch.int32: leave it")
    if peers.size > MOST_FOLDED:
        raise ValueError(
            f"order is 'k', and the group has {peers.size} ranks; integers of {MOST_FOLDED} are added up at most"
        )


def vector(scale: Tensor | None) -> Tensor | None:
    return None if scale is None else scale.reshape(-1)


def of_rows(scales: Scales, rows: slice) -> Scales:
    scale_a, scale_b = scales
    return scale_a if scale_a is None or scale_a.numel() == 1 else scale_a[rows], scale_b


def check_out(dtype: torch.dtype, scale_d: Tensor | None) -> None:
    if not dtype.is_floating_point and dtype != torch.int8:
        raise TypeError(f"out_dtype is {dtype}; a sum over ranks is a float, or of 8 bits with scale_d")
    if (dtype.itemsize == 1) != (scale_d is not None):
        missing = "is missing" if scale_d is None else "is given, which only 8-bit results have"
        raise ValueError(f"out_dtype is {dtype} and scale_d {missing}; give both or neither")
    if scale_d is not None and (scale_d.numel() != 1 or scale_d.dtype != torch.float32):
        raise ValueError(f"scale_d is {list(scale_d.shape)} of {scale_d.dtype}; it must be one float32")


def check_share(a: Tensor, rows: int, peers: Peers) -> None:
    own = peers.own(rows)
    if a.shape[0] != own:
        raise ValueError(
            f"a has {a.shape[0]} rows on rank {peers.rank}, where torch.chunk would deal {own} of {rows} over "
            f"{peers.size} ranks; give rows=, the sum over all ranks, and deal them so"
        )


def check_scale(a: Tensor, scale_a: Tensor | None) -> None:
    """That it can be gathered with a: for each of its rows, or for all."""
    if scale_a is not None and scale_a.numel() != 1 and (scale_a.dim() > 2 or scale_a.shape[0] != a.shape[0]):
        raise ValueError(f"scale_a is {list(scale_a.shape)}; it must have one element, or {a.shape[0]} rows as a has")


def _check_device(a: Tensor, **others: Tensor | None) -> None:
    for name, x in others.items():
        if x is not None and x.device != a.device:
            raise ValueError(f"{name} is on {x.device} and a on {a.device}; move one of them")
