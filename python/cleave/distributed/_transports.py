"""How what the ranks of a call have gets from one to the others: by a collective, or through memory that all see.

Both give lists of tensors, one of each rank, for `fold` or for the next product. Neither adds anything.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import cache, lru_cache
from typing import Any

import torch
from torch import Tensor

from . import _agreement, _peer_memory
from ._collectives import collective_of, exchange, gather, gather_rows
from ._peer_memory import PeerMemory, Turn
from ._peers import Peers
from ._rows import first_rows

Multiply = Callable[..., Tensor]
"""multiply(out, rows[, epilogue]): of some rows of a, or what an epilogue function makes of it; `out`, or what there is
already, where that is None."""
Use = Callable[[list[Tensor], slice], None]
"""Multiplies tensors' rows, which are these of all."""


class Collectives:
    """Those of torch.distributed: NCCL's or gloo's."""

    def __init__(self, peers: Peers, name: str) -> None:
        self.peers, self.name = peers, name
        self.meeting: dict[str, Any] = {}  # what fold is told: partial results are there

    def everyones(self, multiply: Multiply, like: Tensor, rows: int, columns: int, dtype: torch.dtype) -> list[Tensor]:
        """All ranks' products, like `like` but for this shape and dtype."""
        own = multiply(None, slice(0, rows))
        return list(gather(own, self.peers, self.name).view(self.peers.size, rows, columns).unbind())

    def shares(
        self, multiply: Multiply, like: Tensor, rows: int, columns: int, dtype: torch.dtype, large: bool, fused: bool
    ) -> Iterator[tuple[slice, list[Tensor | None]]]:
        """All ranks' products of this rank's rows, some after the other: which rows, and each rank's. This rank's may
        be None, with `fused`: it is to be multiplied now, and the others' are there."""
        size, share, own = self.peers.size, self.peers.share(rows), self.peers.own(rows)
        product = like.new_empty(size * share, columns, dtype=dtype)
        multiply(first_rows(product, rows), slice(0, rows))
        received = exchange(product, self.peers, self.name)
        yield slice(0, own), [part[:own] for part in received.view(size, share, columns).unbind()]

    def whole(self, like: Tensor, rows: int, columns: int, dtype: torch.dtype, large: bool, fused: bool) -> Whole:
        """A result whose rows the ranks make, each its own, and all get. fused: by an epilogue, which may store them in
        another place, too."""
        return Whole(like.new_empty(self.peers.share(rows), columns, dtype=dtype), self._whole_of, rows)

    def _whole_of(self, own: Tensor, rows: int) -> Tensor:
        return gather(own, self.peers, self.name)[:rows]

    def gather_rows(
        self, *parts: Tensor, rows: int, large: bool, use: Use | None = None, columns: int = 0, kept: bool = True
    ) -> list[Tensor]:
        """All rows of each tensor, whose rows torch.chunk has dealt. `use` makes a product of so many columns of them,
        once or of some rows after the other; without `kept` nothing need be left after that."""
        gathered = [gather_rows(x, rows, self.peers, self.name) for x in parts]
        if use is not None:
            use(gathered, slice(0, rows))
        return gathered


class Whole:
    """A result that is gathered when it is made. own: where this rank's rows go; also: where else."""

    also: tuple[Tensor, ...] = ()

    def __init__(self, own: Tensor, gathered: Callable[[Tensor, int], Tensor], rows: int) -> None:
        self.own, self._gathered, self._rows = own, gathered, rows

    def made(self, part: slice) -> None:
        """These of this rank's own rows are."""

    def all(self) -> Tensor:
        return self._gathered(self.own, self._rows)


class PeerStores:
    """Through memory that all ranks see: what one writes there the others read. Large products are moved by copy
    engines while the rest of them is made."""

    name = "peer"

    def __init__(self, peers: Peers, turn: Turn) -> None:
        self.peers, self._turn = peers, turn
        self.meeting: dict[str, Any] = {"group": turn.group, "call": turn.call}

    def take(self, shape: tuple[int, ...], dtype: torch.dtype) -> list[Tensor]:
        """Every rank's place for a tensor of that shape."""
        return self._turn.take(shape, dtype)

    def meet(self, beside: Beside) -> None:
        """What any rank has stored before it is there for what follows it beside."""
        self._turn.meet(beside.stream)

    def everyones(self, multiply: Multiply, like: Tensor, rows: int, columns: int, dtype: torch.dtype) -> list[Tensor]:
        products = self._turn.take((rows, columns), dtype)
        multiply(products[self.peers.rank], slice(0, rows))
        return products

    def shares(
        self, multiply: Multiply, like: Tensor, rows: int, columns: int, dtype: torch.dtype, large: bool, fused: bool
    ) -> Iterator[tuple[slice, list[Tensor | None]]]:
        size, rank, share, own = self.peers.size, self.peers.rank, self.peers.share(rows), self.peers.own(rows)
        if large:
            yield from self._pushed_products(multiply, like, share, columns, dtype, fused)
        else:
            products = self._turn.take((size * share, columns), dtype)
            mine = self._turn.kept(lambda: first_rows(products[rank], rows))
            multiply(mine, slice(0, rows))
            first = rank * share
            yield slice(0, own), self._turn.kept(lambda: [product[first : first + own] for product in products])

    def _pushed_products(
        self, multiply: Multiply, like: Tensor, share: int, columns: int, dtype: torch.dtype, fused: bool
    ) -> Iterator[tuple[slice, list[Tensor | None]]]:
        """The others' rows first, which leave while the rest is multiplied."""
        size, rank, parts = self.peers.size, self.peers.rank, _parts(share)
        owners = [(rank + step) % size for step in range(1, size)]  # none receives from all at once
        slots = self._turn.take((size, share, columns), dtype)  # of each rank: a place for each rank's rows of its own
        places = self._turn.kept(lambda: [[slots[owner][rank, part] for owner in owners] for part in parts])
        received = self._turn.kept(lambda: [slots[rank][:, part].unbind() for part in parts])
        beside = Beside(like.device)
        there, leaving = [], []
        for part, of_owners in zip(parts, places, strict=True):
            for owner, place in zip(owners, of_owners, strict=True):
                leaving.append(multiply(None, _rows_of(owner, share, part)))
                with beside.behind_all():
                    place.copy_(leaving[-1], non_blocking=True)
            if fused:  # else the kernel that adds up begins with a meeting
                self._turn.meet(beside.stream)
            there.append(beside.event())
        own = None if fused else multiply(None, slice(rank * share, (rank + 1) * share))
        for part, come, event in zip(parts, received, there, strict=True):
            beside.computing.wait_event(event)
            everyones: list[Tensor | None] = list(come)
            everyones[rank] = None if own is None else own[part]
            yield part, everyones

    def whole(self, like: Tensor, rows: int, columns: int, dtype: torch.dtype, large: bool, fused: bool) -> Whole:
        everyones = self._turn.take((self.peers.share(rows), columns), dtype)
        if large:
            return PulledWhole(self.peers, self._turn, everyones, fused)
        return Whole(everyones[self.peers.rank], self._whole_of, rows)

    def _whole_of(self, own: Tensor, rows: int) -> Tensor:
        whole = own.new_empty(self.peers.size * own.shape[0], *own.shape[1:])
        self._turn.gather(own, whole)
        return first_rows(whole, rows)

    def gather_rows(
        self, *parts: Tensor, rows: int, large: bool, use: Use | None = None, columns: int = 0, kept: bool = True
    ) -> list[Tensor]:
        share = self.peers.share(rows)
        if large and use is not None:
            return self._pushed_rows(parts, share, use, columns, kept or not fills_a_gpu(share, columns))
        taken = [self._turn.take((share, *x.shape[1:]), x.dtype) for x in parts]
        for x, everyones in zip(parts, taken, strict=True):
            self._turn.kept(lambda x=x, own=everyones[self.peers.rank]: first_rows(own, x.shape[0])).copy_(x)
        return [self._whole_of(everyones[self.peers.rank], rows) for everyones in taken]

    def _pushed_rows(self, parts: tuple[Tensor, ...], share: int, use: Use, columns: int, kept: bool) -> list[Tensor]:
        """This rank's rows are multiplied while they leave, and the others' when they are there."""
        size, rank = self.peers.size, self.peers.rank
        others = [(rank + step) % size for step in range(1, size)]
        slots = [self._turn.take((size * share, *x.shape[1:]), x.dtype) for x in parts]
        gathered = [x.new_empty(size * share if kept else 0, *x.shape[1:]) for x in parts]
        beside, there, moved = Beside(parts[0].device), [], _parts(share)
        # Ranks meet as often, whatever columns they have.
        pieces = [slice(0, share)] if comes_at_once(columns, size) else moved
        with beside.behind_all():
            for part in pieces:
                for x, everyones in zip(parts, slots, strict=True):
                    for peer in others:
                        everyones[peer][_rows_of(rank, share, part)].copy_(x[part], non_blocking=True)
                for _ in range(len(moved) // len(pieces)):
                    self._turn.meet(beside.stream)
                there.append((part, beside.event()))
            for whole, x, everyones in zip(gathered, parts, slots, strict=True):
                for peer in range(size if kept else 0):
                    rows = _rows_of(peer, share, slice(0, share))
                    whole[rows].copy_(x if peer == rank else everyones[rank][rows], non_blocking=True)
        if not fills_a_gpu(share, columns):
            beside.join()
            use(gathered, slice(0, size * share))
            return gathered
        use(list(parts), slice(rank * share, (rank + 1) * share))
        for part, event in there:
            beside.computing.wait_event(event)
            for peer in others:
                rows = _rows_of(peer, share, part)
                use([everyones[rank][rows] for everyones in slots], rows)
        beside.join()
        return gathered


class PulledWhole(Whole):
    """Rows that copy engines fetch from the others while more of them are made."""

    def __init__(self, peers: Peers, turn: Turn, everyones: list[Tensor], fused: bool) -> None:
        self.own, self._turn, self._everyones = everyones[peers.rank], turn, everyones
        share = self.own.shape[0]
        self._result = self.own.new_empty(peers.size * share, *self.own.shape[1:])
        self._fetched = [rank for rank in range(peers.size) if rank != peers.rank]
        if fused:
            self.also = (self._result[_rows_of(peers.rank, share, slice(0, share))],)
        else:
            self._fetched.append(peers.rank)
        self._beside = Beside(self.own.device)

    def made(self, part: slice) -> None:
        theirs = self._turn.kept(lambda: [rows[part] for rows in self._everyones])
        with self._beside.behind_all():
            self._turn.meet(self._beside.stream)
            for peer in self._fetched:
                rows = _rows_of(peer, self.own.shape[0], part)
                self._result[rows].copy_(theirs[peer], non_blocking=True)

    def all(self) -> Tensor:
        self._beside.join()
        return self._result


class Beside:
    """A stream beside the one that computes, for copies. On the CPU both do nothing."""

    def __init__(self, device: torch.device) -> None:
        streams = torch.get_device_module(device)
        self.stream, self.computing = _side_stream(device), streams.current_stream(device)
        self._inside = streams.stream(self.stream)

    def behind_all(self) -> AbstractContextManager[Any]:
        """What is enqueued inside goes to it, behind all that is enqueued so far."""
        self.stream.wait_stream(self.computing)
        return self._inside

    def event(self) -> Any:
        return self.stream.record_event()

    def join(self) -> None:
        self.computing.wait_stream(self.stream)


@cache
def _side_stream(device: torch.device) -> Any:
    module = torch.get_device_module(device)
    return module.Stream() if device.type == "cpu" else module.Stream(device)


# With fewer, cutting and moving them takes longer than what it hides: the GPU's time, and the host's, which enqueues
# some twenty steps (docs/notes/2026-11-peer-memory.md).
_LEAST_ROWS = 2048
_WAVE = 132 * 128 * 256  # elements of D that an H100's or H200's SMs have at once
_HIDING = 2048  # columns with which a row of 16 bits takes as long to multiply as to move


def is_large(rows: int, size: int, trips: int = 1) -> bool:
    """Whether rows are moved in parts while others are multiplied: of a rank's rows there are enough, twice as many
    where sums make a second trip, to all ranks. All ranks answer alike, as it follows from what they all know."""
    return size > 1 and rows % size == 0 and rows // size >= _LEAST_ROWS * trips


def is_cut(operation: str, rows: int, columns: int, size: int) -> bool:
    """Whether a call does that, by its name."""
    large = is_large(rows, size, 2 if operation.endswith("all_reduce") else 1)
    return large and (operation.startswith("all_gather") or fills_a_gpu(rows // size, columns))


def fills_a_gpu(rows: int, columns: int) -> bool:
    """Whether a product has tiles enough for all SMs. Large ones that do are never split along K, however they are cut
    and moved, so that they have the same bits."""
    return rows * columns >= _WAVE


def comes_at_once(columns: int, size: int) -> bool:
    """Whether the others' rows come as one part: this rank's own take longer to multiply than they to come."""
    return columns >= _HIDING * size


@lru_cache(maxsize=256)
def _parts(share: int) -> tuple[slice, ...]:
    """Rows that are moved together: one half while the other is made. More parts have more ends, at each of which SMs
    wait for the slowest."""
    step = -(-share // 2 // 128) * 128
    return tuple(slice(begin, min(begin + step, share)) for begin in range(0, share, step))


def _rows_of(owner: int, share: int, part: slice) -> slice:
    return slice(owner * share + part.start, owner * share + part.stop)


@cache
def _environments() -> str:
    return os.environ.get("CLEAVE_TRANSPORT") or "auto"


def name_for(peers: Peers, device: torch.device, nccl_wins: bool = False) -> tuple[str, str]:
    """What "auto" is now, and why not the memory of peers; without asking the other ranks."""
    asked = _environments()
    if asked == "auto" and device.type == "cuda" and nccl_wins:
        return collective_of(peers, device, "auto"), " (faster than memory that all see, as the model has it)"
    if asked == "peer" or (asked == "auto" and device.type == "cuda"):
        memory = _peer_memory.known(peers, device)
        if isinstance(memory, PeerMemory):
            return "peer", ""
        why = "no call has made memory that all see yet" if memory is None else memory
        return collective_of(peers, device, "auto"), f" ({why})"
    return collective_of(peers, device, asked), ""


def carrier_for(
    peers: Peers, device: torch.device, asked: str, call: str, bytes: int, nccl_wins: bool = False
) -> Collectives | PeerMemory:
    """What carries a call of so many bytes of each rank's memory. "auto" is the environment's CLEAVE_TRANSPORT, or else
    the memory of peers where GPUs can share it, unless NCCL is faster, or else the group's backend.

    Raises ValueError where the group has no such transport; PeerError where ranks' calls are compared, and differ.
    """
    if _agreement.is_checked():
        _agreement.check(call, peers, device)
    if asked == "auto":
        asked = _environments()
    if asked == "peer" or (asked == "auto" and device.type == "cuda" and not nccl_wins):
        memory = _peer_memory.memory_of(peers, device, bytes)
        if isinstance(memory, PeerMemory):
            return memory
        if asked == "peer":
            raise ValueError(f'transport is "peer", which cannot serve this call: {memory}; use "auto"')
    return Collectives(peers, collective_of(peers, device, asked))


def way_of(carrier: Collectives | PeerMemory, peers: Peers, call: str) -> Collectives | PeerStores:
    """How it moves a call's parts."""
    return PeerStores(peers, carrier.turn(call)) if isinstance(carrier, PeerMemory) else carrier
