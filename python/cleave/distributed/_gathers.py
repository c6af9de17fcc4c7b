"""Products of rows that are gathered from all ranks: what all ranks do."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import _core, gemm, scaled_gemm
from .._cost_over_ranks import nccl_wins
from .._torch_precision import precision
from ..torch._operators.fake import default_dtype
from . import _agreement, _rules
from ._peer_memory import PeerMemory, bytes_of
from ._peers import Peers, peers_of
from ._rows import first_rows
from ._transports import (
    Collectives,
    carrier_for,
    comes_at_once,
    is_large,
    is_multiplied_by_rank,
    rows_of_parts,
    way_of,
)


class Form(NamedTuple):
    """What follows from the sizes, dtypes and options of what is gathered, which are checked once: the same on all
    ranks but for what follows from the product's columns."""

    rows: int
    unsplit: bool  # the product is not split along K
    bytes: int  # of each rank's memory
    call: str  # how ranks name it to each other
    nccl_wins: bool
    by_memory: Any  # what one call of the module does through memory that all see; None without a product

    @classmethod
    def of(
        cls,
        peers: Peers,
        rows: int | None,
        columns: int,
        *parts: Tensor,
        out_dtype: torch.dtype | None = None,
        activation: str = "none",
    ) -> Form:
        """columns, out_dtype, activation: of the product; 0: there is none."""
        rows = peers.size * parts[0].shape[0] if rows is None else rows
        _rules.check_share(parts[0], rows, peers)
        large, share = is_large("all_gather", rows, peers.size), peers.share(rows)
        unsplit = large and is_multiplied_by_rank(share, columns)
        said = ", ".join(f"{list(x.shape[1:])} of {x.dtype}" for x in parts)
        call = f"{peers.operation}(rows={rows}, {said})"
        moved = {"part": rows_of_parts(share) if large else 0, "by_rank": unsplit}
        moved["awaits_all"] = large and comes_at_once(columns, peers.size)
        if columns > 0:
            by_memory = _core.GatherForm(rows, share, out_dtype, activation, call, **moved)
            takes = sum(by_memory.bytes(peers.size, prod(x.shape[1:]) * x.itemsize) for x in parts)
        else:
            by_memory, takes = None, bytes_of(*(((share, *x.shape[1:]), x.dtype) for x in parts))
        bytes = sum(rows * prod(x.shape[1:]) * x.itemsize for x in parts)
        by_nccl = not large and nccl_wins("all_gather", bytes, peers.size)
        return cls(rows, unsplit, takes, call, by_nccl, by_memory)

    def how(self) -> dict[str, Any]:
        """How K is split inside a GPU: alike for all rows where that is asked of every product."""
        return {"split_k_mode": "none"} if self.unsplit and not _core.batch_invariant() else {}


def _kept_rows(gathered: Tensor | None, a: Tensor, rows: int | None, peers: Peers) -> Tensor:
    """What an operator returns beside the product: nobody looks at it where nothing was kept."""
    return a if gathered is None else first_rows(gathered, peers.size * a.shape[0] if rows is None else rows)


def _gather(peers: Peers, form: Form, carrier: Collectives | PeerMemory, *parts: Tensor) -> list[Tensor]:
    way = way_of(carrier, peers, form.call)
    return way.gather_rows(*parts, rows=form.rows)


def all_gather_gemm(
    a: Tensor,
    b: Tensor,
    group_name: str,
    bias: Tensor | None = None,
    *,
    rows: int | None = None,
    activation: str = "none",
    out_dtype: torch.dtype | None = None,
    save_gathered: bool = True,
    transport: str = "auto",
    kept: bool = True,
) -> tuple[Tensor, Tensor]:
    """kept: whether anybody looks at the gathered a, which is of no use without; the operator always says so."""
    peers = peers_of(group_name, "all_gather_gemm")
    asked = precision() if a.itemsize == 4 else None  # float32 is multiplied as torch says
    given = a, b, None, None, bias, rows, activation, out_dtype, transport, asked, False
    if not _agreement.is_checked() and (made := peers.forms.gathers.run(*given, kept)) is not None:
        return made[0], _kept_rows(made[1], a, rows, peers)
    out_dtype = out_dtype or a.dtype
    key = _core.kinds_of(a, b, bias), rows, activation, out_dtype
    form = peers.forms.get(key)
    if form is None:
        _rules.check_operands(a, b, False, "all_gather_gemm")
        _rules.check_epilogue(a, b.shape[1], bias, activation)
        _rules.check_out(out_dtype, None)
        form = peers.forms[key] = Form.of(peers, rows, b.shape[1], a, out_dtype=out_dtype, activation=activation)
    carrier = carrier_for(peers, a.device, transport, form.call, form.bytes, form.nccl_wins)
    if form.by_memory is not None and type(carrier) is PeerMemory:
        if a.is_contiguous():
            carrier.know(peers, peers.forms.gathers, form.by_memory, given)
        operands = a.contiguous(), b, None, None, bias, asked, False, kept
        out, gathered = _core.gather_over_ranks(carrier.places, form.by_memory, *operands)
        return out, _kept_rows(gathered, a, rows, peers)
    options = {"bias": bias, "activation": activation, "out_dtype": out_dtype} | form.how()
    if asked is not None:
        options["precision"] = asked
    (gathered,) = _gather(peers, form, carrier, a)
    return gemm(gathered, b, **options), gathered


def all_gather_scaled_gemm(
    a: Tensor,
    b: Tensor,
    scale_a: Tensor | None,
    scale_b: Tensor | None,
    group_name: str,
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
    *,
    rows: int | None = None,
    activation: str = "none",
    transport: str = "auto",
) -> Tensor:
    peers = peers_of(group_name, "all_gather_scaled_gemm")
    given = a, b, scale_a, scale_b, bias, rows, activation, out_dtype, transport, None, use_fast_accum
    if not _agreement.is_checked() and (made := peers.forms.gathers.run(*given, False)) is not None:
        return made[0]
    out_dtype = out_dtype or default_dtype(a, scale_a)
    by_row = []
    if scale_a is not None:
        _rules.check_scale(a, scale_a)
        scale_a = scale_a.reshape(1, 1).repeat(a.shape[0], 1) if scale_a.numel() == 1 else scale_a
        by_row = [scale_a.view(a.shape[0], -1)]
    key = _core.kinds_of(a, b, bias, *by_row), rows, activation, out_dtype
    form = peers.forms.get(key)
    if form is None:
        _rules.check_operands(a, b, True, peers.operation)
        _rules.check_epilogue(a, b.shape[1], bias, activation)
        if out_dtype != torch.int32:  # which exact sums of int8 are
            _rules.check_out(out_dtype, None)
        kinds = {"out_dtype": out_dtype, "activation": activation}
        form = peers.forms[key] = Form.of(peers, rows, b.shape[1], a, *by_row, **kinds)
    carrier = carrier_for(peers, a.device, transport, form.call, form.bytes, form.nccl_wins)
    if form.by_memory is not None and type(carrier) is PeerMemory:
        sent = [x.contiguous() for x in (a, *by_row)]
        if sent[0] is a and (not by_row or (scale_a is given[2] and scale_a.dim() == 2 and scale_a.is_contiguous())):
            carrier.know(peers, peers.forms.gathers, form.by_memory, given)
        operands = sent[0], b, sent[1] if by_row else None, scale_b, bias, None, use_fast_accum, False
        return _core.gather_over_ranks(carrier.places, form.by_memory, *operands)[0]
    options = {"use_fast_accum": use_fast_accum, "activation": activation, "bias": bias, "out_dtype": out_dtype}
    gathered = _gather(peers, form, carrier, a, *by_row)
    x, scale = gathered if by_row else (*gathered, None)
    return scaled_gemm(x, b, scale, scale_b, **options, **form.how())


def all_gather_rows(x: Tensor, group_name: str, *, rows: int | None = None, transport: str = "auto") -> Tensor:
    peers = peers_of(group_name, "all_gather_rows")
    key = _core.kinds_of(x), rows
    form = peers.forms.get(key)
    if form is None:
        form = peers.forms[key] = Form.of(peers, rows, 0, x)
    return _gather(peers, form, carrier_for(peers, x.device, transport, form.call, form.bytes, form.nccl_wins), x)[0]
