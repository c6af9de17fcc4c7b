"""python -m bench.regret: how much slower is what the planner takes than the fastest of its candidates.

Shapes are of the *validation* part, without those that the table of measured choices has. The choice is measured in
turns with its three best rivals, in one process, between ordinary kernels (between.py), over operand sets that leave
L2 cold. Rivals are the next candidates by prediction or, where more are asked for, the fastest of a first measurement
of them all. It resumes: shapes of which the file has a row are not measured again.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cleave
from cleave import _core

from . import pairs
from .between import Between, medians
from .jobs.every import EVERY_JOB, AnyJob, Shape
from .kept_rows import KeptRows
from .operand_sets import OperandSets, sets_for

RIVALS = 3
WORST = 3  # rows that are printed of each job
MOST_MEAN, MOST_PERCENTILE = 0.02, 0.06  # what was asked


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.regret", description=__doc__)
    parser.add_argument("--jobs", default=",".join(EVERY_JOB))
    parser.add_argument("--shapes", type=int, default=40, help="of each job")
    parser.add_argument("--seed", type=int, default=0, help="of the draw of shapes")
    parser.add_argument("--candidates", type=int, default=1 + RIVALS, help="of each shape: the first by prediction")
    parser.add_argument("--all", action="store_true", help="all candidates, which takes minutes a shape")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=540, help="start no shape after this long")
    parser.add_argument("--out", type=Path, default=Path("bench/results/regret.json"))
    arguments = parser.parse_args(argv)
    jobs = [EVERY_JOB[name] for name in arguments.jobs.split(",")]
    count = None if arguments.all else arguments.candidates
    kept, between, pool = KeptRows(arguments.out, arguments.seconds), Between(), pairs.compilers()
    for job in jobs:
        drawn = job.shapes("validation", arguments.shapes, arguments.seed)
        shapes = kept.missing(job.name, [(job.case(shape).title, shape) for shape in drawn])
        if shapes and not kept.time_is_up:
            sets = sets_for(job)
            for shape, plans in pairs.compiled_ahead(job, shapes, lambda planned, _: first(planned, count), pool):
                if kept.time_is_up:
                    break
                if plans:
                    kept.add(measure(job, shape, plans, sets, between, arguments.rounds))
        print(*summary(kept.rows, job.name), sep="\n", flush=True)
    print(*summary(kept.rows), sep="\n")
    pool.shutdown(cancel_futures=True)
    return 0


def first(planned: Any, count: int | None) -> list[str]:
    """The planner's choice, and the candidates behind it; none where it was not the model that chose."""
    if _core.is_tuned(planned):
        return []
    names = [planned.kernel_name, *(candidate["kernel"] for candidate in planned.candidates)]
    return list(dict.fromkeys(names))[:count]


def measure(
    job: AnyJob, shape: Shape, plans: Sequence[Any], sets_of: OperandSets, between: Between, rounds: int
) -> dict[str, Any]:
    """One row; the first of the plans is the planner's choice."""
    case = job.case(shape)
    samples, choice = dict(pairs.samples_of(job, plans, sets_of.operands(case), between)), plans[0].kernel_name
    others = [name for name in samples if name != choice]
    if len(others) > RIVALS:
        once = {name: samples[name]() for name in others}
        others = sorted(others, key=once.__getitem__)[:RIVALS]
    us = medians({name: samples[name] for name in (choice, *others)}, rounds)
    cleave.release_workspaces()
    best = min(us, key=us.__getitem__)
    return {
        "job": job.name,
        "case": case.title,
        "candidates": len(samples),
        "kernel": choice,
        "us": us[choice],
        "best": best,
        "best_us": us[best],
        "regret": us[choice] / us[best] - 1,
    }


def summary(rows: Sequence[dict[str, Any]], job: str | None = None) -> list[str]:
    """Lines about a job, with its worst rows, or about all."""
    own = sorted((row for row in rows if job in (None, row["job"])), key=lambda row: -row["regret"])
    if not own:
        return [f"{job or 'all jobs'}: nothing measured."]
    regrets = [row["regret"] for row in own]
    mean, percentile = statistics.fmean(regrets), nearest_rank(regrets, 0.99)
    met = "met" if mean <= MOST_MEAN and percentile <= MOST_PERCENTILE else "missed"
    lines = [
        f"{job or 'all jobs'}: {len(own)} shapes, regret {mean:.2%} in the mean, {percentile:.2%} at the 99th "
        f"percentile; asked {MOST_MEAN:.0%} and {MOST_PERCENTILE:.0%}: {met}"
    ]
    for row in own[: WORST if job else 0]:
        lines.append(
            f"  {row['regret']:7.2%}  {row['case']}: {row['us']:.2f} us {row['kernel']}; "
            f"{row['best_us']:.2f} {row['best']}"
        )
    return lines


def nearest_rank(values: Sequence[float], share: float) -> float:
    """The smallest of the values that this share of them does not exceed."""
    return sorted(values)[math.ceil(share * len(values)) - 1]


if __name__ == "__main__":
    sys.exit(main())
