"""Running and timing calls. Shared by `profile`, `tune`, the demo and the benchmark."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence

from .arrays import Arrays

# Operand sets together exceed the 50 MB L2 of an H100 by so much that every call finds it cold.
COLD_BYTES = 200_000_000
# A replay this long makes the events' resolution (0.5 us) and the graph's launch negligible.
REPLAY_US = 2_000.0


def run_to_completion(arrays: Arrays, call: Callable[[], None]) -> None:
    """Runs `call` when all before it is done: operands are made on another stream than it uses."""
    arrays.synchronize()
    call()
    arrays.synchronize()


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


def rotating_graphs(arrays: Arrays, calls: Sequence[Callable[[int], None]], sets: int) -> list[RotatingGraph]:
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
