"""Ranks that are threads of the host: flags, places, orders and resets of up to 16 ranks, on the CPU.

    python tests/support/thread_ranks.py RANKS ROUNDS [SEED]

In each round all ranks make the same call, drawn at random, some of them late; now and then they make different ones,
and reset their group. Results are compared bit by bit.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from typing import Any

import torch
from virtual_ranks import all_gather_of, in_rank_order, onto, quantised

import cleave
from cleave import _core

ROWS, COLUMNS, DEPTH = 6, 64, 32
SUMS = ("summed", "scattered", "summed twice", "in parts", "in parts twice", "onto parts", "onto parts twice")
PRODUCTS = ("multiplied", "multiplied in parts")
KINDS = ("read", "pushed", "quantised", "gathered", "sent", *SUMS, *PRODUCTS, "broken")
WEIGHTS = (*[4] * (len(KINDS) - 1), 0.02)
SHARE, PART = 5, 3  # rows of a rank, and of what moves together
PLACE = 16384


class Rank:
    """One of them, in a thread of its own."""

    def __init__(self, rank: int, size: int, seed: int, said: list[str], met: threading.Barrier) -> None:
        self.rank, self.size, self.draw, self.late = rank, size, random.Random(seed), random.Random(seed + 1 + rank)
        self.group = _core.Group.share(rank, size, -1, 4 * size * PLACE, all_gather_of(rank, said, met))
        self.places = _core.Places(self.group)
        self.staging = [self.group.staging(r) for r in range(size)]
        generator = torch.Generator().manual_seed(seed)
        self.parts = torch.randn(size, ROWS, COLUMNS, generator=generator)
        self.a = torch.randn(size, ROWS, DEPTH, generator=generator)
        self.b = torch.randn(size, DEPTH, COLUMNS, generator=generator)
        products = [cleave.gemm(x, y) for x, y in zip(self.a, self.b, strict=True)]
        self.sum, self.product = in_rank_order(list(self.parts)), in_rank_order(products)
        dtypes = torch.float32, torch.float32, "none"
        share = -(-ROWS // size)
        self.first, self.own = min(rank * share, ROWS), max(min(ROWS - rank * share, share), 0)
        self.sums = self.forms_of_sums(("auto", None, *dtypes), share)
        self.long = torch.randn(size, size * SHARE, DEPTH, generator=generator)
        self.long_sum = in_rank_order([cleave.gemm(x, y) for x, y in zip(self.long, self.b, strict=True)])
        self.gathers = self.forms_of_gathers()

    def forms_of_sums(self, kinds: tuple[Any, ...], share: int) -> dict[str, Any]:
        """Sums of ROWS at once, and of so many of each rank in parts."""
        own = self.first, self.own, share, False, False
        made = {
            "summed": _core.SumForm(ROWS, COLUMNS, 0, ROWS, ROWS, True, False, False, False, *kinds, "summed"),
            "scattered": _core.SumForm(ROWS, COLUMNS, *own, False, False, *kinds, "scattered"),
            "summed twice": _core.SumForm(ROWS, COLUMNS, *own, False, False, *kinds, "summed twice", gathered=True),
        }
        own = self.rank * SHARE, SHARE, SHARE, False, False
        for name, twice in (("parts", False), ("parts twice", True)):
            function = onto(self.rank, self.size, int(twice)).text
            for call, how in ((f"in {name}", {}), (f"onto {name}", {"onto": function})):
                how |= {"gathered": twice, "part": PART}
                made[call] = _core.SumForm(self.size * SHARE, COLUMNS, *own, True, False, *kinds, call, **how)
        return made

    def forms_of_gathers(self) -> dict[str, list[Any]]:
        """Those of all rows at once, and in parts, of which each rank may await and multiply as many as it likes."""
        dtypes = torch.float32, "none"
        rows = self.size * SHARE, SHARE
        ways = [{"awaits_all": all, "by_rank": by_rank} for all in (False, True) for by_rank in (False, True)]
        return {
            "multiplied": [_core.GatherForm(self.size * ROWS, ROWS, *dtypes, "multiplied")],
            "multiplied in parts": [_core.GatherForm(*rows, *dtypes, "in parts", PART, **way) for way in ways],
        }

    def multiplied(self, kind: str, number: int) -> str:
        a = self.long[:, :SHARE] if "parts" in kind else self.a
        forms, kept = self.gathers[kind], (number + self.rank) % 3 == 0
        form = forms[(number + self.rank) % len(forms)]
        given = a[self.rank], self.b[self.rank], None, None, None, None, False, kept
        made, rows = _core.gather_over_ranks(self.places, form, *given)
        whole = a.flatten(0, 1)
        if kept and not torch.equal(rows, whole):
            return f"{number} {kind}: rows"
        return "" if torch.equal(made, cleave.gemm(whole, self.b[self.rank])) else f"{number} {kind}"

    def summed(self, kind: str) -> tuple[torch.Tensor, torch.Tensor]:
        """And what it must be."""
        a, all = (self.long, self.long_sum) if "parts" in kind else (self.a, self.product)
        given = a[self.rank], self.b[self.rank], None, None, None, None, None, None, False
        made = _core.sum_over_ranks(self.places, self.sums[kind], *given)
        if kind == "summed" or "twice" in kind:
            return made, all
        return made, all[self.rank * SHARE :][:SHARE] if "parts" in kind else all[self.first :][: self.own]

    def place(self, rank: int, at: int) -> torch.Tensor:
        return (
            self.staging[rank][at * self.size * PLACE :][: 4 * ROWS * COLUMNS].view(torch.float32).view(ROWS, COLUMNS)
        )

    def round(self, number: int) -> str:
        """What was wrong, or an empty text."""
        kind = self.draw.choices(KINDS, WEIGHTS)[0]
        if self.late.random() < 0.02:
            time.sleep(self.late.random() * 1e-3)
        if kind == "broken":
            return self.broken()
        if kind in PRODUCTS:
            return self.multiplied(kind, number)
        if kind in SUMS:
            made, expected = self.summed(kind)
        else:
            made, expected = self.moved(kind, number)
        return "" if torch.equal(made, expected) else f"{number} {kind}"

    def moved(self, kind: str, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        own, at = self.parts[self.rank], self.places.next(0)  # as all calls do, which take turns
        everyones = torch.full_like(self.parts, float("nan"))
        if kind == "sent":
            kept = number % 2 == 0
            part = own.data_ptr(), own.nbytes, own.nbytes, at * self.size * PLACE, everyones.data_ptr() if kept else 0
            self.group.push([part], kind, 0)
            if not kept:
                begin = at * self.size * PLACE
                sent = self.staging[self.rank][begin : begin + everyones.nbytes]
                everyones.copy_(sent.view(torch.float32).view_as(everyones))
            return everyones, self.parts
        mine = self.place(self.rank, at)
        mine.copy_(own)
        if kind == "gathered":
            self.group.gather(mine.data_ptr(), own.nbytes, everyones.data_ptr(), kind, 0)
            return everyones, self.parts
        parts, out = [self.place(r, at) for r in range(self.size)], torch.empty_like(own)
        if kind == "quantised":
            return quantised(parts, ROWS, self.group, kind, number % 2 == 0), quantised(list(self.parts))
        options = None, None, None, None, None, "none", ROWS, self.group, kind, kind == "pushed", None
        _core.fold(parts, out, *options)
        return out, self.sum

    def broken(self) -> str:
        if self.size == 1:
            return ""
        try:
            for _ in range(1 + self.rank):
                self.group.barrier(f"what rank {self.rank} alone calls", 0)
            return "it was not broken"
        except _core.PeerError:
            self.group.reset()
            self.places.reset()
        return self.group.problem()


def play(size: int, rounds: int, seed: int = 0) -> list[str]:
    """What went wrong."""
    said, met, wrong = [""] * size, threading.Barrier(size), []

    def run(rank: int) -> None:
        try:
            mine = Rank(rank, size, seed, said, met)
            for number in range(rounds):
                if found := mine.round(number):
                    wrong.append(f"{size} ranks, rank {rank}: {found}")
        except BaseException as error:
            wrong.append(f"{size} ranks, rank {rank}: {error!r}")
            raise

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return wrong


if __name__ == "__main__":
    torch.set_num_threads(1)
    size, rounds, *rest = map(int, sys.argv[1:])
    assert not (wrong := play(size, rounds, *rest)), wrong[:5]
    print(f"{size} ranks: {rounds} rounds")
