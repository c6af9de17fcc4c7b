"""Runs every check of rank_checks on all ranks of a group, forked from one process that has imported torch.

    python tests/support/distributed_ranks.py RANKS DEVICE REPORT [TEAMS]

Checks are taken by teams of so many ranks, each of which is a group: a process compiles its kernels one after the
other, and on GPUs that is what takes the time. Teams share the GPUs, whose kernels take turns while they wait for each
other; what meets too often for that is checked by one team when the others have ended.

REPORT gets a JSON object: of each check an empty text, or what went wrong. A rank that fails ends its team.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

# NVLink multicast stays off: where it is, it is another's.
os.environ |= {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}

import rank_checks
import torch
import torch.distributed as dist
from rank_checks.ranks import Ranks
from rank_checks.transports import graphs_replay_the_same_bits

# Only products know the variable.
CHECKS = rank_checks.PRODUCTS if os.environ.get("CLEAVE_TRANSPORT") else rank_checks.CHECKS
ALONE = (graphs_replay_the_same_bits,)

SECONDS = 120  # for a rank to wait for others
MOST_TEAMS = 8


def run(rank: int, size: int, device: str, folder: Path, queue: int) -> None:
    """folder: the team's. queue: a pipe with the numbers of checks that nobody has taken."""
    torch.set_num_threads(1)
    backend = "gloo" if device == "cpu" else "cpu:gloo,cuda:nccl"
    if device == "cuda":
        torch.cuda.set_device(rank)
    dist.init_process_group(
        backend, init_method=f"file://{folder}/store", rank=rank, world_size=size, timeout=timedelta(seconds=SECONDS)
    )
    ranks = Ranks(rank, size, device)
    with (folder / str(rank)).open("w", buffering=1) as report:
        while (check := _taken(rank, queue)) is not None:
            torch.manual_seed(0)
            begin = time.monotonic()
            try:
                check(ranks)
            except BaseException:
                failure = f"rank {rank}:\n{traceback.format_exc()}"
                report.write(json.dumps([check.__name__, failure]) + "\n")
                report.flush()
                os._exit(1)  # others may wait for it for ever
            report.write(json.dumps([check.__name__, ""]) + "\n")
            if rank == 0:
                print(f"{time.monotonic() - begin:6.1f} s {check.__name__}", flush=True)
    dist.barrier()  # gloo lets go of the last tensors (examples/distributed/train.py)
    dist.destroy_process_group()


def _taken(rank: int, queue: int) -> Any:
    """The team's next check; None at the end."""
    number = torch.full((1,), -1)
    if rank == 0 and (byte := os.read(queue, 1)):
        number[0] = byte[0]
    dist.broadcast(number, 0)
    return CHECKS[number] if number >= 0 else None


def by_teams(checks: Sequence[Any], teams: int, size: int, device: str, folder: Path) -> None:
    """Reports of the ranks are in a folder of each team."""
    queue, filling = os.pipe()
    os.write(filling, bytes(CHECKS.index(check) for check in checks))
    os.close(filling)
    children = {}
    for team in range(teams):
        (place := folder / f"{len(checks)}-{team}").mkdir()
        for rank in range(size):
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    run(rank, size, device, place, queue)
                    code = 0
                finally:
                    os._exit(code)
            children[child] = team
    os.close(queue)
    while children:
        child, status = os.wait()
        team = children.pop(child)
        if status != 0:
            for other in [other for other, its in children.items() if its == team]:
                os.kill(other, 9)


def main(size: int, device: str, path: str, teams: str = "") -> None:
    most = min(MOST_TEAMS, (os.cpu_count() or 1) // (2 * size)) if device == "cuda" else 1
    with tempfile.TemporaryDirectory() as name:
        together = [check for check in CHECKS if check not in ALONE]
        by_teams(together, int(teams or max(most, 1)), size, device, Path(name))
        by_teams(ALONE, 1, size, device, Path(name))
        found: dict[str, str] = {}
        for report in Path(name).glob("*/[0-9]*"):
            for line in report.read_text().splitlines():
                check, failure = json.loads(line)
                found[check] = found.get(check, "") + failure
    for check in CHECKS:
        found.setdefault(check.__name__, f"{check.__name__} was not run\n")
    Path(path).write_text(json.dumps(found))


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
