"""Which rank it was, where a collective by gloo fails: one that has died, one that has not come, one in another call.

Before each collective ranks tell each other what they are about to do, since gloo ends a process that gets other sizes
than it expects; and which processes they are, so that one that died on this host is known. Others are called by roll:
each rank that fails says so in the store, and who does not is missing. By NCCL errors come later than calls, and are
its watchdog's.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from weakref import WeakKeyDictionary
from zlib import crc32

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from ._errors import PeerError
from ._peers import Peers

_GRACE = 1.0  # seconds, for a roll call: ranks do not fail at the same moment
_SAID = 232  # bytes, beside those of a process


@dataclass
class _Roll:
    """A group's processes by rank, each [host, pid, start] or zeros, and how many calls there were."""

    processes: list[list[int]]
    calls: int = 0


_rolls: WeakKeyDictionary[dist.ProcessGroup, _Roll] = WeakKeyDictionary()


@contextmanager
def named(peers: Peers, said: str) -> Iterator[None]:
    """Around a collective, of which all ranks say the same."""
    roll = _rolls.get(peers.group)
    if roll is None:
        roll = _rolls[peers.group] = _Roll([[0, 0, 0]] * peers.size)
    roll.calls += 1
    try:
        everyones = _tell(peers, roll, f"{peers.operation}, {said}")
        ours = everyones[peers.rank]
        for rank, theirs in enumerate(everyones):
            if theirs != ours:
                raise PeerError(
                    f"ranks of group {peers.group_name!r} disagree: rank {peers.rank} is in {ours}, and rank {rank} in "
                    f"{theirs}. All must make the same calls in the same order; nothing was moved, so "
                    "the group is still of use"
                )
        yield
    except PeerError:
        raise
    except RuntimeError as error:
        raise _lost(peers, roll, error) from error


def _tell(peers: Peers, roll: _Roll, said: str) -> list[str]:
    own = struct.pack("3q", *_process(os.getpid())) + said.encode()[:_SAID].ljust(_SAID)
    everyones = torch.empty(peers.size, len(own), dtype=torch.uint8)
    dist.all_gather(list(everyones.unbind()), torch.tensor(list(own), dtype=torch.uint8), group=peers.group)
    lines = [bytes(line) for line in everyones.tolist()]
    roll.processes = [list(struct.unpack_from("3q", line)) for line in lines]
    return [line[struct.calcsize("3q") :].decode(errors="replace").rstrip() for line in lines]


def _lost(peers: Peers, roll: _Roll, error: RuntimeError) -> PeerError:
    """What to raise for what a collective raised. It waits for a second at most."""
    host = _host()
    others = [rank for rank in range(peers.size) if rank != peers.rank]
    dead: list[int] = []
    missing, deadline = set(others), time.monotonic() + _GRACE
    prefix = f"cleave/failed/{peers.group_name}/{roll.calls}"
    store = _store_with(f"{prefix}/{peers.rank}", peers.operation)
    while not dead and missing and time.monotonic() < deadline:
        time.sleep(0.01)
        dead = [rank for rank in others if _has_died(roll.processes[rank], host)]
        if store is None or dead:
            continue
        try:
            missing -= {rank for rank in missing if store.check([f"{prefix}/{rank}"])}
        except RuntimeError:  # the rank that had it may be the one that is lost
            store = None
    if dead:
        what = "; ".join(f"rank {rank}, process {roll.processes[rank][1]} of this host, has died" for rank in dead)
    elif missing:
        what = f"{_ranks(sorted(missing))} not come to this call, nor failed in it; it is late, or its host is gone"
        dead = sorted(missing)
    else:
        what = "all ranks are there"
    everyone = dist.get_process_group_ranks(peers.group)
    left = [everyone[rank] for rank in range(peers.size) if rank not in dead]
    where = f"on rank {peers.rank} of group {peers.group_name!r}, in its call {roll.calls}"
    return PeerError(
        f"{peers.operation} failed {where}: {what} ({error}). The group is of no use any more; make one of the others, "
        f"torch.distributed.new_group({left}, use_local_synchronization=True)"
    )


def _ranks(ranks: list[int]) -> str:
    return f"rank {ranks[0]} has" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))} have"


def _store_with(key: str, value: str) -> dist.Store | None:
    """The store that all processes share, after a word of this one's; None if it is gone with its process."""
    try:
        store = distributed_c10d._get_default_store()
        store.set(key, value)
    except (RuntimeError, ValueError):
        return None
    return store


@cache
def _host() -> int:
    """What processes that see each other's numbers have in common."""
    with open("/proc/sys/kernel/random/boot_id", "rb") as file:
        return crc32(file.read() + os.readlink("/proc/self/ns/pid").encode())


def _process(pid: int) -> list[int]:
    """Its host, number and start; a start of 0 when it has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            state, *fields = file.read().rpartition(b") ")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return [_host(), pid, 0]
    return [_host(), pid, 0 if state in b"ZX" else int(fields[18])]


def _has_died(process: list[int], here: int) -> bool:
    host, pid, start = process
    return host == here and _process(pid)[2] != start
