"""python -m bench.cover: the fewest kernels that serve all shapes of a job about as well as the whole catalogue.

From the measured pairs of bench/pairs.py. A kernel counts once, however many slices of K a launch of it takes. Greedy:
the next kernel is the one that lowers most what shapes lose, in the mean, against the fastest that was measured of
them. Not every kernel was measured for every shape: what was not is taken as the planner's model has it, in
proportion to the measured ones; and to shapes that were measured come others of the same part, of the model alone, so
that kernels for sizes between are there, too.

What is printed was measured: how much slower than the fastest of all kernels is the fastest of the set ("best"), and
the one of the set that the model takes ("chosen"; of all kernels, in the line above), for shapes whose weights the set
was not made from, eight parts in turns. A kernel that was not measured counts as not there. No GPU is needed.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from cleave import _core

from .jobs.every import AnyJob, Shape
from .measured_pairs import MEASURED, hash_of_weights, read_jobs

TABLE = Path(__file__).parent.parent / "src/plan/measured/covering/h200.txt"
SIZE = 24
SIZES = (8, 12, 16, 20, 24, 32, 48)
FOLDS = 8

MOST = 2.0  # what a shape can lose: kernels that cannot serve it lose as much
UNMEASURED = 1.03  # the model's kernels, since those that it thinks well of were measured
NEAR = 0.3  # of the fastest, kernels that say how far the model is off
SHAPES_OF_MODEL = 200
WEIGHT_OF_MODEL = 1.0  # of all of those, beside all that were measured


@dataclass
class Pair:
    kernel: str
    predicted: float
    us: float  # inf: not measured


@dataclass
class Measured:
    """A shape with all kernels that the planner would consider, and those that were measured."""

    fold: int
    pairs: list[Pair]

    @cached_property
    def fastest(self) -> float:
        return min(pair.us for pair in self.pairs)

    def of(self, kernels: set[str] | None = None) -> tuple[float, float]:
        """What the fastest of a set (None: of all), and the one that the model takes, lose; nan if none of it was
        measured."""
        able = [pair for pair in self.pairs if pair.us < np.inf and (kernels is None or pair.kernel in kernels)]
        if not able:
            return np.nan, np.nan
        chosen = min(able, key=lambda pair: pair.predicted)
        return min(pair.us for pair in able) / self.fastest - 1, chosen.us / self.fastest - 1

    @cached_property
    def losses(self) -> dict[str, float]:
        """Those of all kernels."""
        near = [pair.us / pair.predicted for pair in self.pairs if pair.us < (1 + NEAR) * self.fastest]
        off = float(np.median(near)) * UNMEASURED
        best: dict[str, float] = {}
        for pair in self.pairs:
            us = pair.us if pair.us < np.inf else pair.predicted * off
            best[pair.kernel] = min(best.get(pair.kernel, np.inf), us)
        return {kernel: max(us / self.fastest - 1, 0) for kernel, us in best.items()}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.cover", description=__doc__)
    parser.add_argument("--folder", type=Path, default=MEASURED, help="of the pairs")
    parser.add_argument("--jobs", help="whose sets are made anew, with commas between them: by default all")
    parser.add_argument("--size", type=int, default=SIZE, help="kernels of each job")
    parser.add_argument("--check", action="store_true", help="print what sets of all sizes lose, and write nothing")
    arguments = parser.parse_args(argv)
    sets = read_table()
    for job, shapes in read_jobs(arguments.folder):
        if arguments.jobs and job.name not in arguments.jobs.split(","):
            continue
        known = [Measured(fold_of(job, shape), pairs_of(job, shape, us)) for shape, us in shapes]
        known = [each for each in known if each.pairs and each.fastest < np.inf]
        drawn = job.shapes("fit", SHAPES_OF_MODEL, seed=1)
        beside = [(fold_of(job, shape), losses_by_model(job, shape)) for shape in drawn]
        report(job, known, beside, SIZES if arguments.check else (arguments.size,))
        sets[job.name] = covering(known, beside, arguments.size)
    if not arguments.check:
        TABLE.write_text(table(sets))
        print("wrote", TABLE)
    return 0


def fold_of(job: AnyJob, shape: Shape) -> int:
    return hash_of_weights(job.weights(shape)) % FOLDS


def kernel_of(choice: str) -> str:
    """What is compiled for a choice: slices of these modes are a launch's to say."""
    return re.sub(r"(serial|parallel|stream_k) \d+", r"\1 1", choice)


def pairs_of(job: AnyJob, shape: Shape, us: dict[str, float]) -> list[Pair]:
    """Those of the Hopper kernel, which the model predicts. Convolutions that are products take those of products."""
    planned = job.case(shape).plan("h100")
    model = _core.ProductModel()
    names = []
    for name in dict.fromkeys([*(candidate["kernel"] for candidate in planned.candidates), *us]):
        if " product" not in name and model.add(planned, name) >= 0:
            names.append(name)
    predicted = model.predict_shipped() if names else []
    return [Pair(kernel_of(name), time, us.get(name, np.inf)) for name, time in zip(names, predicted, strict=True)]


def losses_by_model(job: AnyJob, shape: Shape) -> dict[str, float]:
    best: dict[str, float] = {}
    for pair in pairs_of(job, shape, {}):
        best[pair.kernel] = min(best.get(pair.kernel, np.inf), pair.predicted)
    fastest = min(best.values(), default=1.0)
    return {kernel: us / fastest - 1 for kernel, us in best.items()}


def covering(known: Sequence[Measured], beside: Sequence[tuple[int, dict[str, float]]], size: int) -> list[str]:
    """The kernels, in the order in which they were added; fewer than `size` where more bring nothing."""
    rows = [each.losses for each in known] + [losses for _, losses in beside]
    weights = np.array([1 / len(known)] * len(known) + [WEIGHT_OF_MODEL / max(len(beside), 1)] * len(beside))
    kernels = sorted({kernel for each in known for kernel in each.losses})
    lost = np.array([[min(row.get(kernel, MOST), MOST) for kernel in kernels] for row in rows])
    now = np.full(len(rows), MOST)
    chosen: list[str] = []
    while len(chosen) < size:
        total = weights @ np.minimum(lost, now[:, None])
        best = int(total.argmin())
        if total[best] >= weights @ now:
            break
        chosen.append(kernels[best])
        now = np.minimum(now, lost[:, best])
    return chosen


def report(
    job: AnyJob, known: Sequence[Measured], beside: Sequence[tuple[int, dict[str, float]]], sizes: Sequence[int]
) -> None:
    of_all = np.nanmean([each.of()[1] for each in known])
    print(f"{job.name}: {len(known)} shapes, chosen of all kernels {of_all:.3f}", flush=True)
    best, chosen = {size: [] for size in sizes}, {size: [] for size in sizes}
    for fold in range(FOLDS):
        others = [each for each in known if each.fold != fold]
        if len(others) in (0, len(known)):
            continue
        drawn = [each for each in beside if each[0] != fold]
        kernels = covering(others, drawn, max(sizes))
        for size in sizes:
            left_out = [each.of(set(kernels[:size])) for each in known if each.fold == fold]
            best[size] += [loss for loss, _ in left_out]
            chosen[size] += [loss for _, loss in left_out]
    for size in sizes:
        print(
            f"  {size:3} kernels: best {np.nanmean(best[size]):.3f}, 90th {np.nanquantile(best[size], 0.9):.3f}; "
            f"chosen {np.nanmean(chosen[size]):.3f}, 90th {np.nanquantile(chosen[size], 0.9):.3f}; "
            f"{np.isnan(best[size]).sum()} shapes with none measured",
            flush=True,
        )


def read_table() -> dict[str, list[str]]:
    """Each job's kernels, as they ship."""
    sets: dict[str, list[str]] = {}
    for line in TABLE.read_text().splitlines():
        if not line.startswith("#"):
            job, kernel = line.split(" | ")
            sets.setdefault(job, []).append(kernel)
    return sets


def table(sets: dict[str, list[str]]) -> str:
    return HEAD + "".join(f"{job} | {kernel}\n" for job, kernels in sets.items() for kernel in kernels)


HEAD = """# Written by python -m bench.cover: few kernels of each job that serve all of its shapes (covering.h).
# Slices of parallel and stream_k are a launch's to say.
"""

if __name__ == "__main__":
    sys.exit(main())
