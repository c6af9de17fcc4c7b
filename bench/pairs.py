"""python -m bench.pairs: measure (shape, kernel) pairs of fit shapes, for the planner's model to be fitted to.

It resumes: shapes that a file of the folder has are not measured again, so that it can run in slices. Beside each
shape stand the GPU's clock and power, and what the fastest peer takes. One file a job: a line "shape | SM MHz | watts |
peer's microseconds" for each shape (dense products: m n k), and below it a line "microseconds kernel" for each kernel,
with a small ordinary kernel between its launches.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread
from typing import Any

import cleave
from cleave import _core

from . import peers
from .between import Between
from .jobs.every import EVERY_JOB, AnyJob, Shape
from .machine import Sensors
from .measured_pairs import read_shapes
from .operand_sets import OperandSets, sets_for

SLICE_COUNTS = 2
# Those within this of the fastest are measured so many times again.
NEAR = 1.3
AGAIN = 3
# Shapes whose kernels are compiled ahead of the one that is measured.
AHEAD = 12


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.pairs", description=__doc__)
    parser.add_argument("--jobs", default=",".join(EVERY_JOB))
    parser.add_argument("--part", default="fit", choices=("fit", "validation"))
    parser.add_argument("--shapes", type=int, default=60, help="of each job")
    parser.add_argument("--seed", type=int, default=0, help="of the draw of shapes")
    parser.add_argument(
        "--kernels", type=int, nargs=2, default=(40, 40), help="of each shape: first by prediction, others"
    )
    parser.add_argument(
        "--far", type=float, default=2.2, help="leave out kernels this much slower than the best by prediction"
    )
    parser.add_argument("--seconds", type=float, default=540)
    parser.add_argument("--folder", type=Path, required=True)
    arguments = parser.parse_args(argv)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + arguments.seconds
    between, sensors = Between(), Sensors()
    pool = compilers()

    def pick(planned: Any, shape: Shape) -> list[str]:
        return chosen(planned, shape, arguments.far, *arguments.kernels)

    for name in arguments.jobs.split(","):
        job = EVERY_JOB[name]
        path = arguments.folder / f"{name.replace(' ', '_')}.txt"
        done = {shape for shape, _ in read_shapes(path)} if path.exists() else set()
        sets, (found, _) = sets_for(job), peers.load(job.peers)
        drawn = job.shapes(arguments.part, arguments.shapes, arguments.seed)
        shapes = [shape for shape in drawn if shape not in done]
        with path.open("a") as file:
            for shape, plans in compiled_ahead(job, shapes, pick, pool):
                if time.monotonic() > deadline:
                    break
                file.write(measure(job, shape, plans, found, sets, between, sensors))
                file.flush()
        print(name, f"{time.monotonic() - deadline + arguments.seconds:.0f} s", flush=True)
    pool.shutdown(cancel_futures=True)
    return 0


def compilers() -> ProcessPoolExecutor:
    """Two cores are left to whoever measures."""
    return ProcessPoolExecutor(max((os.cpu_count() or 4) - 2, 1), get_context("spawn"), _compile_behind)


def _compile_behind() -> None:
    """A process that compiles gives way to whoever measures, and ends with it, however that ends."""
    os.nice(10)
    Thread(target=_end_with, args=(parent_process(),), daemon=True).start()


def _end_with(parent: Any) -> None:
    parent.join()
    os._exit(1)


def chosen(planned: Any, shape: Shape, far: float, first: int, others: int) -> list[str]:
    """Kernels to measure, each with the slice counts that look best: `first` by prediction, and `others` at random."""
    candidates = planned.candidates
    near: list[str] = []
    counts: Counter[str] = Counter()
    for candidate in candidates:
        kernel = re.sub(r"(serial|parallel) \d+", r"\1", candidate["kernel"])
        counts[kernel] += 1
        if counts[kernel] <= SLICE_COUNTS and candidate["predicted_us"] < far * candidates[0]["predicted_us"]:
            near.append(candidate["kernel"])
    rest = near[first:]
    return near[:first] + random.Random(str(shape)).sample(rest, min(len(rest), others))


def compile_kernel(job: str, shape: Shape, kernel: str) -> None:
    """Into the cache on disk, in a process of its own: NVRTC's threads wait for each other."""
    _core.compile_plan(_core.plan_as(EVERY_JOB[job].case(shape).plan("h100"), kernel))


def compiled_ahead(
    job: AnyJob, shapes: list[Shape], pick: Callable[[Any, Shape], list[str]], pool: ProcessPoolExecutor
) -> Iterator[tuple[Shape, list[Any]]]:
    """Each shape's plans, of the kernels that `pick` names, once they are on disk; those of the next shapes compile
    meanwhile."""
    known: dict[str, Future] = {}

    def start(shape: Shape) -> tuple[Shape, list[Any]]:
        planned = job.case(shape).plan("cuda")
        plans = [_core.plan_as(planned, kernel) for kernel in pick(planned, shape)]
        for plan in plans:
            if plan.kernel_source not in known:
                known[plan.kernel_source] = pool.submit(compile_kernel, job.name, shape, plan.kernel_name)
        return shape, plans

    started = [start(shape) for shape in shapes[:AHEAD]]
    for i in range(len(shapes)):
        shape, plans = started.pop(0)
        if i + AHEAD < len(shapes):
            started.append(start(shapes[i + AHEAD]))
        for plan in plans:
            known[plan.kernel_source].result()
        yield shape, plans
    print(f"{len(known)} kernels of {job.name}", flush=True)


def measure(
    job: AnyJob,
    shape: Shape,
    plans: list[Any],
    found: Sequence[peers.Peer],
    sets_of: OperandSets,
    between: Between,
    sensors: Sensors,
) -> str:
    """All once, and those near the fastest again and again, in turns: the clock follows the power of them all."""
    case = job.case(shape)
    sets = sets_of.operands(case)
    theirs = [(sample, []) for peer in found if (sample := timed_peer(peer, case, sets, sets_of, between))]
    samples = [(kernel, sample, [sample()]) for kernel, sample in samples_of(job, plans, sets, between)]
    best = min(times[0] for _, _, times in samples)
    near = [(sample, times) for _, sample, times in samples if times[0] < NEAR * best] + theirs
    for _ in range(AGAIN):
        for sample, times in near:
            times.append(sample())
    clock, watts = sensors.read()
    cleave.release_workspaces()
    lines = [f"{statistics.median(times[1:] or times):.2f} {kernel}\n" for kernel, _, times in samples]
    peer_us = min((f"{statistics.median(times):.2f}" for _, times in theirs), key=float, default="-")
    return f"{' '.join(map(str, shape))} | {clock} | {watts} | {peer_us}\n" + "".join(lines)


def samples_of(
    job: AnyJob, plans: Sequence[Any], sets: Sequence[Any], between: Between
) -> Iterator[tuple[str, Callable[[], float]]]:
    """A kernel's name, and what takes its time; nothing of those that do not run."""
    for plan in plans:
        try:
            sample = between.timed(lambda i, plan=plan: job.testing.run(plan, sets[i % len(sets)], between.stream))
        except RuntimeError as error:
            print(plan.kernel_name, error, file=sys.stderr)
            continue
        yield plan.kernel_name, sample


def timed_peer(
    peer: peers.Peer, case: Any, sets: Sequence[Any], sets_of: OperandSets, between: Between
) -> Callable[[], float] | None:
    own = [replace(operands) for operands in sets]  # a peer may leave its result in another array
    calls = sets_of.theirs(peer, case, own)
    try:
        return calls and between.timed(lambda i: calls[i % len(calls)]())
    except (RuntimeError, ValueError, AssertionError) as error:
        print(f"{case.title}: without {peer.name}: {peers.reason(error)}", file=sys.stderr)
        return None


if __name__ == "__main__":
    sys.exit(main())
