"""Wall and host time of whole steps, called as an application calls them: without a graph."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Sequence

from cleave.testing import measure
from cleave.testing.arrays import TorchArrays

from .contest import Calls

# So many are enqueued before the GPU is waited for, unless a step itself waits.
STEPS = 20


def called(arrays: TorchArrays, contenders: Sequence[Calls], rounds: int) -> list[dict[str, float]]:
    """Each contender's median microseconds per step, of the clock and of the calling thread."""
    steps = [_Steps(arrays, calls) for calls in contenders]
    gc.disable()
    try:
        walls = measure.interleaved(steps, rounds)
    finally:
        gc.enable()
    # The first sample is a warm-up, and none of `walls`.
    return [
        {"us": us, "host_us": statistics.median(contender.host[1:])} for us, contender in zip(walls, steps, strict=True)
    ]


class _Steps:
    """`sample` gives a step's wall time, and adds its host time to `host`."""

    def __init__(self, arrays: TorchArrays, calls: Calls):
        self.host: list[float] = []
        self._arrays = arrays
        self._calls = calls

    def sample(self) -> float:
        self._arrays.synchronize()
        start = time.perf_counter()
        self._arrays.on_stream(self._enqueue)
        enqueued = time.perf_counter()
        self._arrays.synchronize()
        self.host.append((enqueued - start) / STEPS * 1e6)
        return (time.perf_counter() - start) / STEPS * 1e6

    def _enqueue(self) -> None:
        for i in range(STEPS):
            self._calls[i % len(self._calls)]()
