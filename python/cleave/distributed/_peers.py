"""The ranks of a process group, and what this process knows of them."""

from __future__ import annotations

from threading import Lock
from typing import Any
from weakref import finalize, ref

import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives
from torch.distributed.distributed_c10d import _resolve_process_group as _resolve

from .. import _core


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
        self.sums, self.gathers = _core.KnownSums(), _core.KnownGathers()  # those that are one call of the module

    def clear(self) -> None:
        super().clear()
        self.forget_known()

    def forget_known(self) -> None:
        self.sums.clear()
        self.gathers.clear()

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
_of_groups: dict[int, dict[str, Peers]] = {}  # by a group's id, which is forgotten when it ends, and by operation
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


def known_peers(group: Any, operation: str) -> Peers | None:
    """Those of a group that has made this call before, without asking torch."""
    if group is None:
        group = dist.group.WORLD
    of_name = _of_groups.get(id(group))
    found = of_name.get(operation) if of_name else None
    return found if found is not None and found.group is group else None


def _found(group: dist.ProcessGroup, group_name: str, operation: str) -> Peers:
    """By one thread at a time."""
    of_name = _known.get(group_name)
    found = of_name.get(operation) if of_name else None
    if found is not None and found.group is group:
        return found
    if of_name is None or any(other.group is not group for other in of_name.values()):
        of_name = _known[group_name] = _of_groups[id(group)] = {}
        finalize(group, _forget, group_name, id(group))
    memories = next((other.memories for other in of_name.values()), None)
    found = Peers(group, group_name, operation, Memories() if memories is None else memories)
    if found.rank < 0:
        raise RuntimeError(
            f"group {group_name!r} does not have this process, rank {dist.get_rank()} of all; call it on its ranks "
            "alone"
        )
    of_name[operation] = found
    return found


def forget_known(group_name: str) -> None:
    """Calls that are one of the module, through memory that is another one now."""
    for peers in _known.get(group_name, {}).values():
        peers.forms.forget_known()


def _forget(group_name: str, place: int) -> None:
    """What is known of a group that is gone, unless another has its name."""
    _of_groups.pop(place, None)
    of_name = _known.get(group_name, {})
    if all(peers.group is None for peers in of_name.values()):
        _known.pop(group_name, None)
