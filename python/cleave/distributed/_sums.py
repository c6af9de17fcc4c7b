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
from ._peer_memory import PeerMemory, bytes_of
from ._peers import Peers, peers_of
from ._rows import first_rows, rows_of
from ._transports import Collectives, Multiply, carrier_for, fills_a_gpu, is_large, way_of


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
    unsplit = is_large(rows, size) and fills_a_gpu(share, columns)  # sums of all rows as those of a rank's
    large = unsplit and is_large(rows, size, 1 if scatter else 2)
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
    large: bool  # moved in parts while others are made
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
    at_once: Any  # what one call of the module does through memory that all see; None for more than a product and a sum

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
    ) -> Form:
        """Raises ValueError or TypeError for what no sum over ranks has. exact: it is one of integers."""
        rows, size = a.shape[0], peers.size
        share, own = peers.share(rows), peers.own(rows)
        partial = partial_of(a, partial_dtype, exact)
        _rules.check_epilogue(a, columns, bias, activation)
        _rules.check_sum(a, order, exact, partial, own if scatter else rows, columns, activation, c=c, scale_d=scale_d)
        if lines is None:  # else finished_sum has seen that
            _rules.check_out(out_dtype, scale_d)
        unsplit, large, one_shot = ways_of(rows, columns, partial, size, scatter)
        made = columns // 2 if activation in GATED else columns
        padded = rows if one_shot else size * share
        gathered = 0 if scatter or one_shot else share
        takes = bytes_of(((padded, columns), partial), ((gathered, made), out_dtype))
        call = (
            f"{peers.operation}(rows={rows}, columns={columns}, a={a.dtype}, partial_dtype={partial}, "
            f"out_dtype={out_dtype}, activation={activation}, bias={bias is not None}, c={c is not None}, "
            f"out_scale={lines})"
        )
        sizes = rows, columns, made, share, own, scatter, unsplit, large, one_shot, takes, call
        at_once = None
        if one_shot or (scatter and not large):
            first, added, most = (0, rows, rows) if one_shot else (peers.rank * share, own, share)
            in_strips = one_shot and a.is_cuda and a.itemsize > 1 and made == columns and lines is None
            in_strips = in_strips and is_inside(rows, columns, partial.itemsize, size)
            kinds = one_shot, in_strips, unsplit, exact, *split_k, partial, out_dtype, activation
            at_once = _core.SumForm(rows, columns, first, added, most, *kinds, call, *(lines or ()))
        operation = "reduce_scatter" if scatter else "all_reduce"
        by_nccl = not large and nccl_wins(operation, rows * columns * partial.itemsize, size)
        return cls(*sizes, activation, out_dtype, partial, transport, split_k, by_nccl, lines, at_once)

    def how(self) -> dict[str, Any]:
        """How K is split inside a GPU: alike in sums of all rows and of each rank's, and for all rows where that is
        asked of every product."""
        mode, slices = self.split_k
        if self.unsplit and mode == "auto" and not _core.batch_invariant():
            mode = "none"
        return {"split_k_mode": mode, "split_k_slices": slices}


def _sum(
    peers: Peers,
    form: Form,
    carrier: Collectives | PeerMemory,
    a: Tensor,
    multiply: Multiply,
    bias: Tensor | None,
    c: Tensor | None = None,
    scale_d: Tensor | None = None,
    *,
    fuses: bool,
    scales: _rules.Scales = (None, None),
) -> Tensor | tuple[Tensor, Tensor]:
    """fuses: whether `multiply` takes epilogue functions. scales: of all of K, of int32 partial results."""
    way = way_of(carrier, peers, form.call)
    rows, columns, activation, out_dtype = form.rows, form.columns, form.activation, form.out_dtype
    product = multiply, a, rows, columns, form.partial_dtype
    lines = form.lines
    found = None if lines is None else lines.made(a, rows if form.one_shot else form.own, form.made)
    use_ue8m0 = lines is not None and lines.use_ue8m0
    if form.one_shot:
        parts = way.everyones(*product)
        given = {"most_rows": rows, "pushed": True, "scales": scales, "scale_out": found, "use_ue8m0": use_ue8m0}
        made = fold(parts, out_dtype, bias, c, activation, scale_d, **given, **way.meeting)
        return made if found is None else (made, found)
    share, own, first = form.share, form.own, peers.rank * form.share
    fused = fuses and found is None and is_fused(a, peers.size, c, bias, activation, scale_d)
    whole = None if form.scatter else way.whole(a, rows, form.made, out_dtype, form.large, fused)
    made = a.new_empty(own, form.made, dtype=out_dtype) if whole is None else first_rows(whole.own, own)
    if whole is not None and c is not None:
        c = c[first : first + own]
    for part, parts in way.shares(*product, form.large, fused):
        added = None if c is None else c[part]
        rows_of_a = slice(first + part.start, first + part.stop)
        if parts[peers.rank] is None:
            places = [rows_of(x, part) for x in ((made,) if whole is None else (made, *whole.also))]
            epilogue = onto(parts, form.partial_dtype, added, bias, len(places) - 1)
            multiply(tuple(places) if len(places) > 1 else places[0], rows_of_a, epilogue)
        else:
            most = share if part.stop == own else part.stop - part.start
            given = {"out": rows_of(made, part), "most_rows": most, "scales": _rules.of_rows(scales, rows_of_a)}
            given |= {"scale_out": None if found is None else found[part], "use_ue8m0": use_ue8m0}
            fold(parts, out_dtype, bias, added, activation, scale_d, **given, **way.meeting)
        if whole is not None:
            whole.made(part)
    if found is not None:
        return made, found
    return made if whole is None else whole.all()


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
        if form.at_once is not None and type(carrier) is PeerMemory:
            if lines is None:
                carrier.know(peers, peers.forms.sums, form.at_once, (*given, asked, False))
            return _core.sum_over_ranks(carrier.places, form.at_once, a, b, None, None, bias, c, None, asked, False)

        def multiply(out: Tensor | None, rows: slice, epilogue: Any = None) -> Tensor:
            if out is None:
                out = a.new_empty(rows.stop - rows.start, form.columns, dtype=form.partial_dtype)
            how = form.how()
            if asked is not None:
                how["precision"] = asked
            if epilogue is not None:
                how["epilogue"] = epilogue
            return gemm(rows_of(a, rows), b, out=out, **how)

        return _sum(peers, form, carrier, a, multiply, bias, c, fuses=True)

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
            form = peers.forms[key] = Form.of(peers, a, b.shape[1], scatter, *added, *others)
        scales = (_rules.vector(scale_a), _rules.vector(scale_b)) if exact else (None, None)
        carrier = carrier_for(peers, a.device, form.transport, form.call, form.bytes, form.nccl_wins)
        if form.at_once is not None and type(carrier) is PeerMemory:
            if not exact and lines is None:
                carrier.know(peers, peers.forms.sums, form.at_once, (*given, None, use_fast_accum))
            operands = a, b, *(scales if exact else (scale_a, scale_b)), bias, c, scale_d, None, use_fast_accum
            return _core.sum_over_ranks(carrier.places, form.at_once, *operands)
        by_row = scale_a is not None and scale_a.dim() == 2 and scale_a.shape[0] == a.shape[0]

        def multiply(out: Tensor | None, rows: slice, epilogue: Any = None) -> Tensor:
            if out is None:
                out = a.new_empty(rows.stop - rows.start, form.columns, dtype=form.partial_dtype)
            scale = rows_of(scale_a, rows) if by_row else scale_a
            of_product = (None, None) if exact else (scale, scale_b)
            options = {"use_fast_accum": use_fast_accum, "epilogue": epilogue, "out": out}
            return scaled_gemm(rows_of(a, rows), b, *of_product, **options, **form.how())

        return _sum(peers, form, carrier, a, multiply, bias, c, scale_d, fuses=not exact, scales=scales)

    return implementation


def of_rows(name: str, scatter: bool) -> Callable[..., Tensor]:
    """Sums what each rank has already: for products that have no operator over ranks of their own."""

    def implementation(x: Tensor, group_name: str, bias: Tensor | None = None, *, transport: str = "auto") -> Tensor:
        x = x.contiguous()
        peers = peers_of(group_name, name)
        key = _core.kinds_of(x, bias), transport
        form = peers.forms.get(key)
        if form is None:
            added = bias, None, None, x.dtype
            form = peers.forms[key] = Form.of(peers, x, x.shape[1], scatter, *added, "none", None, "rank", transport)

        def made_before(out: Tensor | None, rows: slice) -> Tensor:
            return x[rows] if out is None else out.copy_(rows_of(x, rows))

        carrier = carrier_for(peers, x.device, form.transport, form.call, form.bytes, form.nccl_wins)
        return _sum(peers, form, carrier, x, made_before, bias, fuses=False)

    return implementation
