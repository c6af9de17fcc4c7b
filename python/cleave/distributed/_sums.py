"""Sums over ranks of their products: what all ranks do. The plain form has no scales, the scaled one no gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import _core, gemm, scaled_gemm
from .._cost_over_ranks import is_one_shot, nccl_wins
from .._epilogue.activations import GATED
from .._torch_precision import precision
from ..torch._operators.fake import default_dtype
from . import _agreement, _rules
from ._fold import fold, is_fused, is_inside, onto
from ._peer_memory import PeerMemory
from ._peers import Peers, peers_of
from ._rows import first_rows
from ._transports import Collectives, carrier_for, fills_a_gpu, is_large, rows_of_parts


class Lines(NamedTuple):
    """Scales of D's that are found, for each 128 columns: "k" or "mn" as they lie, and whether they are powers of
    two."""

    major: str = "k"
    use_ue8m0: bool = False

    def made(self, like: Tensor, rows: int, columns: int) -> Tensor:
        shape = rows, -(-columns // 128)
        if self.major == "k":
            return like.new_empty(shape, dtype=torch.float32)
        return like.new_empty(shape[::-1], dtype=torch.float32).t()


def partial_of(a: Tensor, asked: torch.dtype | None, exact: bool) -> torch.dtype:
    """What each rank's product is rounded to."""
    return torch.int32 if exact else asked or (torch.bfloat16 if a.itemsize == 1 else a.dtype)


def ways_of(rows: int, columns: int, partial: torch.dtype, size: int, scatter: bool) -> tuple[bool, bool, bool]:
    """Whether its products are not split along K, are moved in parts while others are made, and all ranks sum all."""
    share = (rows + size - 1) // size
    # Sums of all rows are split as those of a rank's.
    unsplit = is_large("reduce_scatter", rows, size) and fills_a_gpu(share, columns)
    large = unsplit and (scatter or is_large("all_reduce", rows, size))
    return unsplit, large, not scatter and not large and is_one_shot(rows * columns * partial.itemsize, size)


class Form(NamedTuple):
    """What follows from a sum's sizes, dtypes and options, which are checked once: the same on all ranks but for
    `own`."""

    rows: int
    columns: int  # of the product
    made: int  # and of the result
    share: int  # of the rows, a rank's
    own: int  # this rank's
    scatter: bool
    unsplit: bool  # its products are not split along K
    one_shot: bool  # all ranks sum all
    bytes: int  # of each rank's memory
    call: str  # how ranks name it to each other
    activation: str
    out_dtype: torch.dtype
    partial_dtype: torch.dtype
    transport: str
    split_k: tuple[str, int | None]  # mode and slices of this rank's product
    nccl_wins: bool
    lines: Lines | None
    by_memory: Any  # what one call of the module does through memory that all see

    @classmethod
    def of(
        cls,
        peers: Peers,
        a: Tensor,
        columns: int,
        scatter: bool,
        bias: Tensor | None,
        c: Tensor | None,
        scale_d: Tensor | None,
        out_dtype: torch.dtype,
        activation: str,
        partial_dtype: torch.dtype | None,
        order: str,
        transport: str,
        split_k: tuple[str, int | None] = ("auto", None),
        exact: bool = False,
        lines: Lines | None = None,
        multiplied: bool = True,
        is_cut: bool = True,
    ) -> Form:
        """Raises ValueError or TypeError for what no sum over ranks has. exact: it is one of integers. multiplied: of
        products, which this rank has yet to make. is_cut: operands have rows, so that a large one moves in parts."""
        rows, size = a.shape[0], peers.size
        share, own = peers.share(rows), peers.own(rows)
        partial = partial_of(a, partial_dtype, exact)
        _rules.check_epilogue(a, columns, bias, activation)
        _rules.check_sum(a, order, exact, partial, own if scatter else rows, columns, activation, c=c, scale_d=scale_d)
        if lines is None:  # else finished_sum has seen that
            _rules.check_out(out_dtype, scale_d)
        unsplit, large, one_shot = ways_of(rows, columns, partial, size, scatter)
        large = large and is_cut
        made = columns // 2 if activation in GATED else columns
        gathered = not scatter and not one_shot
        call = (
            f"{peers.operation}(rows={rows}, columns={columns}, a={a.dtype}, partial_dtype={partial}, "
            f"out_dtype={out_dtype}, activation={activation}, bias={bias is not None}, c={c is not None}, "
            f"out_scale={lines})"
        )
        first, added, most = (0, rows, rows) if one_shot else (peers.rank * share, own, share)
        in_strips = one_shot and a.is_cuda and a.itemsize > 1 and made == columns and lines is None
        in_strips = in_strips and multiplied and is_inside(rows, columns, partial.itemsize, size)
        kinds = one_shot, in_strips, unsplit, exact, *split_k, partial, out_dtype, activation
        moved = {"gathered": gathered, "part": rows_of_parts(share) if large else 0}
        if large and multiplied and not exact and lines is None and is_fused(a, size, c, bias, activation, scale_d):
            moved["onto"] = onto(peers.rank, size, partial, c is not None, bias is not None, int(gathered)).text
        if lines is not None:
            moved |= {"lines_of_scales": lines.major, "use_ue8m0": lines.use_ue8m0}
        by_memory = _core.SumForm(rows, columns, first, added, most, *kinds, call, **moved)
        operation = "reduce_scatter" if scatter else "all_reduce"
        by_nccl = not large and nccl_wins(operation, rows * columns * partial.itemsize, size)
        sizes = rows, columns, made, share, own, scatter, unsplit, one_shot, by_memory.bytes(size), call
        return cls(*sizes, activation, out_dtype, partial, transport, split_k, by_nccl, lines, by_memory)

    def how(self) -> dict[str, Any]:
        """How K is split inside a GPU: alike in sums of all rows and of each rank's, and for all rows where that is
        asked of every product."""
        mode, slices = self.split_k
        if self.unsplit and mode == "auto" and not _core.batch_invariant():
            mode = "none"
        return {"split_k_mode": mode, "split_k_slices": slices}


def _by_collectives(
    peers: Peers,
    form: Form,
    carrier: Collectives,
    a: Tensor,
    multiply: Callable[[Tensor], Any] | None,
    bias: Tensor | None,
    c: Tensor | None = None,
    scale_d: Tensor | None = None,
    scales: _rules.Scales = (None, None),
) -> Tensor | tuple[Tensor, Tensor]:
    """multiply: writes this rank's partial results, which are `a` without. scales: of all of K, of int32 ones."""
    rows, own, first = form.rows, form.own, peers.rank * form.share
    padded = rows if form.one_shot else peers.size * form.share
    if multiply is None and padded == rows:
        product = a
    else:
        product = a.new_empty(padded, form.columns, dtype=form.partial_dtype)
        mine = first_rows(product, rows)
        mine.copy_(a) if multiply is None else multiply(mine)
    summed = rows if form.one_shot else own
    found = None if form.lines is None else form.lines.made(a, summed, form.made)
    given: dict[str, Any] = {"scales": scales, "scale_out": found}
    given["use_ue8m0"] = form.lines is not None and form.lines.use_ue8m0
    if form.one_shot:
        made = fold(carrier.everyones(product), form.out_dtype, bias, c, form.activation, scale_d, **given)
        return made if found is None else (made, found)
    if not form.scatter and c is not None:
        c = c[first : first + own]
    given["scales"] = _rules.of_rows(scales, slice(first, first + own))
    made = a.new_empty(own if form.scatter else form.share, form.made, dtype=form.out_dtype)
    parts = [first_rows(part, own) for part in carrier.everyones_rows(product)]
    fold(parts, form.out_dtype, bias, c, form.activation, scale_d, out=first_rows(made, own), **given)
    if not form.scatter:
        made = first_rows(carrier.gathered(made), rows)
    return made if found is None else (made, found)


def of_products(name: str, scatter: bool) -> Callable[..., Any]:
    def implementation(
        a: Tensor,
        b: Tensor,
        group_name: str,
        bias: Tensor | None = None,
        c: Tensor | None = None,
        *,
        activation: str = "none",
        out_dtype: torch.dtype | None = None,
        partial_dtype: torch.dtype | None = None,
        order: str = "rank",
        transport: str = "auto",
        split_k_mode: str = "auto",
        split_k_slices: int | None = None,
        lines: Lines | None = None,
    ) -> Any:
        peers = peers_of(group_name, name)
        asked = precision() if a.itemsize == 4 else None  # float32 is multiplied as torch says
        options = activation, out_dtype, partial_dtype, order, transport, split_k_mode, split_k_slices
        given = a, b, None, None, bias, c, None, *options
        if not _agreement.is_checked() and (made := peers.forms.sums.run(*given, asked, False)) is not None:
            return made
        key = _core.kinds_of(a, b, bias, c), *options, lines
        form = peers.forms.get(key)
        if form is None:
            _rules.check_operands(a, b, False, name)
            added = bias, c, None, out_dtype or default_dtype(a), activation, partial_dtype, order, transport
            split_k = split_k_mode, split_k_slices
            form = peers.forms[key] = Form.of(peers, a, b.shape[1], scatter, *added, split_k, lines=lines)
        carrier = carrier_for(peers, a.device, form.transport, form.call, form.bytes, form.nccl_wins)
        if type(carrier) is PeerMemory:
            if lines is None:
                carrier.know(peers, peers.forms.sums, form.by_memory, (*given, asked, False))
            return _core.sum_over_ranks(carrier.places, form.by_memory, a, b, None, None, bias, c, None, asked, False)
        options = form.how() if asked is None else form.how() | {"precision": asked}
        return _by_collectives(peers, form, carrier, a, lambda out: gemm(a, b, out=out, **options), bias, c)

    return implementation


def of_scaled_products(name: str, scatter: bool) -> Callable[..., Any]:
    def implementation(
        a: Tensor,
        b: Tensor,
        scale_a: Tensor | None,
        scale_b: Tensor | None,
        group_name: str,
        bias: Tensor | None = None,
        c: Tensor | None = None,
        scale_d: Tensor | None = None,
        use_fast_accum: bool = False,
        *,
        activation: str = "none",
        out_dtype: torch.dtype | None = None,
        partial_dtype: torch.dtype | None = None,
        order: str = "rank",
        transport: str = "auto",
        split_k_mode: str = "auto",
        split_k_slices: int | None = None,
        lines: Lines | None = None,
    ) -> Any:
        peers = peers_of(group_name, name)
        options = activation, out_dtype, partial_dtype, order, transport, split_k_mode, split_k_slices
        given = a, b, scale_a, scale_b, bias, c, scale_d, *options
        if not _agreement.is_checked() and (made := peers.forms.sums.run(*given, None, use_fast_accum)) is not None:
            return made
        tensors = _core.kinds_of(a, b, scale_a, scale_b, bias, c, scale_d)
        key = tensors, *options, lines
        exact = order == "k" and _rules.is_exact(a, b, scale_a, scale_b)
        form = peers.forms.get(key)
        if form is None:
            _rules.check_operands(a, b, True, name)
            if exact:
                _rules.check_exact(partial_dtype, peers)
            added = bias, c, scale_d, out_dtype or torch.bfloat16
            others = activation, partial_dtype, order, transport, (split_k_mode, split_k_slices), exact, lines
            by_block = scale_a is not None and scale_a.dim() == 2 and scale_a.shape[0] not in (1, a.shape[0])
            form = peers.forms[key] = Form.of(peers, a, b.shape[1], scatter, *added, *others, is_cut=not by_block)
        scales = (_rules.vector(scale_a), _rules.vector(scale_b)) if exact else (None, None)
        carrier = carrier_for(peers, a.device, form.transport, form.call, form.bytes, form.nccl_wins)
        if type(carrier) is PeerMemory:
            if not exact and lines is None:
                carrier.know(peers, peers.forms.sums, form.by_memory, (*given, None, use_fast_accum))
            operands = a, b, *(scales if exact else (scale_a, scale_b)), bias, c, scale_d, None, use_fast_accum
            return _core.sum_over_ranks(carrier.places, form.by_memory, *operands)

        def multiply(out: Tensor) -> None:
            of_product = (None, None) if exact else (scale_a, scale_b)
            scaled_gemm(a, b, *of_product, use_fast_accum=use_fast_accum, out=out, **form.how())

        return _by_collectives(peers, form, carrier, a, multiply, bias, c, scale_d, scales)

    return implementation


def of_rows(name: str, scatter: bool) -> Callable[..., Tensor]:
    """Sums what each rank has already: for products that have no operator over ranks of their own."""

    def implementation(x: Tensor, group_name: str, bias: Tensor | None = None, *, transport: str = "auto") -> Tensor:
        x = x.contiguous()
        peers = peers_of(group_name, name)
        key = _core.kinds_of(x, bias), transport
        form = peers.forms.get(key)
        if form is None:
            added = bias, None, None, x.dtype, "none", None, "rank", transport
            form = peers.forms[key] = Form.of(peers, x, x.shape[1], scatter, *added, multiplied=False)
        carrier = carrier_for(peers, x.device, form.transport, form.call, form.bytes, form.nccl_wins)
        if type(carrier) is PeerMemory:
            operands = x, None, None, None, bias, None, None, None, False
            return _core.sum_over_ranks(carrier.places, form.by_memory, *operands)
        return _by_collectives(peers, form, carrier, x, None, bias)

    return implementation
