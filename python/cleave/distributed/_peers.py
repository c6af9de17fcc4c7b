"""The ranks of a process group, and how what a call sends gets from one to the others.

A collective moves bytes and never adds: sums are ours, so that they are the same on every transport.
"""

from __future__ import annotations

from functools import partial
from threading import Lock
from typing import Any
from weakref import finalize, ref

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import _functional_collectives
from torch.distributed.distributed_c10d import _resolve_process_group as _resolve

from .. import _core
from . import _faults


def name_of(group: Any, operation: str) -> str:
    """The name of a ProcessGroup, a DeviceMesh of one dimension, a name, or None: the default group."""
    if type(group) is dist.ProcessGroup:  # first, as it is the shortest way
        return group.group_name
    if group is None:
        group = dist.group.WORLD
    if group is None or not dist.is_initialized():
        raise RuntimeError(
            f"{operation} needs a process group; call torch.distributed.init_process_group on every rank first"
        )
    if group is dist.GroupMember.NON_GROUP_MEMBER:  # what new_group gives to others
        raise RuntimeError(f"this process is not in the group of {operation}; call it on the group's ranks alone")
    if isinstance(group, str):  # torch's own resolution of these cannot be compiled
        return group
    return _functional_collectives._resolve_group_name(group)


class Forms(dict[Any, Any]):
    """What follows from the arguments of calls that repeat, by what it follows from."""

    MOST = 4096

    def __init__(self) -> None:
        self.sums = _core.KnownSums()  # those that are one call of the module

    def clear(self) -> None:
        super().clear()
        self.sums.clear()

    def __setitem__(self, key: Any, form: Any) -> None:
        if len(self) >= self.MOST:
            self.clear()
        super().__setitem__(key, form)


class Memories(dict[Any, Any]):
    """By device, what all ranks of a group see, or why there is none. lock: whoever makes it has it, as another thread
    may ask first, too."""

    def __init__(self) -> None:
        self.lock = Lock()


class Peers:
    """The ranks of a group, from the one that asks, and what this process knows of them for as long as the group lives.

    rank, size: this process's, and of how many. forms: what follows from the arguments of this operation's calls, by
    what it follows from. memories: those of the group.
    """

    __slots__ = ("_group", "forms", "group_name", "memories", "operation", "rank", "size")

    def __init__(self, group: dist.ProcessGroup, group_name: str, operation: str, memories: Memories) -> None:
        self._group, self.group_name, self.operation = ref(group), group_name, operation
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        self.forms, self.memories = Forms(), memories

    @property
    def group(self) -> dist.ProcessGroup | None:
        """None when it has been destroyed."""
        return self._group()

    def share(self, rows: Any) -> Any:
        """The rows of each rank but the last ones, which have what is left, or none: as torch.chunk deals them."""
        return (rows + self.size - 1) // self.size

    def own(self, rows: Any) -> Any:
        """The rows of this rank."""
        share = self.share(rows)
        if isinstance(rows, int):
            return min(max(rows - self.rank * share, 0), share)
        return torch.sym_min(torch.sym_max(rows - self.rank * share, 0), share)


_lock = Lock()
_known: dict[str, dict[str, Peers]] = {}  # by a group's name, which another may have later, and by operation


def peers_of(group_name: str, operation: str = "") -> Peers:
    """operation: what the ranks do, for errors. Raises RuntimeError without a process group, or on a rank that is none
    of its."""
    try:
        group = _resolve(group_name)
    except RuntimeError:
        if dist.is_initialized():
            raise
        raise RuntimeError(
            "there is no process group; call torch.distributed.init_process_group on every rank before products over "
            "ranks"
        ) from None
    of_name = _known.get(group_name)
    found = of_name.get(operation) if of_name else None
    if found is not None and found.group is group:
        return found
    with _lock:
        return _found(group, group_name, operation)


def _found(group: dist.ProcessGroup, group_name: str, operation: str) -> Peers:
    """By one thread at a time."""
    of_name = _known.get(group_name)
    found = of_name.get(operation) if of_name else None
    if found is not None and found.group is group:
        return found
    if of_name is None or any(other.group is not group for other in of_name.values()):
        of_name = _known[group_name] = {}
        finalize(group, _forget, group_name)
    memories = next((other.memories for other in of_name.values()), None)
    found = Peers(group, group_name, operation, Memories() if memories is None else memories)
    if found.rank < 0:
        raise RuntimeError(
            f"group {group_name!r} does not have this process, rank {dist.get_rank()} of all; call it on its ranks "
            "alone"
        )
    of_name[operation] = found
    return found


def forget_sums(group_name: str) -> None:
    """Those that are one call of the module, through memory that is another one now."""
    for peers in _known.get(group_name, {}).values():
        peers.forms.sums.clear()


def _forget(group_name: str) -> None:
    """What is known of a group that is gone, unless another has its name."""
    of_name = _known.get(group_name, {})
    if all(peers.group is None for peers in of_name.values()):
        _known.pop(group_name, None)


def collective_of(peers: Peers, device: torch.device, asked: str) -> str:
    """The backend that moves tensors of `device` between the ranks: "auto" is what the group has for them.

    Raises ValueError where the group has no such backend.
    """
    own = _backend(peers, device)
    if asked == "auto" and own is not None:
        return own
    if asked == own or (asked == "gloo" and _backend(peers, torch.device("cpu")) == "gloo"):
        return asked
    if asked == "peer":
        raise ValueError(
            'transport is "peer", which moves what products over ranks sum or gather, and no experts; use "auto"'
        )
    served = ", ".join(f"{t.type}: {_backend(peers, t)}" for t in peers.group._device_types)
    instead = "" if own is None else f"{own!r}, or "
    raise ValueError(
        f"transport is {asked!r}, but group {peers.group_name!r} cannot move tensors of {device.type} that way (it has "
        f"{served}); use {instead}a group with a backend for both: init_process_group('cpu:gloo,cuda:nccl')"
    )


def _backend(peers: Peers, device: torch.device) -> str | None:
    try:
        return peers.group._get_backend(device).name()
    except RuntimeError:  # there is none for such devices
        return None


def exchange(parts: Tensor, peers: Peers, transport: str, sizes: tuple[list[int], list[int]] | None = None) -> Tensor:
    """To rank r goes the r-th of `size` parts of the first dimension; theirs for this rank, in order. Parts are equal,
    or of the sizes that are sent and received."""
    if sizes is None and parts.numel() == 0:
        return parts
    if sizes is None:
        said = f"all-to-all of {parts.nbytes} bytes"
        return _move(dist.all_to_all_single, said, parts, parts.shape, peers, transport)
    sent, received = sizes  # a rank without rows takes part, too
    collective = partial(dist.all_to_all_single, output_split_sizes=received, input_split_sizes=sent)
    said = f"all-to-all of rows of {parts.shape[1:].numel() * parts.itemsize} bytes"
    return _move(collective, said, parts, (sum(received), *parts.shape[1:]), peers, transport)


def gather(x: Tensor, peers: Peers, transport: str) -> Tensor:
    """Every rank's x, of one shape, one after the other."""
    shape = peers.size * x.shape[0], *x.shape[1:]
    if x.numel() == 0:
        return x.new_empty(shape)
    return _move(_all_gather, f"all-gather of {x.nbytes} bytes", x, shape, peers, transport)


# Its name up to torch 2.12 warns in later ones.
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor


def _move(collective: Any, said: str, x: Tensor, shape: tuple[int, ...], peers: Peers, transport: str) -> Tensor:
    """said: what all ranks must say of it."""
    made = x.new_empty(shape)
    sent, received = _bytes(x.contiguous()), _bytes(made)
    if transport != "gloo":
        collective(received, sent, group=peers.group)
        return made
    on_host = received.cpu()  # itself, where it is there
    with _faults.named(peers, said):
        collective(on_host, sent.cpu(), group=peers.group)
    if x.is_cuda:
        received.copy_(on_host)
    return made


def _bytes(x: Tensor) -> Tensor:
    """What any backend moves, whatever types it knows."""
    return x.view(torch.uint8) if x.dim() else x.view(1).view(torch.uint8)


def gather_rows(x: Tensor, rows: int, peers: Peers, transport: str) -> Tensor:
    """The [rows, ...] that torch.chunk dealt to the ranks: only the last shares are short, so that what they lack
    is at the end."""
    share = peers.share(rows)
    if x.shape[0] != share:
        padded = x.new_empty(share, *x.shape[1:])
        padded[: x.shape[0]] = x
        x = padded
    return first_rows(gather(x, peers, transport), rows)


def first_rows(x: Tensor, rows: int) -> Tensor:
    """x[:rows], without the time that a view of all of it takes the host."""
    return x if x.shape[0] == rows else x[:rows]


def rows_of(x: Tensor, rows: slice) -> Tensor:
    """x[rows], alike."""
    return x if rows.stop - rows.start == x.shape[0] else x[rows]
