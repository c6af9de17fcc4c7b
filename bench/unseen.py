"""python -m bench.unseen: shapes of the *test* part, which no table and no fit has seen, against the peers.

What the planner takes by itself, and each peer, in turns in one process, graphs with a small ordinary kernel between
the launches (between.py), operand sets that leave L2 cold. Every row is kept; the report lists the lost ones.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

import cleave
from cleave import _core

from . import machine, peers, tables
from .between import Between, medians
from .every_job import EVERY_JOB, AnyJob, Shape
from .operand_sets import OperandSets, sets_for
from .report import table

JUDGED = (
    "bf16 tn,bf16 nn,bf16 tt,fp8 rows,fp8 blocks,bf16 large K,grouped bf16 forward,grouped bf16 dgrad,"
    "grouped bf16 wgrad,conv fprop,conv dgrad,conv wgrad"
)
# Results that differ by more than this share of D's norm are other products.
SAME = 0.05
# Rows at this or above count as level with the peer.
NEAR = 0.97


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.unseen", description=__doc__)
    parser.add_argument("--jobs", default=JUDGED, help=", ".join(EVERY_JOB))
    parser.add_argument("--part", default="test", choices=("validation", "test"))
    parser.add_argument("--shapes", type=int, default=40, help="of each job")
    parser.add_argument("--seed", type=int, default=3, help="of the draw: 0 to 2 have been looked at")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=500, help="start no shape after this long")
    parser.add_argument("--out", type=Path, default=Path("bench/results"))
    arguments = parser.parse_args(argv)
    deadline = time.monotonic() + arguments.seconds
    jobs = [EVERY_JOB[name] for name in arguments.jobs.split(",")]
    drawn = {job.name: job.shapes(arguments.part, arguments.shapes, arguments.seed) for job in jobs}
    compile_ahead(drawn)
    between, missing, rows = Between(), {}, []
    for job in jobs:
        sets, (found, absent) = sets_for(job), peers.load(job.peers)
        missing |= absent
        for shape in drawn[job.name]:
            if time.monotonic() < deadline and (row := measure(job, shape, found, sets, between, arguments.rounds)):
                rows.append(row)
        print(*summary(rows, job.name), sep="\n", flush=True)
    notes = [f"Without {peer}: {why.rstrip('.')}." for peer, why in missing.items()]
    write(arguments.out, arguments.part, machine.describe(0), rows, notes)
    return 0 if all(row["same"] for row in rows) else 1


def compile_kernel(job: str, shape: Shape) -> None:
    """As the GPU's own planner will want it, into the cache on disk."""
    plan = EVERY_JOB[job].case(shape).plan("cuda")
    if plan.kernel_source:
        _core.compile_plan(plan)


def compile_ahead(drawn: dict[str, list[Shape]]) -> None:
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as compilers:
        wanted = [(name, shape) for name, shapes in drawn.items() for shape in shapes]
        list(compilers.map(compile_kernel, *zip(*wanted, strict=True), chunksize=4))


def measure(
    job: AnyJob, shape: Shape, found: Sequence[peers.Peer], sets_of: OperandSets, between: Between, rounds: int
) -> dict[str, Any] | None:
    """One row, or None where no peer serves the shape, or it stands in the table of measured choices."""
    case = job.case(shape)
    make_room()
    sets = sets_of.operands(case)
    plan = job.testing.plan_for(case, sets[0])
    if _core.is_tuned(plan):
        return None
    ours = lambda i: job.testing.run(plan, sets[i % len(sets)], between.stream)  # noqa: E731
    expected = sets_of.result_of(lambda: ours(0), sets[0])
    samples, same = {"cleave": between.timed(ours)}, True
    for peer in found:
        own = [replace(operands) for operands in sets]  # a peer may leave its result in another array
        calls = sets_of.theirs(peer, case, own)
        if calls is None:
            continue
        try:
            theirs = sets_of.result_of(calls[0], own[0])
            samples[peer.name] = between.timed(lambda i, calls=calls: calls[i % len(calls)]())
        except (RuntimeError, ValueError, AssertionError) as error:
            print(f"{case.title}: without {peer.name}: {peers.reason(error)}")
            continue
        if peer.serves(case) == case:
            same &= bool(torch.linalg.norm(theirs - expected) <= SAME * torch.linalg.norm(theirs))
    if len(samples) == 1:
        return None
    us = medians(samples, rounds)
    cleave.release_workspaces()
    return {
        "job": job.name,
        "case": case.title,
        "kernel": plan.kernel_name,
        "us": us.pop("cleave"),
        "peers": us,
        "same": same,
    }


def make_room() -> None:
    """Gives back what torch keeps of operands that are gone: groups and convolutions make theirs anew."""
    free, total = torch.cuda.mem_get_info()
    if free < total / 2:
        torch.cuda.empty_cache()


def ratio_of(row: dict[str, Any]) -> float:
    """The best peer's time over ours."""
    return min(row["peers"].values()) / row["us"]


def summary(rows: list[dict[str, Any]], job: str) -> list[str]:
    ratios = sorted((ratio_of(row), row["case"]) for row in rows if row["job"] == job and row["same"])
    if not ratios:
        return [f"{job}: nothing measured."]
    geomean = math.exp(statistics.fmean(math.log(ratio) for ratio, _ in ratios))
    near = sum(ratio >= NEAR for ratio, _ in ratios)
    worst = f"worst {ratios[0][0]:.2f} on {ratios[0][1]}, best {ratios[-1][0]:.2f}"
    return [
        f"{job}: the best peer's time over ours: geomean {geomean:.3f} of {len(ratios)}, {worst}; {near} >= {NEAR}."
    ]


def write(folder: Path, part: str, facts: dict[str, Any], rows: list[dict[str, Any]], notes: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    name, rows = "unseen" if part == "test" else f"unseen_{part}", tables.rounded(rows)
    result = {"suite": name, "machine": facts, "notes": notes, **tables.pack(rows)}
    (folder / f"{name}.json").write_text(tables.text(result))
    jobs = list(dict.fromkeys(row["job"] for row in rows))
    cells = [
        [row["job"], row["case"], row["us"], row["kernel"], best, row["peers"][best], ratio_of(row)]
        for row in sorted(rows, key=lambda row: (jobs.index(row["job"]), ratio_of(row)))
        if ratio_of(row) < NEAR and row["same"]
        for best in [min(row["peers"], key=row["peers"].__getitem__)]
    ]
    lines = [
        f"# Shapes of the {part} part, that no table and no fit has seen",
        "",
        ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in facts.items() if value is not None),
        "",
        *(line for job in jobs for line in summary(rows, job)),
        *notes,
        "",
        *(f"Left out, since a peer has another product: {row['case']}." for row in rows if not row["same"]),
        "",
        f"Rows below {NEAR}; the JSON beside this has all.",
        "",
        *table(["job", "case", "us", "kernel", "best peer", "its us", "its / ours"], cells),
    ]
    (folder / f"{name}.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
