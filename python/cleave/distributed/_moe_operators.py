"""torch.ops.cleave.moe_route_ranks, moe_send_rows and moe_return_rows: rows go to their experts' ranks, and back.

The latter two are each other's gradients but for a token's copies, whose gradients are added in the order of its slots.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import _agreement, _places
from ._collectives import collective_of, exchange
from ._peers import Peers, peers_of

_ops = torch.ops.cleave

_ROUTE = "Tensor slots, Tensor places, Tensor sources, Tensor arrivals, Tensor sizes"
SCHEMAS = {
    "moe_route_ranks": (
        "(Tensor expert_ids, SymInt num_experts, str group_name, *, SymInt? capacity=None, bool exact=False, "
        'str transport="auto") -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)'
    ),
    "moe_send_rows": f'(Tensor x, {_ROUTE}, str group_name, *, bool sorted=False, str transport="auto") -> Tensor',
    "moe_return_rows": f'(Tensor rows, {_ROUTE}, str group_name, *, str transport="auto") -> Tensor',
}


def _route_ranks(
    expert_ids: Tensor,
    num_experts: int,
    group_name: str,
    *,
    capacity: int | None = None,
    exact: bool = False,
    transport: str = "auto",
) -> tuple[Tensor, ...]:
    """offs, dropped, slots, places, sources, arrivals, sizes: as `Route` has them."""
    peers, device = peers_of(group_name, "moe_dispatch"), expert_ids.device
    _check(expert_ids, num_experts, peers, capacity, exact)
    transport = collective_of(peers, device, transport)
    if not exact:
        capacity = _capacity(expert_ids, num_experts // peers.size, capacity)
    if _agreement.is_checked():
        call = f"moe_dispatch(num_experts={num_experts}, {'exact' if exact else f'capacity={capacity}'})"
        _agreement.check(call, peers, device)
    sent = _places.sent(*_ops.moe_sort_tokens(expert_ids, num_experts), peers.size, capacity)
    ends = exchange(sent.ends, peers, transport)
    if exact:
        sizes = torch.stack([sent.ends[:, -1], ends[:, -1]]).cpu()
        experts = _places.experts_of_rows(ends, int(sizes[1].sum()))
    else:
        sizes = torch.empty(0, dtype=torch.int32)
        experts = _places.experts_of_parts(ends, capacity)
    offs, arrivals = _ops.moe_sort_tokens(experts, num_experts // peers.size)
    return offs, sent.dropped, sent.slots, sent.places, sent.sources, arrivals, sizes


def _check(expert_ids: Tensor, num_experts: int, peers: Peers, capacity: int | None, exact: bool) -> None:
    if expert_ids.dim() != 2:
        raise ValueError(f"expert_ids is {list(expert_ids.shape)}; it must be [tokens, top_k]")
    if num_experts % peers.size != 0:
        raise ValueError(
            f"num_experts is {num_experts} over {peers.size} ranks; all must have as many experts: add some that no "
            "token chooses, or use a group of fewer ranks"
        )
    if capacity is not None and (exact or capacity < 1):
        why = "is given with exact=True, which has room for all rows; leave one out" if exact else "must be 1 or more"
        raise ValueError(f"capacity is {capacity}; it {why}")
    if exact and expert_ids.is_cuda and torch.cuda.is_current_stream_capturing():
        raise RuntimeError(
            "exact is True, but the host may not read sizes while a CUDA graph is captured; use exact=False, whose "
            "sizes are on the device alone"
        )


def _capacity(expert_ids: Tensor, experts: Any, capacity: Any) -> Any:
    """Places for each rank's rows; without one that is given, enough for any choice of different experts."""
    tokens, top_k = expert_ids.shape
    return tokens * min(top_k, experts) if capacity is None else capacity


def _send_rows(
    x: Tensor,
    slots: Tensor,
    places: Tensor,
    sources: Tensor,
    arrivals: Tensor,
    sizes: Tensor,
    group_name: str,
    *,
    sorted: bool = False,
    transport: str = "auto",
) -> Tensor:
    """x: tokens, each of which has as many slots, or the sorted rows. Rows by expert, those of its ranks in their
    order, zeros after the last."""
    peers = peers_of(group_name, "moe_send_rows")
    if not sorted and x.shape[0] > 0:
        top_k = slots.shape[0] // x.shape[0]
        sources = slots[sources].clamp_(min=0).div_(top_k, rounding_mode="floor")  # for dropped ones any token
    if sizes.numel() > 0:
        sources = sources[: int(sizes[0].sum())]
    sending = x.index_select(0, sources) if x.shape[0] > 0 else x.new_zeros(sources.shape[0], *x.shape[1:])
    received = exchange(sending, peers, collective_of(peers, x.device, transport), _uneven(sizes, False))
    return _ops.moe_gather(received, arrivals)


def _return_rows(
    rows: Tensor,
    slots: Tensor,
    places: Tensor,
    sources: Tensor,
    arrivals: Tensor,
    sizes: Tensor,
    group_name: str,
    *,
    transport: str = "auto",
) -> Tensor:
    """The sorted rows; of dropped ones anything."""
    peers = peers_of(group_name, "moe_return_rows")
    leaving = _ops.moe_unpermute(rows, arrivals, None, 1)
    received = exchange(leaving, peers, collective_of(peers, rows.device, transport), _uneven(sizes, True))
    if sizes.numel() == 0:
        return received.index_select(0, places)
    returned = rows.new_zeros(places.shape[0], rows.shape[1])
    returned[: received.shape[0]] = received
    return returned


def _uneven(sizes: Tensor, back: bool) -> tuple[list[int], list[int]] | None:
    if sizes.numel() == 0:
        return None
    sent, received = sizes.tolist()
    return (received, sent) if back else (sent, received)


IMPLEMENTATIONS = {"moe_route_ranks": _route_ranks, "moe_send_rows": _send_rows, "moe_return_rows": _return_rows}


# Shapes, for torch.compile, meta tensors and export.


def _fake_route(
    expert_ids: Tensor,
    num_experts: Any,
    group_name: str,
    *,
    capacity: Any = None,
    exact: bool = False,
    transport: str = "auto",
) -> tuple[Tensor, ...]:
    peers, slots = peers_of(group_name), expert_ids.numel()
    _check(expert_ids, num_experts, peers, capacity, exact)
    experts = num_experts // peers.size
    if exact:
        places, received, sizes = slots, torch.library.get_ctx().new_dynamic_size(), (2, peers.size)
    else:
        places = received = peers.size * _capacity(expert_ids, experts, capacity)
        sizes = (0,)
    lengths = experts, 1, slots, slots, places, received
    made = [expert_ids.new_empty(length, dtype=torch.int32) for length in lengths]
    return *made, torch.empty(sizes, dtype=torch.int32, device="cpu")


def _fake_send(x: Tensor, slots: Tensor, places: Tensor, sources: Tensor, arrivals: Tensor, *_: Any, **__: Any) -> Any:
    return x.new_empty(arrivals.shape[0], *x.shape[1:])


def _fake_return(rows: Tensor, slots: Tensor, *_: Any, **__: Any) -> Tensor:
    return rows.new_empty(slots.shape[0], rows.shape[1])


FAKES = {"moe_route_ranks": _fake_route, "moe_send_rows": _fake_send, "moe_return_rows": _fake_return}


# Gradients.


def _save(ctx: Any, inputs: tuple[Any, ...], keyword_only_inputs: dict[str, Any], output: Tensor) -> None:
    x, *route, ctx.group_name = inputs
    ctx.tokens, ctx.transport = x.shape[0], keyword_only_inputs["transport"]
    ctx.copies = not keyword_only_inputs.get("sorted", True)
    ctx.save_for_backward(*route)


def _send_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    slots, *_ = route = ctx.saved_tensors
    returned = _ops.moe_return_rows(grad.contiguous(), *route, ctx.group_name, transport=ctx.transport)
    if ctx.copies:
        top_k = slots.shape[0] // ctx.tokens if ctx.tokens else 1
        returned = _ops.moe_unpermute(returned, slots, None, top_k)
    return returned, *[None] * 6


def _return_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    route, options = ctx.saved_tensors, {"sorted": True, "transport": ctx.transport}
    return _ops.moe_send_rows(grad.contiguous(), *route, ctx.group_name, **options), *[None] * 6


GRADIENTS = {"moe_send_rows": (_save, _send_backward), "moe_return_rows": (_save, _return_backward)}
