"""Expert parallelism: tokens go to the ranks that have their experts, and the experts' rows come back."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..torch.dispatch import Arrived, permuted
from . import _expert_rows
from ._direct import call, is_watched
from ._peers import name_of, peers_of

_ops = torch.ops.cleave


class Route(NamedTuple):
    """The ways of all rows of a `moe_dispatch`, for `moe_combine`: int32 tensors, so that they can be kept for a
    backward pass, and captured. Slot s is choice s % top_k of token s // top_k; sorted rows are slots by expert.

    slots: [tokens * top_k], of each sorted row its slot; ~slot of one that is dropped.
    places: [tokens * top_k], where each sorted row is sent from.
    sources: which sorted row each place sends.
    arrivals: of each row at its expert where it arrived; ~ of that where nothing did.
    sizes: on the host; [2, ranks], the rows sent to and received from each, or nothing where all have the capacity's.
    """

    slots: Tensor
    places: Tensor
    sources: Tensor
    arrivals: Tensor
    sizes: Tensor


class Dispatched(NamedTuple):
    """rows: [rows, features] for this rank's experts: expert by expert, of each those of rank 0 first, in the order of
    its tokens: the rows, and the order, of one process that has all tokens. Past the last expert's end are zeros.
    offs: int32 [experts of this rank], where each one's rows end.
    scale: [rows, n], what went with them, or None.
    route: for `moe_combine`.
    dropped: int32 [1], how many of this rank's choices did not fit into the capacity.
    """

    rows: Tensor
    offs: Tensor
    scale: Tensor | None
    route: Route
    dropped: Tensor


def moe_dispatch(
    x: Tensor,
    expert_ids: Tensor,
    num_experts: int,
    group: Any = None,
    *,
    scale: Tensor | None = None,
    capacity: int | None = None,
    exact: bool = False,
    transport: str = "auto",
) -> Dispatched:
    """Sends each token to the ranks of the experts that it chose, once for each.

    Rank r has experts r * num_experts / ranks and following. Where rows lie follows from the ids alone, so results are
    repeatable bit by bit. x has gradients: the sum of its copies', in the order of its choices and in float32.

    Args:
        x: [tokens, features] of this rank, of any dtype; 8 bits have no gradients.
        expert_ids: [tokens, top_k], int32 or int64; those that are negative or num_experts and more are dropped.
        num_experts: of all ranks, a multiple of their number.
        group, transport: as in `gemm_all_reduce`.
        scale: [tokens, n], sent with x: the scales of quantised tokens.
        capacity: how many rows a rank sends to each at most, the same on all ranks. None: tokens * min(top_k, experts
            of a rank), enough for tokens that choose no expert twice; all ranks have as many tokens then. Where
            not all fit, the last experts' last tokens are dropped, and counted.
        exact: sends as many rows as there are, which the host waits to read. Else as many as there is capacity for:
            nothing waits, and a CUDA graph can capture it.

    Returns:
        What `Dispatched` says; [ranks * capacity, features] rows where they are not exact.

    Raises:
        RuntimeError: there is no process group, or exact=True in a capture.
        PeerError: as `gemm_all_reduce`.
        ValueError, TypeError: other arguments, before anything is enqueued on this rank.
    """
    name = name_of(group, "moe_dispatch")
    if x.dim() != 2 or expert_ids.dim() != 2 or x.shape[0] != expert_ids.shape[0]:
        raise ValueError(
            f"x is {list(x.shape)} and expert_ids is {list(expert_ids.shape)}; they must be [tokens, features] and "
            "[tokens, top_k]"
        )
    if scale is not None and (scale.dim() != 2 or scale.shape[0] != x.shape[0]):
        raise ValueError(f"scale is {list(scale.shape)}, but x has {x.shape[0]} tokens; it must be [tokens, n]")
    options = {"capacity": capacity, "exact": exact, "transport": transport}
    offs, dropped, *ways = _ops.moe_route_ranks(expert_ids, num_experts, name, **options)
    rows = _ops.moe_send_rows(x, *ways, name, transport=transport)
    if scale is not None:
        scale = _ops.moe_send_rows(scale, *ways, name, transport=transport)
    return Dispatched(rows, offs, scale, Route(*ways), dropped)


def moe_combine(
    rows: Tensor,
    route: Route,
    weights: Tensor | None = None,
    group: Any = None,
    *,
    top_k: int | None = None,
    transport: str = "auto",
) -> Tensor:
    """Sends the experts' rows back, and adds each token's, times their weights.

    In the order of a token's choices and in float32, on the token's rank: bit by bit `cleave.moe.unpermute` of one
    process. Dropped choices add nothing. rows and weights have gradients.

    Args:
        rows: [rows, features], float16, bfloat16 or float32: what the experts made of those that were dispatched.
        route: of `moe_dispatch`.
        weights: [tokens, top_k]; without them, top_k.
        group, transport: those of `moe_dispatch`.

    Returns:
        A new [tokens, features], of rows' dtype.

    Raises:
        As `moe_dispatch`.
    """
    name = name_of(group, "moe_combine")
    if rows.dim() != 2 or rows.shape[0] != route.arrivals.shape[0]:
        raise ValueError(
            f"rows is {list(rows.shape)}; route has {route.arrivals.shape[0]} rows, and those that the experts made "
            "must be as many"
        )
    returned = _ops.moe_return_rows(rows, *route, name, transport=transport)
    return _ops.moe_unpermute(returned, route.slots, weights, top_k)


class AllToAll:
    """The dispatcher of `cleave.torch.MoE(..., ep_group=)`: `moe_dispatch` and `moe_combine`, with their arguments.
    Tokens of 8 bits go with their scales.

    dropped: the last dispatch's, on its device; None before.
    """

    def __init__(
        self, group: Any = None, *, capacity: int | None = None, exact: bool = False, transport: str = "auto"
    ) -> None:
        self.group_name = name_of(group, "AllToAll")
        self.ranks = peers_of(self.group_name).size
        self.capacity, self.exact, self.transport = capacity, exact, transport
        self.dropped: Tensor | None = None

    def dispatch(
        self, x: Tensor, expert_ids: Tensor, weights: Tensor, num_experts: int, scale: Tensor | None = None
    ) -> Arrived:
        options = {"capacity": self.capacity, "exact": self.exact, "transport": self.transport}
        sent = moe_dispatch(x, expert_ids, num_experts, self.group_name, scale=scale, **options)
        self.dropped = sent.dropped
        return Arrived(sent.rows, sent.offs, scale=sent.scale, context=(sent.route, weights))

    def combine(self, rows: Tensor, arrived: Arrived) -> Tensor:
        return moe_combine(rows, *arrived.context, self.group_name, transport=self.transport)


class AllGather:
    """A dispatcher that moves each token once, and one row of each rank back, whatever top_k is.

    All ranks get all tokens, in 8 bits with their scales, and take those of their experts; each adds up what its
    experts made of a token, weighted, in float32 and in the order of the token's choices, rounds it to their dtype, and
    these are added in the order of the ranks on the token's rank. So results are repeatable bit by bit, but follow from
    how experts are dealt, where those of `AllToAll` have the bits of one process. Nothing is dropped, nothing waits for
    a GPU, and all of it goes through memory that GPUs of one host see: up to as many ranks as top_k it moves less than
    `AllToAll`.

    All ranks have as many tokens, in CUDA graphs as products over ranks are.
    """

    def __init__(self, group: Any = None, *, transport: str = "auto") -> None:
        self.group_name = name_of(group, "AllGather")
        peers = peers_of(self.group_name)
        self.rank, self.ranks, self.transport = peers.rank, peers.size, transport

    def dispatch(
        self, x: Tensor, expert_ids: Tensor, weights: Tensor, num_experts: int, scale: Tensor | None = None
    ) -> Arrived:
        watched, experts = is_watched((x, weights)), num_experts // self.ranks
        expert_ids, weights, scale = (
            None if own is None else call("all_gather_rows", own, self.group_name, transport=self.transport)
            for own in (expert_ids, weights, scale)
        )
        expert_ids = expert_ids - self.rank * experts
        if not watched:
            of_all = expert_ids, weights, scale, experts
            arrived = _expert_rows.gathered(x, *of_all, self.group_name, self.transport)
            if arrived is not None:
                return arrived
        x = call("all_gather_rows", x, self.group_name, transport=self.transport)
        return permuted(x, expert_ids, weights, experts, scale)

    def combine(self, rows: Tensor, arrived: Arrived) -> Tensor:
        indices, weights = arrived.context
        if not is_watched((rows, weights)):
            made = _expert_rows.scattered(rows, indices, weights, self.group_name, self.transport)
            if made is not None:
                return made
        sums = _ops.moe_unpermute(rows, indices, weights)
        return call("reduce_scatter_rows", sums, self.group_name, transport=self.transport)
