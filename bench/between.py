"""Timing in graphs with a small ordinary kernel between the launches.

Launches that follow each other overlap where they are programmed to: a chain of one product flatters those. A kernel
between them that knows nothing of that, as in a model, is fair to everybody; its own time is taken off.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch

from cleave.testing.measure import COLD_BYTES

# A replay this long makes the events' resolution (0.5 us) small.
REPLAY_US = 500.0
MOST_CALLS = 48
# The GPU waits this long before a replay, so that a busy host has launched it before it starts.
AHEAD_CYCLES = 300_000


class Between:
    """flush: L2 is overwritten before every replay, for calls whose operands it would hold from one to the next."""

    def __init__(self, flush: bool = False) -> None:
        self._overwritten = torch.empty(COLD_BYTES if flush else 0, device="cuda", dtype=torch.uint8)
        self._stream = torch.cuda.Stream()
        self._small = torch.zeros(1024, device="cuda")
        self._own = 0.0
        alone = self.graph(lambda i: None, 200)
        self._own = statistics.median(alone() for _ in range(9))

    @property
    def stream(self) -> int:
        return self._stream.cuda_stream

    def timed(self, call: Callable[[int], None]) -> Callable[[], float]:
        """A function that replays `call(0)`, `call(1)`, ... and returns microseconds of one."""
        first = self.graph(call, 2)
        calls = max(2, min(MOST_CALLS, round(REPLAY_US / max(first(), 1))))
        return self.graph(call, calls)

    def graph(self, call: Callable[[int], None], calls: int) -> Callable[[], float]:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(self._stream):
            call(0)  # the first use loads the kernel, which a capture forbids
            self._stream.synchronize()
            graph.capture_begin()
            try:
                for i in range(calls):
                    call(i)
                    self._small.add_(1)
            finally:
                graph.capture_end()
            graph.replay()
            self._stream.synchronize()  # whatever writes to the same operands comes after it

        def sample(_replayed: Callable[[int], None] = call) -> float:
            """`_replayed`: kept as long as its graph is, which reads what it has, such as a peer's own operands."""
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            with torch.cuda.stream(self._stream):
                self._overwritten.zero_()
                torch.cuda._sleep(AHEAD_CYCLES)
                start.record()
                graph.replay()
                end.record()
            end.synchronize()
            return start.elapsed_time(end) * 1e3 / calls - self._own

        return sample


def medians(samples: dict[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """Each contender's microseconds; they take turns, forwards, then backwards."""
    times: dict[str, list[float]] = {name: [] for name in samples}
    for i in range(rounds):
        for name in list(samples)[:: 1 if i % 2 == 0 else -1]:
            times[name].append(samples[name]())
    return {name: statistics.median(of_name) for name, of_name in times.items()}
