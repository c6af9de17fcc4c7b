"""How what the ranks of a call have gets from one to the others: by a collective, or through memory that all see.

Both give lists of tensors, one of each rank, for `fold` or for the next product. Neither adds anything.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from functools import cache
from typing import Any

import torch
from torch import Tensor

from . import _agreement, _peer_memory
from ._collectives import collective_of, exchange, gather, gather_rows
from ._peer_memory import PeerMemory, Turn
from ._peers import Peers
from ._rows import first_rows


class Collectives:
    """Those of torch.distributed: NCCL's or gloo's."""

    def __init__(self, peers: Peers, name: str) -> None:
        self.peers, self.name = peers, name

    def everyones(self, own: Tensor) -> list[Tensor]:
        """What each rank has like it."""
        return list(gather(own, self.peers, self.name).view(self.peers.size, *own.shape).unbind())

    def everyones_rows(self, own: Tensor) -> list[Tensor]:
        """This rank's rows of what each has like it, all of which have as many."""
        received = exchange(own, self.peers, self.name)
        return list(received.view(self.peers.size, own.shape[0] // self.peers.size, *own.shape[1:]).unbind())

    def gathered(self, own: Tensor) -> Tensor:
        """Rows of all ranks, one below the other."""
        return gather(own, self.peers, self.name)

    def gather_rows(self, *parts: Tensor, rows: int) -> list[Tensor]:
        """All rows of each tensor, whose rows torch.chunk has dealt."""
        return [gather_rows(x, rows, self.peers, self.name) for x in parts]


class PeerStores:
    """Through memory that all ranks see: what one writes there the others read."""

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

    def _whole_of(self, own: Tensor, rows: int) -> Tensor:
        whole = own.new_empty(self.peers.size * own.shape[0], *own.shape[1:])
        self._turn.gather(own, whole)
        return first_rows(whole, rows)

    def gather_rows(self, *parts: Tensor, rows: int) -> list[Tensor]:
        share = self.peers.share(rows)
        taken = [self._turn.take((share, *x.shape[1:]), x.dtype) for x in parts]
        for x, everyones in zip(parts, taken, strict=True):
            self._turn.kept(lambda x=x, own=everyones[self.peers.rank]: first_rows(own, x.shape[0])).copy_(x)
        return [self._whole_of(everyones[self.peers.rank], rows) for everyones in taken]


class Beside:
    """A stream beside the one that computes, which goes on behind it in the end, for copies. On the CPU both do
    nothing."""

    def __init__(self, device: torch.device) -> None:
        streams = torch.get_device_module(device)
        self.stream, self.computing = _side_stream(device), streams.current_stream(device)
        self._inside = streams.stream(self.stream)

    def __enter__(self) -> Beside:
        return self

    def __exit__(self, *_: object) -> None:
        self.join()

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


# Rows of a rank: with fewer, cutting and moving them takes longer than what it hides. Sums of products with a small K
# lose up to 25 us from there on, others gain 60 to 100 (docs/notes/2026-11-peer-memory.md).
_LEAST_ROWS = {"reduce_scatter": 1024, "all_reduce": 2048, "all_gather": 2048}
_WAVE = 132 * 128 * 256  # elements of D that an H100's or H200's SMs have at once
_HIDING = 2048  # columns with which a row of 16 bits takes as long to multiply as to move


def kind_of(operation: str) -> str:
    """Which of _LEAST_ROWS a call is, by its name."""
    return next(kind for kind in _LEAST_ROWS if kind in operation)


def is_large(kind: str, rows: int, size: int) -> bool:
    """Whether rows are moved in parts while others are multiplied: of a rank's rows there are enough. All ranks answer
    alike, as it follows from what they all know."""
    return size > 1 and rows % size == 0 and rows // size >= _LEAST_ROWS[kind]


def is_cut(operation: str, rows: int, columns: int, size: int) -> bool:
    """Whether a call does that, by its name."""
    kind = kind_of(operation)
    return is_large(kind, rows, size) and (kind == "all_gather" or fills_a_gpu(rows // size, columns))


def fills_a_gpu(rows: int, columns: int) -> bool:
    """Whether a product has tiles enough for all SMs. Large ones that do are never split along K, however they are cut
    and moved, so that they have the same bits."""
    return rows * columns >= _WAVE


def is_multiplied_by_rank(share: int, columns: int) -> bool:
    """Whether gathered rows are multiplied rank by rank: the products have tiles for half of the SMs, and none of them
    is split along K, as above."""
    return fills_a_gpu(2 * share, columns)


def comes_at_once(columns: int, size: int) -> bool:
    """Whether the others' rows come as one part: this rank's own take longer to multiply than they to come."""
    return columns >= _HIDING * size


def rows_of_parts(share: int) -> int:
    """How many are moved together: one half while the other is made. More parts have more ends, at each of which SMs
    wait for the slowest."""
    return -(-share // 2 // 128) * 128


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
