"""Ranks that are streams of one GPU: flags, places and orders of more ranks than there are GPUs.

    export CUDA_DEVICE_MAX_CONNECTIONS=32 CUDA_MODULE_LOADING=EAGER
    python tests/support/virtual_ranks.py RANKS ROUNDS [SEED [ROWS]]

In each round all ranks make the same call, drawn at random, in an order drawn anew, some of them late; results are
compared bit by bit. Kernels wait for each other on one GPU, so all of them must run at once: few CTAs, a queue of its
own for each stream, and nothing that is loaded or allocated in between. With 2 ranks there is room for the most CTAs of
a sum that is pushed: 512 rows.
"""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable
from typing import Any

import torch

import cleave
from cleave import _core

COLUMNS, ROUNDS_AT_ONCE = 1024, 64
# The last: some ranks' products add up themselves.
KINDS = ("pushed", "read", "quantised", "pushed and quantised", "gathered", "sent", "inside")
INSIDE, DEPTH = 256, 128  # columns and K of these: few CTAs, of which an SM has room for one


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


def in_rank_order(parts: torch.Tensor | list[torch.Tensor]) -> torch.Tensor:
    total = parts[0].clone()
    for part in parts[1:]:
        total += part
    return total


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
        self.made: dict[int, list[torch.Tensor]] = {}  # by the place of a round
        self._load()

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
        self.staging[0][0][0].copy_(self.parts[0, 0])
        torch.cuda._sleep(10)
        torch.cuda.synchronize()

    def _inside(self, rank: int, at: int) -> torch.Tensor:
        a, b = self.a[rank, at], self.b[rank]
        return _core.sum_over_ranks(self.places[rank], self.form, a, b, None, None, None, None, None, None, False)

    def _send(self, rank: int, at: int, place: int) -> None:
        """Half of the times where products read it, else to memory of its own, too."""
        own, all = self.parts[rank, at], self.all[rank, at]
        staged = place * self.size * own.nbytes
        kept = self.draw.random() < 0.5
        part = own.data_ptr(), own.nbytes, own.nbytes, staged, all.data_ptr() if kept else 0
        self.groups[rank].push([part], "sent", self.streams[rank].cuda_stream)
        if not kept:
            mine = self.groups[rank].staging(rank)[staged : staged + all.nbytes]
            all.copy_(mine.view(torch.float32).view_as(all))

    def round(self, number: int, at: int) -> str:
        kind, place = self.draw.choice(KINDS), number % 2
        for rank in self.draw.sample(range(self.size), self.size):
            with torch.cuda.stream(self.streams[rank]):
                staging, group = self.staging[rank], self.groups[rank]
                if self.draw.random() < 0.1:
                    torch.cuda._sleep(self.draw.randrange(20_000))
                if kind == "inside":
                    if self.draw.random() < 0.5:
                        self.made.setdefault(at, []).append(self._inside(rank, at))
                        continue
                    parts = [self.products[r, at] for r in range(self.size)]
                    self.made.setdefault(at, []).append(torch.empty_like(parts[0]))
                    options = None, None, None, None, None, "none", self.rows_inside, group, kind, True, None, True
                    _core.fold(parts, self.made[at][-1], *options)
                    continue
                if kind == "sent":
                    self._send(rank, at, place)
                    continue
                staging[rank][place].copy_(self.parts[rank, at])
                if kind == "gathered":
                    own, out = staging[rank][place], self.all[rank, at]
                    group.gather(own.data_ptr(), own.nbytes, out.data_ptr(), kind, self.streams[rank].cuda_stream)
                else:
                    parts = [staging[r][place] for r in range(self.size)]
                    if "quantised" in kind:
                        pushed = kind.startswith("pushed")
                        self.made.setdefault(at, []).append(quantised(parts, self.rows, group, kind, pushed))
                        continue
                    out = self.sums[rank, at]
                    _core.fold(
                        parts, out, None, None, None, None, None, "none", self.rows, group, kind, kind == "pushed", None
                    )
        return kind

    def play(self, rounds: int) -> None:
        for first in range(0, rounds, ROUNDS_AT_ONCE):
            self.sums.fill_(float("nan"))
            self.all.fill_(float("nan"))
            torch.cuda.synchronize()
            kinds = [self.round(first + at, at) for at in range(ROUNDS_AT_ONCE)]
            torch.cuda.synchronize()
            for group in self.groups:
                assert not group.problem(), group.problem()
            for at, made in self.made.items():
                inside = kinds[at] == "inside"
                expected = in_rank_order(self.products[:, at]) if inside else quantised(list(self.parts[:, at]))
                for x in made:
                    assert torch.equal(x, expected), (self.size, first + at, kinds[at])
            self.made.clear()
            for at, kind in enumerate(kinds):
                if kind == "inside" or "quantised" in kind:
                    continue
                expected = self.parts[:, at] if kind in ("gathered", "sent") else in_rank_order(self.parts[:, at])
                made = self.all[:, at] if kind in ("gathered", "sent") else self.sums[:, at]
                for rank in range(self.size):
                    assert torch.equal(made[rank], expected), (self.size, first + at, kind, rank)


if __name__ == "__main__":
    size, rounds, *rest = map(int, sys.argv[1:])
    ranks, at_once = Ranks(size, *rest), 16 * ROUNDS_AT_ONCE
    for first in range(0, rounds, at_once):
        ranks.play(min(at_once, rounds - first))
        print(f"{size} ranks: {min(first + at_once, rounds)} rounds", flush=True)
