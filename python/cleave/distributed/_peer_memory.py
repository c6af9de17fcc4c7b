"""Memory that every rank of a group has and all of them see: where a product leaves what the other ranks read."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from .. import _core
from . import _agreement
from ._peers import Peers, forget_known

_LEAST = 4 << 20  # bytes of a turn's place
_MOST = 1 << 30
_ALIGNMENT = 256
_MOST_TURNS = 256  # that are kept: of calls with the same sizes


class PeerMemory:
    """Staging of all ranks, in places that calls take in turn (src/peers/places.h)."""

    __slots__ = ("_everyones", "_kept", "_stream", "_turns", "bytes", "group", "places")

    def __init__(self, peers: Peers, device: torch.device, bytes: int, older: PeerMemory | None) -> None:
        """On every rank. Raises ValueError, the same on all ranks, where one cannot share memory with the others."""
        self.bytes = bytes
        index = -1 if device.type == "cpu" else device.index

        def all_gather(own: str) -> list[str]:
            said: list[Any] = [None] * peers.size
            dist.all_gather_object(said, own, group=peers.group)
            return said

        self.group = _core.Group.share(peers.rank, peers.size, index, 4 * bytes, all_gather)
        self.places = _core.Places(self.group)
        self._everyones = [self.group.staging(rank) for rank in range(peers.size)]
        self._turns: dict[tuple[str, int], Turn] = {}
        self._kept = older  # captured graphs may have it
        self._stream = _current_stream(device)

    def reset(self) -> None:
        """On every rank, also what captured graphs have. Raises PeerError where a rank does not come."""
        if self._kept is not None:
            self._kept.reset()
        self.group.reset()
        self.places.reset()

    def turn(self, call: str) -> Turn:
        """The place of a call, which all ranks make alike."""
        stream = self._stream()
        place = self.places.next(stream)
        turn = self._turns.get((call, place))
        if turn is None:
            if len(self._turns) >= _MOST_TURNS:
                self._turns.clear()
            parts = [x[place * self.bytes : (place + 1) * self.bytes] for x in self._everyones]
            turn = self._turns[call, place] = Turn(parts, self.group, call)
        turn.begin(stream)
        return turn

    def know(self, peers: Peers, calls: Any, form: Any, given: tuple[Any, ...]) -> None:
        """Calls like the `given` one need not be looked at again, while the group has this memory and nobody compares
        them. calls: _core's KnownSums or KnownGathers, which has them from now on."""
        if _agreement.is_checked():
            return
        with peers.memories.lock:
            if peers.memories.get(given[0].device) is self:
                calls.add(self.places, form, *given)


def _current_stream(device: torch.device) -> Callable[[], int]:
    """What asks for its address. torch's public function makes an object for that, which takes longer than a sum."""
    if device.type == "cpu":
        return int
    raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    if raw is None:
        return lambda: torch.cuda.current_stream(device).cuda_stream
    return partial(raw, device.index)


class Turn:
    """One call's place in every rank's memory, from which tensors are taken, the same on all ranks, and in every call
    that is like it."""

    __slots__ = ("_count", "_everyones", "_stream", "_taken", "_used", "call", "group")

    def __init__(self, everyones: list[Tensor], group: Any, call: str) -> None:
        self._everyones, self.group, self.call = everyones, group, call
        self._taken: list[Any] = []
        self._used = self._count = self._stream = 0

    def begin(self, stream: int) -> None:
        self._stream, self._count = stream, 0

    def take(self, shape: tuple[int, ...], dtype: torch.dtype) -> list[Tensor]:
        """Every rank's tensor of that shape."""
        if self._count == len(self._taken):
            begin = self._used
            end = begin + prod(shape) * dtype.itemsize
            self._used = -(-end // _ALIGNMENT) * _ALIGNMENT
            self._taken.append([x[begin:end].view(dtype).view(shape) for x in self._everyones])
        self._count += 1
        return self._taken[self._count - 1]

    def kept(self, make: Callable[[], Any]) -> Any:
        """What is made of what was taken, once for all calls that are like this one."""
        if self._count == len(self._taken):
            self._taken.append(make())
        self._count += 1
        return self._taken[self._count - 1]

    def meet(self, beside: Any = None) -> None:
        """What any rank has written so far is there for what follows, on a stream beside the call's if one is given."""
        if beside is None:
            self.group.barrier(self.call, self._stream)
        else:
            self.group.barrier(self.call, getattr(beside, "cuda_stream", 0), True)

    def gather(self, own: Tensor, out: Tensor) -> None:
        """The same; and what all ranks have where `own` is, one below the other."""
        if own.numel() == 0:  # which has no address
            self.meet()
        else:
            self.group.gather(own.data_ptr(), own.nbytes, out.data_ptr(), self.call, self._stream)


def bytes_of(*tensors: tuple[tuple[int, ...], torch.dtype]) -> int:
    """The bytes that a turn takes for tensors of such shapes."""
    return sum(-(-prod(shape) * dtype.itemsize // _ALIGNMENT) * _ALIGNMENT for shape, dtype in tensors)


def known(peers: Peers, device: torch.device) -> PeerMemory | str | None:
    """What the group has, or why it has none; None if it was never asked."""
    if device.type == "cuda" and device.index is None:
        device = torch.device("cuda", torch.cuda.current_device())
    return peers.memories.get(device)


def memory_of(peers: Peers, device: torch.device, bytes: int) -> PeerMemory | str:
    """Memory with so many bytes for a turn, or why there is none. All ranks ask alike, and get the like."""
    found = peers.memories.get(device)
    if isinstance(found, str) or (found is not None and found.bytes >= bytes):
        return found
    with peers.memories.lock:
        return _made(peers, device, bytes)


def _made(peers: Peers, device: torch.device, bytes: int) -> PeerMemory | str:
    """By one thread at a time."""
    found = peers.memories.get(device)
    if isinstance(found, str) or (found is not None and found.bytes >= bytes):
        return found
    if bytes > most_bytes():
        most = most_bytes()
        return f"it would take {bytes} bytes of each rank's memory, four times, and CLEAVE_PEER_BYTES allows {most}"
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        return "a call of this size that is not captured has to come first: it makes the memory"
    grown = max(_LEAST, 1 << (bytes - 1).bit_length())
    try:
        peers.memories[device] = PeerMemory(peers, device, grown, found)
    except ValueError as error:
        peers.memories[device] = str(error)
    forget_known(peers.group_name)
    return peers.memories[device]


def most_bytes() -> int:
    """CLEAVE_PEER_BYTES, of one turn's place."""
    given = os.environ.get("CLEAVE_PEER_BYTES", "")
    if not given:
        return _MOST
    if not given.isdigit():
        raise ValueError(f"CLEAVE_PEER_BYTES is {given!r}; it must be a number of bytes, or 0: no peers' memory")
    return int(given)
