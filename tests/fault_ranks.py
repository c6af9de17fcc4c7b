"""Kills a rank at any moment of its calls, and looks at what the others do; by gloo, on the CPU.

    python tests/fault_ranks.py ROUNDS REPORT [SEED]

In each round three ranks, forked from this process, multiply until one of them is gone: killed, or asleep. The others
must name it within the timeout, go on by themselves, make a group of their own, and one with a new process in the lost
one's place. REPORT gets what went wrong, a line each.
"""

from __future__ import annotations

import os
import random
import re
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

import cleave.distributed as cd

RANKS, SECONDS, GRACE = 3, 2.0, 1.0
BEGINNING = timedelta(seconds=60)  # for groups to form, however busy the machine is
LATE = 5  # every so many rounds the rank is not killed, but late


def begin(rank: int, store: Path) -> None:
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS, timeout=BEGINNING)
    agree(dist.group.WORLD)


def agree(group: dist.ProcessGroup) -> None:
    """A sum over the group is what it must be."""
    a, b = torch.full((5, 8), float(dist.get_rank(group) + 1)), torch.ones(8, 3)
    size = group.size()
    assert torch.equal(cd.gemm_all_reduce(a, b, group), torch.full((5, 3), 8.0 * size * (size + 1) / 2))


def calls() -> list[tuple[str, Callable[[], object]]]:
    a, b = torch.ones(96, 64), torch.ones(64, 48)
    ids = torch.arange(96, dtype=torch.int32).view(48, 2) % 6

    def experts() -> None:
        sent = cd.moe_dispatch(a[:48], ids, 6)
        cd.moe_combine(sent.rows, sent.route, top_k=2)

    return [
        ("gemm_all_reduce", lambda: cd.gemm_all_reduce(a, b)),
        ("gemm_reduce_scatter", lambda: cd.gemm_reduce_scatter(a, b)),
        ("all_gather_gemm", lambda: cd.all_gather_gemm(a, b)),
        ("moe_dispatch|moe_send_rows|moe_return_rows", experts),
    ]


def survive(rank: int, lost: int, folder: Path, late: bool) -> None:
    torch.set_num_threads(1)
    begin(rank, folder / "first")
    distributed_c10d._set_pg_timeout(timedelta(seconds=SECONDS))
    (folder / f"ready{rank}").touch()
    each, count = calls(), 0
    begun = time.monotonic()
    while True:
        if late and rank == lost and count == 7:
            time.sleep(60)
        name, call = each[count % len(each)]
        count += 1
        started = time.monotonic()
        try:
            call()
        except cd.PeerError as error:
            taken = time.monotonic() - started
            assert taken < SECONDS + GRACE + 1, f"it took {taken:.1f} s"
            assert re.match(f"({name}) failed on rank {rank} ", str(error)), error
            named = re.findall(r"ranks? (\d)(?:, process \d+ of this host, has died| has not come)", str(error))
            assert named == [str(lost)], error
            break
        assert time.monotonic() - begun < 20, "nobody was missed"
    a = torch.randn(16, 16)
    torch.testing.assert_close(torch.ops.cleave.gemm(a, a), a @ a, rtol=1e-4, atol=1e-4)
    others = [r for r in range(RANKS) if r != lost]
    agree(dist.new_group(others, timeout=BEGINNING, use_local_synchronization=True))
    dist.destroy_process_group()
    begin(rank, folder / "second")


def replace(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    begin(rank, folder / "second")


def fork(function: Callable[..., None], report: Path, *arguments: object) -> int:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            function(*arguments)
            code = 0
        except BaseException:
            with report.open("a") as file:
                file.write(traceback.format_exc())
        finally:
            os._exit(code)
    return child


def one_round(number: int, report: Path, draw: random.Random) -> None:
    lost, late = draw.randrange(RANKS), number % LATE == LATE - 1
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        children = [fork(survive, report, rank, lost, folder, late) for rank in range(RANKS)]
        while not all((folder / f"ready{rank}").exists() for rank in range(RANKS)):
            time.sleep(0.001)
            if report.exists():
                break
        if late:
            time.sleep(SECONDS + GRACE + 2)
        else:
            time.sleep(draw.random() * 0.02)
        os.kill(children[lost], signal.SIGKILL)
        os.waitpid(children[lost], 0)
        children[lost] = fork(replace, report, lost, folder)
        ended = [os.waitpid(child, 0)[1] for child in children]
    if any(ended):
        with report.open("a") as file:
            file.write(f"round {number}, rank {lost} {'late' if late else 'killed'}: ranks ended with {ended}\n")


def main(rounds: int, report: str, seed: int = 0) -> None:
    draw = random.Random(seed)
    for number in range(rounds):
        one_round(number, Path(report), draw)
        if Path(report).exists():
            break
    Path(report).touch()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:]))
