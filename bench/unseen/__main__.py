"""python -m bench.unseen: shapes of the *test* part, which no table and no fit has seen, against the peers.

What the planner takes by itself, and each peer, in turns in one process, graphs with a small ordinary kernel between
the launches (between.py), operand sets that leave L2 cold. Every row is kept; the report lists the lost ones.
"""

from __future__ import annotations

import argparse
import faulthandler
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

import cleave
from cleave import _core

from .. import machine, pairs, peers
from ..between import Between, medians
from ..jobs.every import EVERY_JOB, AnyJob, Shape
from ..operand_sets import OperandSets, sets_for
from ..shapes import Part
from . import report

JUDGED = ",".join(report.TITLES)
# So many times the shapes that are asked for are drawn.
DRAWN = 4
# Seconds of a row, what peers compile included, after which something does not end: the run does, with a trace.
HUNG = 120
# Results that differ by more than this share of D's norm are other products.
SAME = 0.05


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.unseen", description=__doc__)
    parser.add_argument("--jobs", default=JUDGED, help=", ".join(EVERY_JOB))
    parser.add_argument("--part", default="test", choices=("validation", "test"))
    parser.add_argument("--shapes", type=int, default=40, help="of each job")
    parser.add_argument("--seed", type=int, default=19, help="of the draw: 0 to 18 have been looked at")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=500, help="start no shape after this long")
    parser.add_argument("--out", type=Path, default=Path("bench/results"))
    arguments = parser.parse_args(argv)
    deadline = time.monotonic() + arguments.seconds
    jobs = [EVERY_JOB[name] for name in arguments.jobs.split(",")]
    between, missing, rows, pool = Between(), {}, [], pairs.compilers()
    facts, sensors, most = machine.describe(0), machine.Sensors(), 0
    for job in jobs:
        if time.monotonic() > deadline:
            break
        sets, (found, absent) = sets_for(job), peers.load(job.peers)
        missing |= absent
        notes = [f"Without {peer}: {why.rstrip('.')}." for peer, why in missing.items()]
        if (most := max(most, sensors.processes())) > 1:
            notes.append(f"{most} processes had the GPU: what takes over 2 ms takes twice as long beside others.")
            print(f"bench.unseen: {notes[-1]}", flush=True)
        drawn, left = served(job, arguments.part, arguments.shapes, arguments.seed, found), arguments.shapes
        for shape, _ in pairs.compiled_ahead(job, drawn, own_choice, pool):
            if left == 0 or time.monotonic() > deadline:
                break
            faulthandler.dump_traceback_later(HUNG, exit=True)
            try:
                row = measure(job, shape, found, sets, between, arguments.rounds)
            finally:
                faulthandler.cancel_dump_traceback_later()
            if row:
                rows.append(row)
                report.write(arguments.out, arguments.part, facts, rows, notes)  # a run may be cut off
                left -= row["same"]  # a row that compares two products says nothing
        print(report.line(rows, job.name), flush=True)
    pool.shutdown(cancel_futures=True)
    return 0 if all(row["same"] for row in rows) else 1


def served(job: AnyJob, part: Part, count: int, seed: int, found: Sequence[peers.Peer]) -> list[Shape]:
    """Shapes that a peer has, of DRAWN times `count` that are drawn: some of them may be tuned, or be refused."""
    drawn = job.shapes(part, DRAWN * count, seed)
    return [shape for shape in drawn if any(peer.serves(job.case(shape)) for peer in found)]


def own_choice(planned: Any, _: Shape) -> list[str]:
    return [planned.kernel_name]


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


if __name__ == "__main__":
    sys.exit(main())
