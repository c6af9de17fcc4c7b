"""Operands, verification against float64, and timing.

Shared by `profile`, `tune`, the demo and the benchmark.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .arrays import Arrays
from .case import GemmCase

# Operand sets together exceed the 50 MB L2 of an H100 by so much that every call finds it cold.
COLD_BYTES = 200_000_000
# A replay this long makes the events' resolution (0.5 us) and the graph's launch negligible.
REPLAY_US = 2_000.0

_UNIT_ROUNDOFF = {"bfloat16": 2.0**-9, "float16": 2.0**-12, "float32": 2.0**-24}
_TF32_ROUNDOFF = 2.0**-11


@dataclass
class Operands:
    a: Any
    b: Any
    bias: Any
    out: Any


def make_operands(arrays: Arrays, case: GemmCase, seed: int = 0) -> Operands:
    """Standard normal inputs and a poisoned output; 2-D unless the case has a batch."""
    lead = (case.batch,) if case.batch != 1 else ()

    def matrix(rows: int, columns: int, row_major: bool, salt: int) -> Any:
        shape = (rows, columns) if row_major else (columns, rows)
        stored = arrays.normal(lead + shape, case.dtype, 4 * seed + salt)
        return stored if row_major else stored.swapaxes(-1, -2)

    bias_shape = {"none": None, "row": (case.n,), "column": (case.m, 1)}[case.bias]
    return Operands(
        a=matrix(case.m, case.k, case.layout[0] == "t", 0),
        b=matrix(case.k, case.n, case.layout[1] == "t", 1),
        bias=arrays.normal(bias_shape, case.dtype, 4 * seed + 2) if bias_shape else None,
        out=arrays.poisoned((*lead, case.m, case.n), case.result_dtype),
    )


def plan_for(case: GemmCase, operands: Operands, **options: Any) -> Any:
    """cleave.plan_gemm on these operands."""
    import cleave

    return cleave.plan_gemm(
        operands.a,
        operands.b,
        bias=operands.bias,
        activation=case.activation,
        out=operands.out,
        split_k_mode=case.split_k_mode,
        split_k_slices=case.split_k_slices,
        **options,
    )


def run_to_completion(arrays: Arrays, call: Callable[[], None]) -> None:
    """Runs `call` when all before it is done: operands are made on another stream than it uses."""
    arrays.synchronize()
    call()
    arrays.synchronize()


def run(plan: Any, operands: Operands, stream: int | None) -> None:
    plan.run(operands.a, operands.b, bias=operands.bias, out=operands.out, stream=stream)


@dataclass(frozen=True)
class Errors:
    """Of one output against float64.

    max_relative: largest absolute error over the reference's largest magnitude; rms_relative: root
    mean square of the error over that of the reference; max_absolute, rms_absolute: the same,
    undivided. NaN if the output has one.
    """

    max_relative: float
    rms_relative: float
    max_absolute: float
    rms_absolute: float

    def acceptable(self, case: GemmCase) -> bool:
        """Within what rounding explains: of the output, of tf32 operands, of float32 sums."""
        limit = 2 * _UNIT_ROUNDOFF[case.result_dtype] + 4 * _UNIT_ROUNDOFF["float32"] * math.sqrt(
            case.k
        )
        if case.dtype == "float32":
            limit += 4 * _TF32_ROUNDOFF
        return self.rms_relative <= limit and self.max_relative <= 4 * limit


def compare(arrays: Arrays, result: Any, expected: Any) -> Errors:
    difference = abs(arrays.float64(result) - expected)
    if math.prod(difference.shape) == 0:
        return Errors(0.0, 0.0, 0.0, 0.0)
    max_absolute = float(difference.max())
    rms_absolute = math.sqrt(float((difference * difference).mean()))
    # An all-zero reference (K = 0) leaves the absolute error.
    return Errors(
        max_relative=max_absolute / (float(abs(expected).max()) or 1.0),
        rms_relative=rms_absolute / (math.sqrt(float((expected * expected).mean())) or 1.0),
        max_absolute=max_absolute,
        rms_absolute=rms_absolute,
    )


def reference(arrays: Arrays, case: GemmCase, operands: Operands) -> Any:
    """The product in float64, where the operands live."""
    value = arrays.float64(operands.a) @ arrays.float64(operands.b)
    if operands.bias is not None:
        value = value + arrays.float64(operands.bias)
    return _activate(arrays, case.activation, value)


def _activate(arrays: Arrays, name: str, x: Any) -> Any:
    if name == "none":
        return x
    if name == "relu":
        return x * (x > 0)
    if name == "gelu":
        return 0.5 * x * (1.0 + arrays.erf(x * math.sqrt(0.5)))
    if name == "gelu_tanh":
        return 0.5 * x * (1.0 + arrays.xp.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))
    if name == "silu":
        return 0.5 * x * (1.0 + arrays.xp.tanh(0.5 * x))
    raise ValueError(f"unknown activation '{name}'")


def set_count(bytes_per_call: int) -> int:
    """Operand sets to rotate over so that each call finds the L2 cold."""
    return max(2, math.ceil(COLD_BYTES / max(bytes_per_call, 1)))


class RotatingGraph:
    """A CUDA graph of `calls` calls that walk over the operand sets; `sample` times one replay."""

    def __init__(self, arrays: Arrays, call: Callable[[int], None], sets: int, calls: int):
        self.calls = calls
        self._arrays = arrays
        self._replay = arrays.capture(lambda: [call(i % sets) for i in range(calls)])

    def sample(self) -> float:
        """Microseconds per call."""
        return self._arrays.microseconds(self._replay) / self.calls


def rotating_graphs(
    arrays: Arrays, calls: Sequence[Callable[[int], None]], sets: int
) -> list[RotatingGraph]:
    """One graph per contender, all of as many calls as keep the fastest busy for REPLAY_US."""
    trial = [RotatingGraph(arrays, call, sets, sets) for call in calls]
    for graph in trial:
        graph.sample()
    fastest = min(graph.sample() for graph in trial)
    passes = math.ceil(REPLAY_US / (fastest * sets))
    if passes <= 1:
        return trial
    return [RotatingGraph(arrays, call, sets, sets * passes) for call in calls]


def interleaved(graphs: Sequence[RotatingGraph], rounds: int) -> list[float]:
    """Median microseconds per call of each contender.

    Rounds alternate direction, so that none always follows the same other.
    """
    samples: list[list[float]] = [[] for _ in graphs]
    for graph in graphs:
        graph.sample()
    for round_ in range(rounds):
        order = range(len(graphs))
        for i in order if round_ % 2 == 0 else reversed(order):
            samples[i].append(graphs[i].sample())
    return [statistics.median(times) for times in samples]


def host_microseconds(call: Callable[[], None], iterations: int, budget_s: float = 2.0) -> float:
    """Median wall time of `call`, which returns when done.

    The budget ends the repetitions; the first call is a warm-up unless it alone uses that up.
    """
    start = time.perf_counter()
    deadline = start + budget_s
    call()
    times = [time.perf_counter() - start]
    while len(times) <= iterations and time.perf_counter() < deadline:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:] or times) * 1e6
