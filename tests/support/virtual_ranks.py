"""Ranks that are streams of one GPU: flags, places and orders of more ranks than there are GPUs.

    export CUDA_DEVICE_MAX_CONNECTIONS=32 CUDA_MODULE_LOADING=EAGER
    python tests/support/virtual_ranks.py RANKS ROUNDS [SEED [ROWS [REPLAYS]]]

In each round all ranks make the same call, drawn at random, in an order drawn anew, some of them late; results are
compared bit by bit. Kernels wait for each other on one GPU, so all of them must run at once: few CTAs, a queue of its
own for each stream, and nothing that is loaded or allocated in between. With 2 ranks there is room for the most CTAs of
a sum that is pushed: 512 rows. With REPLAYS each rank captures its part of 64 rounds as a graph, and replays it so
often, for numbers drawn anew.
"""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

import cleave
from cleave import _core
from cleave._epilogue.function import BoundEpilogue

COLUMNS, ROUNDS_AT_ONCE = 1024, 64
# The last: some ranks' products add up themselves; and sums move in parts, to this rank's rows or to all ranks.
PARTS = ("in parts", "in parts for all", "onto parts", "onto parts for all")
KINDS = ("pushed", "read", "quantised", "pushed and quantised", "gathered", "sent", "inside", *PARTS)
INSIDE, DEPTH = 256, 128  # columns and K of these: few CTAs, of which an SM has room for one
SHARE, PART = 8, 4  # rows of a rank, and of what moves together


@dataclass
class Step:
    """A round, as it was drawn: for each rank how many clocks it is late, and which of two ways it takes."""

    kind: str
    place: int
    late: list[int]
    ways: list[bool]


def all_gather_of(rank: int, said: list[str], met: threading.Barrier) -> Callable[[str], list[str]]:
    """What a thread that is a rank tells the others, and hears of all."""

    def all_gather(own: str) -> list[str]:
        said[rank] = own
        met.wait()
        everyones = list(said)
        met.wait()
        return everyones

    return all_gather


def groups_of(size: int, place: int) -> list[Any]:
    """A group's ranks, which threads make together; two places in each one's staging."""
    made: list[Any] = [None] * size
    said: list[str] = [""] * size
    met = threading.Barrier(size)

    def run(rank: int) -> None:
        made[rank] = _core.Group.share(
            rank, size, torch.cuda.current_device(), 2 * place, all_gather_of(rank, said, met)
        )

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return made


def onto(rank: int, size: int, also: int) -> Any:
    """What makes a rank's product add up itself; here alone, since tests import this file, and their process should
    not get the operators of cleave.distributed."""
    from cleave.distributed import _fold

    return _fold.onto(rank, size, torch.float32, False, False, also)


def in_rank_order(parts: torch.Tensor | list[torch.Tensor]) -> torch.Tensor:
    total = parts[0].clone()
    for part in parts[1:]:
        total += part
    return total


def copy(source: torch.Tensor, to: torch.Tensor) -> None:
    """By a kernel: ranks would share the copy engine, where one's copy may wait before another's."""
    torch.mul(source, 1, out=to)


def quantised(
    parts: list[torch.Tensor], most_rows: int = 0, group: Any = None, call: str = "", pushed: bool = False
) -> torch.Tensor:
    """What a sum with gates becomes in 8 bits, and its scales behind that, as bytes of rows."""
    rows, columns = parts[0].shape[0], parts[0].shape[1] // 2
    made = parts[0].new_empty(rows, columns + 4 * -(-columns // 128), dtype=torch.uint8)
    q, scales = made[:, :columns].view(torch.float8_e4m3fn), made[:, columns:].view(torch.float32)
    options = "swiglu", most_rows or rows, group, call, pushed, None, False, scales, True
    _core.fold(parts, q, None, None, None, None, None, *options)
    return made


class Ranks:
    def __init__(self, size: int, seed: int = 0, rows: int = 4) -> None:
        self.size, self.rows, self.draw = size, rows, random.Random(seed)
        shape = ROUNDS_AT_ONCE, rows, COLUMNS
        generator = torch.Generator("cuda").manual_seed(seed)
        self.parts = torch.randn(size, *shape, device="cuda", generator=generator)
        self.sums = torch.empty(size, *shape, device="cuda")
        self.all = torch.empty(size, ROUNDS_AT_ONCE, size, rows, COLUMNS, device="cuda")
        self.streams = [torch.cuda.Stream() for _ in range(size)]
        self.groups = groups_of(size, size * 4 * rows * COLUMNS)
        self.staging = [
            [g.staging(r).view(torch.float32).view(2, size, rows, COLUMNS)[:, 0] for r in range(size)]
            for g in self.groups
        ]
        self.rows_inside = min(rows, 64)
        self.places = [_core.Places(group) for group in self.groups]
        inside = 0, self.rows_inside, self.rows_inside
        dtypes = torch.float32, torch.float32, "none"
        how = True, True, False, False, "auto", None
        self.form = _core.SumForm(self.rows_inside, INSIDE, *inside, *how, *dtypes, "inside")
        self.a = torch.randn(
            size, ROUNDS_AT_ONCE, self.rows_inside, DEPTH, device="cuda", generator=generator
        ).bfloat16()
        self.b = torch.randn(size, INSIDE, DEPTH, device="cuda", generator=generator).bfloat16().transpose(1, 2)
        planned = cleave.plan_gemm(self.a[0, 0], self.b[0], out_dtype=torch.float32)
        assert planned.split_k_slices == 1, planned  # or no product adds up itself
        self.products = torch.stack(
            [
                torch.stack([cleave.gemm(x, b, out_dtype=torch.float32) for x in a])
                for a, b in zip(self.a, self.b, strict=True)
            ]
        )
        self.long = torch.randn(
            size, ROUNDS_AT_ONCE, size * SHARE, DEPTH, device="cuda", generator=generator
        ).bfloat16()
        self.long_sums = in_rank_order(
            [
                torch.stack([cleave.gemm(x, b, out_dtype=torch.float32, split_k_mode="none") for x in a])
                for a, b in zip(self.long, self.b, strict=True)
            ]
        )
        self.of_parts = groups_of(size, 2 * (size + 1) * SHARE * INSIDE * 4)
        self.places_of_parts = [_core.Places(group) for group in self.of_parts]
        self.forms = [self.forms_of(rank) for rank in range(size)]
        self.made: dict[int, dict[int, torch.Tensor]] = {}  # of each rank, by the place of a round
        self._load()

    def forms_of(self, rank: int) -> dict[str, Any]:
        """Those of sums in parts."""
        made: dict[str, Any] = {}
        own = rank * SHARE, SHARE, SHARE
        how = False, False, True, False, "auto", None, torch.float32, torch.float32, "none"
        for kind in PARTS:
            whole = kind.endswith("all")
            function = onto(rank, self.size, int(whole)).text
            moved = {"gathered": whole, "part": PART} | ({"onto": function} if kind.startswith("onto") else {})
            made[kind] = _core.SumForm(self.size * SHARE, INSIDE, *own, *how, kind, **moved)
        return made

    def _in_parts(self, rank: int, at: int, kind: str) -> torch.Tensor:
        given = self.long[rank, at], self.b[rank], None, None, None, None, None, None, False
        return _core.sum_over_ranks(self.places_of_parts[rank], self.forms[rank][kind], *given)

    def _load(self) -> None:
        """Everything that a round launches, by ranks that meet nobody."""
        alone = groups_of(1, 4 * self.rows * COLUMNS)[0]
        stream = torch.cuda.current_stream().cuda_stream
        alone.barrier("nothing", stream)
        own = alone.staging(0)
        alone.gather(own.data_ptr(), 4 * self.rows * COLUMNS, self.all.data_ptr(), "nothing", stream)
        for out in (0, self.all.data_ptr()):
            part = self.parts.data_ptr(), 4 * self.rows * COLUMNS, 4 * self.rows * COLUMNS, 0, out
            alone.push([part], "nothing", stream)
        for pushed in (False, True):
            parts = [self.parts[r, 0] for r in range(self.size)]
            _core.fold(parts, self.sums[0, 0], None, None, None, None, None, "none", self.rows, None, "", pushed, None)
            quantised(parts, pushed=pushed)
        products = [self.products[r, 0] for r in range(self.size)]
        out = torch.empty_like(products[0])
        strips = None, None, None, None, None, "none", self.rows_inside
        for stream in self.streams:
            with torch.cuda.stream(stream):
                room = [torch.empty(1 << 19, dtype=torch.uint8, device="cuda") for _ in range(ROUNDS_AT_ONCE)]
                del room
        torch.cuda.synchronize()
        for rank in range(self.size):  # these meet; the first compiles
            with torch.cuda.stream(self.streams[rank]):
                _core.fold(products, out, *strips, self.groups[rank], "inside", True, None, True)
        torch.cuda.synchronize()
        for rank in range(self.size):
            with torch.cuda.stream(self.streams[rank]):
                self._inside(rank, 0)
        torch.cuda.synchronize()
        self._load_parts()
        copy(self.parts[0, 0], self.staging[0][0][0])
        torch.cuda._sleep(10)
        torch.cuda.synchronize()

    def _load_parts(self) -> None:
        """Before any rank waits for another: what is loaded then may wait for it."""
        for rank, b in enumerate(self.b):
            rows = self.long[rank, 0]
            products = [cleave.gemm(rows[:n], b, out_dtype=torch.float32, split_k_mode="none") for n in (PART, SHARE)]
            others = tuple(products[0].clone() for _ in range(self.size - 1))
            for also in (0, 1):
                function = onto(rank, self.size, also)
                out = tuple(torch.empty_like(products[0]) for _ in range(1 + also))
                bound = BoundEpilogue(function, function.text, others)
                how = {"split_k_mode": "none", "epilogue": bound, "out": out if also else out[0]}
                cleave.gemm(rows[:PART], b, **how)
            options = None, None, None, None, None, "none", PART, None, "", False, None
            _core.fold([products[0]] * self.size, out[0], *options)
        alone = _core.Places(groups_of(1, 8 * SHARE * INSIDE * 4)[0])
        dtypes = torch.float32, torch.float32, "none", "alone"
        form = _core.SumForm(
            SHARE, INSIDE, 0, SHARE, SHARE, False, False, True, False, "auto", None, *dtypes, part=PART
        )
        for stream in self.streams:  # each gets one beside
            with torch.cuda.stream(stream):
                _core.sum_over_ranks(alone, form, self.long[0, 0, :SHARE], self.b[0], *[None] * 6, False)
        torch.cuda.synchronize()

    def _inside(self, rank: int, at: int) -> torch.Tensor:
        a, b = self.a[rank, at], self.b[rank]
        return _core.sum_over_ranks(self.places[rank], self.form, a, b, None, None, None, None, None, None, False)

    def _send(self, rank: int, at: int, step: Step) -> None:
        """One way where products read it, the other to memory of its own, too."""
        own, all = self.parts[rank, at], self.all[rank, at]
        staged = step.place * self.size * own.nbytes
        kept = step.ways[rank]
        part = own.data_ptr(), own.nbytes, own.nbytes, staged, all.data_ptr() if kept else 0
        self.groups[rank].push([part], "sent", self.streams[rank].cuda_stream)
        if not kept:
            mine = self.groups[rank].staging(rank)[staged : staged + all.nbytes]
            copy(mine.view(torch.float32).view_as(all), all)

    def draw_step(self, number: int, captured: bool) -> Step:
        """A graph's first product that makes the sum itself meets the others: then all ranks take the same way."""
        kind, late = self.draw.choice(KINDS), [0] * self.size
        for rank in range(self.size):
            if self.draw.random() < 0.1:
                late[rank] = self.draw.randrange(20_000)
        ways = [self.draw.random() < 0.5 for _ in range(self.size)]
        return Step(kind, number % 2, late, ways[:1] * self.size if captured else ways)

    def take(self, rank: int, at: int, step: Step) -> None:
        """A rank's part of a round, on the current stream."""
        staging, group, kind, place = self.staging[rank], self.groups[rank], step.kind, step.place
        if step.late[rank]:
            torch.cuda._sleep(step.late[rank])
        if kind == "inside":
            if step.ways[rank]:
                self.made.setdefault(at, {})[rank] = self._inside(rank, at)
                return
            parts = [self.products[r, at] for r in range(self.size)]
            self.made.setdefault(at, {})[rank] = torch.empty_like(parts[0])
            options = None, None, None, None, None, "none", self.rows_inside, group, kind, True, None, True
            _core.fold(parts, self.made[at][rank], *options)
            return
        if kind in PARTS:
            self.made.setdefault(at, {})[rank] = self._in_parts(rank, at, kind)
            return
        if kind == "sent":
            self._send(rank, at, step)
            return
        copy(self.parts[rank, at], staging[rank][place])
        if kind == "gathered":
            own, out = staging[rank][place], self.all[rank, at]
            group.gather(own.data_ptr(), own.nbytes, out.data_ptr(), kind, self.streams[rank].cuda_stream)
            return
        parts = [staging[r][place] for r in range(self.size)]
        if "quantised" in kind:
            pushed = kind.startswith("pushed")
            self.made.setdefault(at, {})[rank] = quantised(parts, self.rows, group, kind, pushed)
            return
        out = self.sums[rank, at]
        _core.fold(parts, out, None, None, None, None, None, "none", self.rows, group, kind, kind == "pushed", None)

    def in_any_order(self) -> list[int]:
        return self.draw.sample(range(self.size), self.size)

    def forget(self) -> None:
        """Nothing that is right is left of the rounds before."""
        self.sums.fill_(float("nan"))
        self.all.fill_(float("nan"))
        for made in self.made.values():
            for x in made.values():
                x.view(torch.uint8).fill_(0xFF)
        torch.cuda.synchronize()

    def check(self, first: int, steps: list[Step]) -> None:
        torch.cuda.synchronize()
        problems = [group.problem() for group in (*self.groups, *self.of_parts)]
        assert not any(problems), (first, problems)
        for at, made in self.made.items():
            kind = steps[at].kind
            wrong = torch.stack([(x != self.expected(kind, at, rank)).any() for rank, x in made.items()])
            assert len(made) == self.size and not wrong.any(), (self.size, first + at, kind, wrong)
        sums, everyones = in_rank_order(self.parts), self.parts.transpose(0, 1)
        for at, step in enumerate(steps):
            if step.kind in ("inside", *PARTS) or "quantised" in step.kind:
                continue
            whole = step.kind in ("gathered", "sent")
            made, expected = (self.all[:, at], everyones[at]) if whole else (self.sums[:, at], sums[at])
            assert torch.equal(made, expected.expand_as(made)), (self.size, first + at, step.kind)

    def expected(self, kind: str, at: int, rank: int) -> torch.Tensor:
        """What a rank must have made."""
        if kind in PARTS:
            return self.long_sums[at] if kind.endswith("all") else self.long_sums[at, rank * SHARE :][:SHARE]
        return in_rank_order(self.products[:, at]) if kind == "inside" else quantised(list(self.parts[:, at]))

    def play(self, rounds: int) -> None:
        for first in range(0, rounds, ROUNDS_AT_ONCE):
            self.made.clear()
            self.forget()
            steps = [self.draw_step(first + at, captured=False) for at in range(ROUNDS_AT_ONCE)]
            for at, step in enumerate(steps):
                for rank in self.in_any_order():
                    with torch.cuda.stream(self.streams[rank]):
                        self.take(rank, at, step)
            self.check(first, steps)

    def replay(self, replays: int) -> int:
        """Rounds of new graphs."""
        self.made.clear()
        steps = [self.draw_step(at, captured=True) for at in range(ROUNDS_AT_ONCE)]
        graphs = [torch.cuda.CUDAGraph() for _ in range(self.size)]
        for rank, graph in enumerate(graphs):
            with torch.cuda.graph(graph, stream=self.streams[rank]):
                for at, step in enumerate(steps):
                    self.take(rank, at, step)
        for number in range(replays):
            self.parts.normal_()
            self.forget()
            for rank in self.in_any_order():
                with torch.cuda.stream(self.streams[rank]):
                    graphs[rank].replay()
            self.check(number * ROUNDS_AT_ONCE, steps)
        self.made.clear()
        return replays * ROUNDS_AT_ONCE


if __name__ == "__main__":
    size, rounds, *rest = map(int, sys.argv[1:])
    ranks, at_once, done = Ranks(size, *rest[:2]), 16 * ROUNDS_AT_ONCE, 0
    while done < rounds:
        if rest[2:]:
            done += ranks.replay(rest[2])
        else:
            ranks.play(min(at_once, rounds - done))
            done += min(at_once, rounds - done)
        print(f"{size} ranks: {done} rounds", flush=True)
