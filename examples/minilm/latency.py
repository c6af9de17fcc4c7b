"""How long models take for one batch on a GPU: called from Python, and replayed as a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cleave.testing import measure
from cleave.testing.arrays import TorchArrays

# Runs per sample, one after the other: events cannot tell much less than their sum.
_RUNS = 20


@dataclass(frozen=True)
class Latency:
    """Microseconds per batch, medians of interleaved rounds."""

    eager: float
    graph: float


class Runs:
    """A contender of measure.interleaved. Weights stay in the L2 cache, as they do in use."""

    def __init__(self, arrays: TorchArrays, call: Callable[[], Any]):
        self._arrays, self._call = arrays, call

    def sample(self) -> float:
        return self._arrays.microseconds(self._repeat) / _RUNS

    def _repeat(self) -> None:
        for _ in range(_RUNS):
            self._call()


def measure_all(
    arrays: TorchArrays, models: Mapping[str, Callable[..., Any]], *inputs: Any, rounds: int = 15
) -> dict[str, Latency]:
    """Every model on the same inputs, eager ones among eager ones, graphs among graphs."""
    with arrays.xp.inference_mode():
        calls = [lambda model=model: model(*inputs) for model in models.values()]
        graphs = [arrays.capture(call) for call in calls]  # warms up, too
        eager, graph = (measure.interleaved([Runs(arrays, call) for call in kind], rounds) for kind in (calls, graphs))
    return {name: Latency(*us) for name, *us in zip(models, eager, graph, strict=True)}
