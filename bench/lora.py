"""Adapters of low rank on a layer's result: y += scale * (x @ a[g].T) @ b[g].T, cleave.torch.lora against others.

    python -m bench.lora                                    # a table of ranks, widths, adapters and tokens
    python -m bench.lora --ranks 16 64 --features 4096

Marginal microseconds in a graph with a small kernel between the steps (between.py). Every step has adapters of its
own, which L2 does not hold, as a layer's are by the time its turn comes; x and y are warm, as the layer ahead leaves
them. All contenders take turns. Popularity of adapters is Zipf's, or --sizes: with few tokens many adapters have none.

`loop` is two torch products for every adapter that has tokens, with sizes that the host knows: a graph of it serves no
other batch. `grouped` is torch._grouped_mm, which has no residual, so y is added apart. `triton` is two launches of
peers/triton_grouped.py, with what it shrinks to in float32.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

import cleave.torch
from cleave.testing.group_sizes import SPREADS, ranges_of, spread_over
from cleave.testing.measure import set_count

from .between import Between, medians
from .peers import triton_grouped
from .summary import listed, spread, spread_text

RANKS = (8, 16, 32, 64)
FEATURES = (2048, 4096, 8192)
ADAPTERS = (1, 8, 64, 256)
TOKENS = (64, 512, 4096)
SCALE = 0.5
MOST_SETS = 48  # as many as there are steps in a graph
ROUNDS = 7
MOST_ERROR = 1e-2  # of the largest of y

CONTENDERS = ("cleave", "loop", "grouped", "triton")
Step = Callable[[int], Any]


class Layer:
    """One step's operands; a and b as often as leaves L2 cold."""

    def __init__(self, tokens: int, adapters: int, features: int, rank: int, sizes: str, dtype: torch.dtype) -> None:
        self.ranges = ranges_of(spread_over(adapters, tokens, sizes))
        self.offs = torch.tensor([end for _, end in self.ranges], dtype=torch.int32, device="cuda")
        self.x = torch.randn(tokens, features, device="cuda", dtype=dtype)
        self.y = torch.zeros_like(self.x)
        busy = sum(end > begin for begin, end in self.ranges)
        count = min(set_count(2 * busy * features * rank * dtype.itemsize), MOST_SETS)
        # All begin as one: what is multiplied does not matter, where it lies does.
        first = torch.randn(2, adapters, features * rank, device="cuda", dtype=dtype)
        sets = [first / features**0.5] + [torch.empty_like(first) for _ in range(count - 1)]
        for each in sets[1:]:
            each.copy_(sets[0])
        self.a = [each[0].view(adapters, rank, features) for each in sets]
        self.b = [each[1].view(adapters, features, rank) for each in sets]
        self.hidden = torch.empty(tokens, rank, device="cuda", dtype=dtype)
        self.wide_hidden = torch.empty(tokens, rank, device="cuda")

    def steps(self) -> dict[str, Step]:
        return {name: getattr(self, f"of_{name}") for name in CONTENDERS}

    def of_cleave(self, i: int) -> None:
        cleave.torch.lora(self.x, self.a[i], self.b[i], self.offs, SCALE, self.y, out=self.y)

    def of_loop(self, i: int) -> None:
        for (begin, end), a, b in zip(self.ranges, self.a[i], self.b[i], strict=True):
            if begin < end:
                hidden, y = self.hidden[begin:end], self.y[begin:end]
                torch.mm(self.x[begin:end], a.t(), out=hidden)
                torch.addmm(y, hidden, b.t(), alpha=SCALE, out=y)

    def of_grouped(self, i: int) -> None:
        hidden = torch._grouped_mm(self.x, self.a[i].mT, offs=self.offs)
        self.y.add_(torch._grouped_mm(hidden, self.b[i].mT, offs=self.offs), alpha=SCALE)

    def of_triton(self, i: int) -> None:
        triton_grouped.multiply(self.x, self.a[i].mT, self.offs, self.wide_hidden)
        triton_grouped.multiply(self.wide_hidden, self.b[i].mT, self.offs, self.y, SCALE, add=True)

    def expected(self) -> torch.Tensor:
        """Added to nothing."""
        y = torch.zeros_like(self.y, dtype=torch.float64)
        for (begin, end), a, b in zip(self.ranges, self.a[0], self.b[0], strict=True):
            y[begin:end] = SCALE * (self.x[begin:end].double() @ a.double().t()) @ b.double().t()
        return y

    def check(self, name: str, step: Step, expected: torch.Tensor) -> None:
        self.y.zero_()
        step(0)
        error = ((self.y.double() - expected).abs().max() / expected.abs().max()).item()
        if not error < MOST_ERROR:
            raise RuntimeError(f"{name} has an error of {error:.2g} of the largest of y, which may be {MOST_ERROR}")


def measure(layer: Layer, between: Between) -> dict[str, float]:
    """Each contender's microseconds of a step; of those that refuse, none."""
    samples, expected, count = {}, layer.expected(), len(layer.a)
    for name, step in layer.steps().items():
        try:
            layer.check(name, step, expected)
        except RuntimeError as refusal:
            if name == "cleave":
                raise
            print(f"  {name}: {str(refusal).splitlines()[0][:100]}")
            continue
        samples[name] = between.timed(lambda i, step=step: step(i % count))
    return medians(samples, ROUNDS)


def best_ratio(us: dict[str, float]) -> float:
    return min(time for name, time in us.items() if name != "cleave") / us["cleave"]


def summarize(rows: dict[str, dict[str, float]]) -> None:
    """Each peer's time over ours, the fastest peer's too, and where that is below 1."""
    for peer in dict.fromkeys(name for us in rows.values() for name in us if name != "cleave"):
        ratios = {row: us[peer] / us["cleave"] for row, us in rows.items() if peer in us}
        print(f"{peer}: {spread_text(spread(ratios))}")
    best = {row: best_ratio(us) for row, us in rows.items()}
    print(f"the fastest of them: {spread_text(spread(best))}")
    print(f"slower than the fastest: {listed([f'{row} ({ratio:.2f})' for row, ratio in best.items() if ratio < 1])}")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, values in (("ranks", RANKS), ("features", FEATURES), ("adapters", ADAPTERS), ("tokens", TOKENS)):
        parser.add_argument(f"--{name}", type=int, nargs="+", default=values)
    parser.add_argument("--sizes", choices=SPREADS, default="zipf", help="how tokens are spread over adapters")
    parser.add_argument("--dtype", choices=("bfloat16", "float16"), default="bfloat16")
    options = parser.parse_args(arguments)
    print(f"{torch.cuda.get_device_name()}, cleave {cleave.__version__}, torch {torch.__version__}; {options.dtype}")
    names = "".join(f"{name:>9}" for name in CONTENDERS)
    print(f"{'rank x features, adapters, tokens':36}{names}   best/ours, us")
    between, rows = Between(flush=True), {}
    sizes = itertools.product(options.features, options.ranks, options.adapters, options.tokens)
    for features, rank, adapters, tokens in sizes:
        layer = Layer(tokens, adapters, features, rank, options.sizes, getattr(torch, options.dtype))
        us = measure(layer, between)
        name = f"{rank} x {features}, {adapters}, {tokens}"
        rows[name] = us
        times = "".join(f"{us.get(each, math.nan):9.2f}" for each in CONTENDERS)
        print(f"{name:36}{times}{best_ratio(us):12.2f}", flush=True)
    summarize(rows)


if __name__ == "__main__":
    main()
