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
from typing import Any

import torch

import cleave
from cleave import _core

COLUMNS, ROUNDS_AT_ONCE = 1024, 64
KINDS = ("pushed", "awaited", "of a product", "read", "gathered")
INNER = 256  # of the products, whose sums take their words while they are stored


def groups_of(size: int, place: int) -> list[Any]:
    """A group's ranks, which threads make together; two places in each one's staging."""
    made: list[Any] = [None] * size
    said: list[str] = [""] * size
    met = threading.Barrier(size)

    def run(rank: int) -> None:
        def all_gather(own: str) -> list[str]:
            said[rank] = own
            met.wait()
            everyones = list(said)
            met.wait()
            return everyones

        made[rank] = _core.Group.share(rank, size, torch.cuda.current_device(), 2 * place, all_gather)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return made


def in_rank_order(parts: torch.Tensor) -> torch.Tensor:
    total = parts[0].clone()
    for part in parts[1:]:
        total += part
    return total


def fold(
    parts: list[torch.Tensor],
    out: torch.Tensor,
    rows: int,
    group: Any = None,
    call: str = "",
    pushed: bool = False,
    awaits: bool = False,
) -> None:
    _core.fold(parts, out, None, None, None, None, None, "none", rows, group, call, pushed, awaits, False, None)


class Ranks:
    def __init__(self, size: int, seed: int = 0, rows: int = 4) -> None:
        self.size, self.rows, self.draw = size, rows, random.Random(seed)
        shape = ROUNDS_AT_ONCE, rows, COLUMNS
        generator = torch.Generator("cuda").manual_seed(seed)
        self.parts = torch.randn(size, *shape, device="cuda", generator=generator)
        self.sums = torch.empty(size, *shape, device="cuda")
        self.a = torch.randn(size, ROUNDS_AT_ONCE, rows, INNER, device="cuda", generator=generator).bfloat16()
        self.b = torch.randn(COLUMNS, INNER, device="cuda", generator=generator).bfloat16().t()
        self.products = torch.stack([torch.stack([self._product(a) for a in of_rank]) for of_rank in self.a])
        self.all = torch.empty(size, ROUNDS_AT_ONCE, size, rows, COLUMNS, device="cuda")
        self.streams = [torch.cuda.Stream() for _ in range(size)]
        self.groups = groups_of(size, 4 * rows * COLUMNS)
        kinds = True, True, True, False, "float32", "float32", "none"
        self.form = _core.SumForm(rows, COLUMNS, 0, rows, rows, *kinds, "a product's sum")
        self.places = [_core.Places(group) for group in self.groups]
        self.awaited = [g.awaited().view(torch.float32)[: rows * COLUMNS].view(rows, COLUMNS) for g in self.groups]
        self.staging = [
            [g.staging(r).view(torch.float32).view(2, rows, COLUMNS) for r in range(size)] for g in self.groups
        ]
        self._load()

    def _product(self, a: torch.Tensor) -> torch.Tensor:
        return cleave.gemm(a, self.b, out_dtype=torch.float32, split_k_mode="none")

    def _load(self) -> None:
        """Everything that a round launches, by ranks that meet nobody."""
        alone = groups_of(1, 4 * self.rows * COLUMNS)[0]
        everyones = [self.parts[r, 0] for r in range(self.size)]
        stream = torch.cuda.current_stream().cuda_stream
        alone.barrier("nothing", stream)
        own = alone.staging(0)
        alone.gather(own.data_ptr(), 4 * self.rows * COLUMNS, self.all.data_ptr(), "nothing", stream)
        for pushed in (False, True):
            fold(everyones, self.sums[0, 0], self.rows, pushed=pushed)
        self.staging[0][0][0].copy_(self.parts[0, 0])
        torch.cuda._sleep(10)
        for stream in self.streams:  # room for what sum_over_ranks makes
            with torch.cuda.stream(stream):
                torch.empty(self.rows, COLUMNS, device="cuda")
        for kind in KINDS[1:3]:  # whose kernels nobody has without a group
            torch.cuda.synchronize()
            for rank in range(self.size):
                with torch.cuda.stream(self.streams[rank]):
                    self.sum(kind, rank, 0, 0)
        torch.cuda.synchronize()

    def sum(self, kind: str, rank: int, at: int, place: int) -> None:
        group, out = self.groups[rank], self.sums[rank, at]
        if kind == "of a product":
            operands = self.a[rank, at], self.b, None, None, None, None, None, None, False
            out.copy_(_core.sum_over_ranks(self.places[rank], self.form, *operands))
        elif kind == "awaited":
            self.awaited[rank].copy_(self.parts[rank, at])
            fold([self.awaited[rank]] * self.size, out, self.rows, group, kind, pushed=True, awaits=True)
        else:
            parts = [self.staging[rank][r][place] for r in range(self.size)]
            fold(parts, out, self.rows, group, kind, pushed=kind == "pushed")

    def round(self, number: int, at: int) -> str:
        kind, place = self.draw.choice(KINDS), number % 2
        for rank in self.draw.sample(range(self.size), self.size):
            with torch.cuda.stream(self.streams[rank]):
                own = self.staging[rank][rank][place]
                if self.draw.random() < 0.1:
                    torch.cuda._sleep(self.draw.randrange(20_000))
                own.copy_(self.parts[rank, at])
                if kind == "gathered":
                    stream, out = self.streams[rank].cuda_stream, self.all[rank, at]
                    self.groups[rank].gather(own.data_ptr(), own.nbytes, out.data_ptr(), kind, stream)
                else:
                    self.sum(kind, rank, at, place)
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
            for at, kind in enumerate(kinds):
                parts = (self.products if kind == "of a product" else self.parts)[:, at]
                expected = parts if kind == "gathered" else in_rank_order(parts)
                made = self.all[:, at] if kind == "gathered" else self.sums[:, at]
                for rank in range(self.size):
                    assert torch.equal(made[rank], expected), (self.size, first + at, kind, rank)


if __name__ == "__main__":
    size, rounds, *rest = map(int, sys.argv[1:])
    Ranks(size, *rest).play(rounds)
    print(f"{size} ranks: {rounds} rounds")
