"""How what the ranks of a call have gets from one to the others: by a collective, or through memory that all see.

Both give lists of tensors, one of each rank, for `fold` or for the next product. Neither adds anything.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from . import _peer_memory
from ._peer_memory import PeerMemory, Turn
from ._peers import Peers, collective_of, exchange, gather, gather_rows


Multiply = Callable[[Tensor, slice], None]
"""Writes the product of some rows of a to a tensor that has as many."""
Use = Callable[[list[Tensor], slice], None]
"""Makes a product of some rows of gathered tensors."""


class Collectives:
    """Of torch.distributed: NCCL's or gloo's."""

    def __init__(self, peers: Peers, name: str) -> None:
        self.peers, self.name = peers, name
        self.meeting: dict[str, Any] = {}  # what fold is told: partial results are there

    def everyones(self, multiply: Multiply, like: Tensor, rows: int, columns: int, dtype: torch.dtype) -> list[Tensor]:
        """All ranks' products, like `like` but for this shape and dtype."""
        own = like.new_empty(rows, columns, dtype=dtype)
        multiply(own, slice(0, rows))
        return list(gather(own, self.peers, self.name).view(self.peers.size, rows, columns).unbind())

    def shares(self, multiply: Multiply, like: Tensor, rows: int, columns: int, dtype: torch.dtype) -> list[Tensor]:
        """Of all ranks' products those of this rank's rows."""
        size, share, own = self.peers.size, self.peers.share(rows), self.peers.own(rows)
        product = like.new_empty(size * share, columns, dtype=dtype)
        multiply(product[:rows], slice(0, rows))
        received = exchange(product, self.peers, self.name)
        return [part[:own] for part in received.view(size, share, columns).unbind()]

    def share(self, like: Tensor, rows: int, columns: int, dtype: torch.dtype) -> Tensor:
        """Where this rank's rows go of what all ranks get: room for as many as any rank has."""
        return like.new_empty(self.peers.share(rows), columns, dtype=dtype)

    def gather_shares(self, own: Tensor, rows: int) -> Tensor:
        """All ranks' rows, from such places."""
        return gather(own, self.peers, self.name)[:rows]

    def gather_rows(self, *parts: Tensor, rows: int, use: Use | None = None, columns: int = 0) -> list[Tensor]:
        """Of each tensor, whose rows torch.chunk has dealt, all rows. `use` makes a product of so many columns of them,
        once or of some rows after the other."""
        gathered = [gather_rows(x, rows, self.peers, self.name) for x in parts]
        if use is not None:
            use(gathered, slice(0, rows))
        return gathered


class PeerStores:
    """Through memory that all ranks see: what one writes there the others read. Large products are moved while the rest
    of them is made."""

    name = "peer"

    def __init__(self, peers: Peers, turn: Turn) -> None:
        self.peers, self._turn = peers, turn
        self.meeting: dict[str, Any] = {"group": turn.group, "call": turn.call}

    def everyones(self, multiply: Multiply, like: Tensor, rows: int, columns: int, dtype: torch.dtype) -> list[Tensor]:
        products = self._turn.take((rows, columns), dtype)
        multiply(products[self.peers.rank], slice(0, rows))
        return products

    def shares(self, multiply: Multiply, like: Tensor, rows: int, columns: int, dtype: torch.dtype) -> list[Tensor]:
        size, rank, share, own = self.peers.size, self.peers.rank, self.peers.share(rows), self.peers.own(rows)
        if size > 1 and share * size == rows and fills_a_gpu(share, columns):
            return self._pushed(multiply, like, share, columns, dtype)
        products = self._turn.take((size * share, columns), dtype)
        multiply(products[rank][:rows], slice(0, rows))
        return [product[rank * share : rank * share + own] for product in products]

    def _pushed(self, multiply: Multiply, like: Tensor, share: int, columns: int, dtype: torch.dtype) -> list[Tensor]:
        """The others' rows first, which copy engines move to them while the rest is multiplied."""
        size, rank = self.peers.size, self.peers.rank
        slots = self._turn.take((size, share, columns), dtype)  # of each rank: a place for each rank's rows of its own
        others = like.new_empty(size - 1, share, columns, dtype=dtype)
        streams = torch.get_device_module(like.device)  # the CPU's do nothing
        moving, computing = _side_stream(like.device), streams.current_stream(like.device)
        for step in range(1, size):  # from the next rank on, so that none receives from all at once
            owner = (rank + step) % size
            for part in _parts(share):
                multiply(others[step - 1, part], slice(owner * share + part.start, owner * share + part.stop))
                moving.wait_stream(computing)
                with streams.stream(moving):
                    slots[owner][rank, part].copy_(others[step - 1, part], non_blocking=True)
        multiply(slots[rank][rank], slice(rank * share, (rank + 1) * share))
        computing.wait_stream(moving)
        return list(slots[rank].unbind())

    def share(self, like: Tensor, rows: int, columns: int, dtype: torch.dtype) -> Tensor:
        return self._turn.take((self.peers.share(rows), columns), dtype)[self.peers.rank]

    def gather_shares(self, own: Tensor, rows: int) -> Tensor:
        whole = own.new_empty(self.peers.size * own.shape[0], *own.shape[1:])
        self._turn.gather(own, whole)
        return whole[:rows]

    def gather_rows(self, *parts: Tensor, rows: int, use: Use | None = None, columns: int = 0) -> list[Tensor]:
        size, share = self.peers.size, self.peers.share(rows)
        taken = [self._turn.take((share, *x.shape[1:]), x.dtype) for x in parts]
        for x, everyones in zip(parts, taken, strict=True):
            everyones[self.peers.rank][: x.shape[0]].copy_(x)
        if use is not None and size > 1 and share * size == rows and fills_a_gpu(share, columns):
            self._turn.meet()
            return self._pulled(parts, taken, share, use)
        gathered = [self.gather_shares(everyones[self.peers.rank], rows) for everyones in taken]
        if use is not None:
            use(gathered, slice(0, rows))
        return gathered

    def _pulled(self, parts: tuple[Tensor, ...], taken: list[list[Tensor]], share: int, use: Use) -> list[Tensor]:
        """This rank's rows are used while copy engines fetch the others'."""
        size, rank = self.peers.size, self.peers.rank
        gathered = [x.new_empty(size * share, *x.shape[1:]) for x in parts]
        streams = torch.get_device_module(parts[0].device)
        moving, computing = _side_stream(parts[0].device), streams.current_stream(parts[0].device)
        moving.wait_stream(computing)
        ranks = [(rank + step) % size for step in range(1, size)]
        there = []
        with streams.stream(moving):
            for peer in ranks:
                for whole, everyones in zip(gathered, taken, strict=True):
                    whole[peer * share : (peer + 1) * share].copy_(everyones[peer], non_blocking=True)
                there.append(moving.record_event())
        for whole, x in zip(gathered, parts, strict=True):
            whole[rank * share : (rank + 1) * share].copy_(x)
        use(gathered, slice(rank * share, (rank + 1) * share))
        for peer, event in zip(ranks, there, strict=True):
            computing.wait_event(event)
            use(gathered, slice(peer * share, (peer + 1) * share))
        return gathered


_WAVE = 132 * 128 * 256  # elements of D that an H100's or H200's SMs have at once


def fills_a_gpu(rows: int, columns: int) -> bool:
    """Whether a product has tiles enough for all SMs. One of a rank's rows that does is never split along K, however
    the ranks' products are cut and moved, so that it has the same bits."""
    return rows * columns >= _WAVE


def _parts(share: int) -> list[slice]:
    """Rows that are moved together: in two parts, the first leaves sooner."""
    half = share // 2 // 128 * 128
    return [slice(0, half), slice(half, share)] if half else [slice(0, share)]


@cache
def _side_stream(device: torch.device) -> Any:
    module = torch.get_device_module(device)
    return module.Stream() if device.type == "cpu" else module.Stream(device)


def name_for(peers: Peers, device: torch.device) -> tuple[str, str]:
    """What "auto" is now, and why not the memory of peers; without asking the other ranks."""
    asked = os.environ.get("CLEAVE_TRANSPORT") or "auto"
    if asked == "peer" or (asked == "auto" and device.type == "cuda"):
        memory = _peer_memory.known(peers, device)
        if isinstance(memory, PeerMemory):
            return "peer", ""
        why = "no call has made memory that all see yet" if memory is None else memory
        return collective_of(peers, device, "auto"), f" ({why})"
    return collective_of(peers, device, asked), ""


def transport_for(peers: Peers, device: torch.device, asked: str, call: str, bytes: int) -> Collectives | PeerStores:
    """What serves a call of so many bytes of each rank's memory. "auto" is the environment's CLEAVE_TRANSPORT, or else
    the memory of peers where GPUs can share it, or else the group's backend.

    Raises ValueError where the group has no such transport.
    """
    if asked == "auto":
        asked = os.environ.get("CLEAVE_TRANSPORT") or "auto"
    if asked == "peer" or (asked == "auto" and device.type == "cuda"):
        memory = _peer_memory.memory_of(peers, device, bytes)
        if isinstance(memory, PeerMemory):
            return PeerStores(peers, memory.turn(call))
        if asked == "peer":
            raise ValueError(f'transport is "peer", which cannot serve this call: {memory}; use "auto"')
    return Collectives(peers, collective_of(peers, device, asked))
