"""Problems planned before their turn, so that their kernels are compiled while others run."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch

import cleave
from cleave import _core

from .problem import Problem


@dataclass
class Planned:
    """What a problem would run, and when that is compiled. refused: why it is not planned."""

    index: int
    problem: Problem
    plan: Any = None
    compiled: Future | None = None
    refused: str | None = None


class Ahead:
    """Compiles on `threads` threads, into the disk cache, `distance` problems ahead."""

    def __init__(self, device: torch.device, threads: int, distance: int):
        self._device = device
        self._threads = ThreadPoolExecutor(threads)
        self._distance = distance
        self._kernels: dict[int, Future] = {}

    @property
    def kernels(self) -> int:
        """How many there have been."""
        return len(self._kernels)

    def __call__(self, problems: Iterable[tuple[int, Problem]]) -> Iterator[Planned]:
        waiting: deque[Planned] = deque()
        for index, problem in problems:
            waiting.append(self._plan(index, problem))
            if len(waiting) > self._distance:
                yield waiting.popleft()
        yield from waiting

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _plan(self, index: int, problem: Problem) -> Planned:
        arrays = {x.name: x.empty(self._device) for x in problem.call().operands}
        try:
            plan = problem.plan(arrays)
        except (ValueError, TypeError) as error:
            return Planned(index, problem, refused=str(error))
        compiled = None
        if plan is not None and plan.kernel_source:
            key = hash(plan.kernel_source)
            compiled = self._kernels.get(key)
            if compiled is None:
                compiled = self._kernels[key] = self._threads.submit(_compile, plan)
        return Planned(index, problem, plan, compiled)


def _compile(plan: Any) -> None:
    if isinstance(plan, cleave.GemmPlan):
        _core.compile_plan(plan)
    else:
        plan.prepare()
