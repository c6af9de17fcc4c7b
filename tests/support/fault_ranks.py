"""Kills a rank at any moment of its calls, and looks at what the others do: by gloo, on the CPU, or through memory that
all see, of two GPUs ("cuda") or of the host ("memory").

    python tests/support/fault_ranks.py ROUNDS REPORT [SEED] [cpu | memory | cuda]

In each round three ranks, of GPUs two, forked from this process, multiply until one of them is gone: killed, or asleep.
The others must name it within the timeout, go on by themselves, make a group of their own, and one with a new process
in the lost one's place; memory that all see cannot be reset without it. REPORT, which does not exist, gets what went
wrong, a line each.
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
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

import cleave.distributed as cd

SECONDS, GRACE = 2.0, 1.0
BEGINNING = timedelta(seconds=60)  # for groups to form, however busy the machine is
LATE = 5  # every so many rounds the rank is not killed, but late


@dataclass(frozen=True)
class Place:
    rank: int
    where: str

    @property
    def device(self) -> str:
        return "cuda" if self.where == "cuda" else "cpu"

    @property
    def by_memory(self) -> bool:
        return self.where != "cpu"

    @property
    def ranks(self) -> int:
        return 2 if self.device == "cuda" else 3

    def begin(self, store: Path) -> None:
        torch.set_num_threads(1)
        if self.device == "cuda":
            torch.cuda.set_device(self.rank)
        of = {"rank": self.rank, "world_size": self.ranks}
        dist.init_process_group("gloo", init_method=f"file://{store}", timeout=BEGINNING, **of)
        self.agree(dist.group.WORLD)

    def agree(self, group: dist.ProcessGroup) -> None:
        """A sum over the group is what it must be."""
        a = torch.full((5, 8), float(dist.get_rank(group) + 1), device=self.device)
        size = group.size()
        made = cd.gemm_all_reduce(a, torch.ones(8, 3, device=self.device), group)
        assert torch.equal(made.cpu(), torch.full((5, 3), 8.0 * size * (size + 1) / 2))

    def ended(self, call: Callable[[], object]) -> None:
        call()
        if self.device == "cuda":
            torch.cuda.synchronize()  # what its kernels leave, the next call finds


def calls(group: dist.ProcessGroup, place: Place) -> list[tuple[str, Callable[[], object]]]:
    device = place.device
    a, b = torch.ones(96, 64, device=device), torch.ones(64, 48, device=device)
    ids = torch.arange(96, dtype=torch.int32).view(48, 2) % 6

    def experts() -> None:
        sent = cd.moe_dispatch(a[:48], ids, 6)
        cd.moe_combine(sent.rows, sent.route, top_k=2)

    products: list[tuple[str, Callable[[], object]]] = [
        ("gemm_all_reduce", lambda: cd.gemm_all_reduce(a, b, group)),
        ("gemm_reduce_scatter", lambda: cd.gemm_reduce_scatter(a, b, group)),
        ("all_gather_gemm", lambda: cd.all_gather_gemm(a, b, group)),
    ]
    return products if place.by_memory else [*products, ("moe_dispatch|moe_send_rows|moe_return_rows", experts)]


def refuses_to_reset(place: Place, lost: int, group: dist.ProcessGroup) -> None:
    began = time.monotonic()
    try:
        cd.reset(group)
    except cd.PeerError as error:
        assert re.match(rf"rank {place.rank} waited {2 * SECONDS:g} s for rank {lost} in reset\(\)", str(error)), error
        assert time.monotonic() - began < 2 * SECONDS + GRACE + 1, f"it took {time.monotonic() - began:.1f} s"
        return
    raise AssertionError("a group was reset without a rank of its")


def survive(place: Place, lost: int, folder: Path, late: bool) -> None:
    rank = place.rank
    place.begin(folder / "first")
    group = dist.group.WORLD
    if place.by_memory:
        for _, call in calls(group, place):  # which compiles, for whoever waits longer than others will
            place.ended(call)
        os.environ["CLEAVE_PEER_TIMEOUT"] = str(SECONDS)
        place.agree(group := dist.new_group(range(place.ranks), timeout=BEGINNING))
    distributed_c10d._set_pg_timeout(timedelta(seconds=SECONDS))
    each, count = calls(group, place), 0
    (folder / f"ready{rank}").touch()
    begun = started = time.monotonic()
    while True:
        if late and rank == lost and count == 7:
            time.sleep(60)
        before, (name, call) = each[(count - 1) % len(each)][0], each[count % len(each)]
        count += 1
        previous, started = started, time.monotonic()
        try:
            place.ended(call)
        except cd.PeerError as error:
            taken = time.monotonic() - (previous if place.device == "cuda" else started)
            assert taken < SECONDS + GRACE + 1, f"it took {taken:.1f} s"
            if place.by_memory:
                given_up = before if place.device == "cuda" else name
                assert re.match(rf"rank {rank} waited {SECONDS:g} s for rank {lost} in {given_up}\(", str(error)), error
                refuses_to_reset(place, lost, group)
                break
            assert re.match(f"({name}) failed on rank {rank} ", str(error)), error
            named = re.findall(r"ranks? (\d)(?:, process \d+ of this host, has died| has not come)", str(error))
            assert named == [str(lost)], error
            break
        assert time.monotonic() - begun < 20, "nobody was missed"
    a = torch.randn(16, 16, device=place.device)
    torch.testing.assert_close(torch.ops.cleave.gemm(a, a), a @ a, rtol=1e-4, atol=1e-4)
    others = [r for r in range(place.ranks) if r != lost]
    place.agree(dist.new_group(others, timeout=BEGINNING, use_local_synchronization=True))
    dist.destroy_process_group()
    place.begin(folder / "second")


def replace(place: Place, folder: Path) -> None:
    place.begin(folder / "second")


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


def one_round(number: int, report: Path, draw: random.Random, where: str) -> None:
    places = [Place(rank, where) for rank in range(Place(0, where).ranks)]
    lost, late = draw.randrange(len(places)), number % LATE == LATE - 1
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        children = [fork(survive, report, place, lost, folder, late) for place in places]
        while not all((folder / f"ready{place.rank}").exists() for place in places):
            time.sleep(0.001)
            if report.exists():
                break
        if late:
            time.sleep(SECONDS + GRACE + 2)
        else:
            time.sleep(draw.random() * 0.02)
        os.kill(children[lost], signal.SIGKILL)
        os.waitpid(children[lost], 0)
        children[lost] = fork(replace, report, places[lost], folder)
        ended = [os.waitpid(child, 0)[1] for child in children]
    if any(ended):
        with report.open("a") as file:
            file.write(f"round {number}, rank {lost} {'late' if late else 'killed'}: ranks ended with {ended}\n")


def main(rounds: int, report: str, seed: str = "0", where: str = "cpu") -> None:
    draw = random.Random(int(seed))
    if where == "memory":
        os.environ["CLEAVE_TRANSPORT"] = "peer"
    for number in range(rounds):
        one_round(number, Path(report), draw, where)
        if Path(report).exists():
            break
    Path(report).touch()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], *sys.argv[3:])
