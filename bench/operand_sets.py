"""Where a job's operands come from: views of one pool for dense products, of which thousands are measured, made anew
for groups and convolutions."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import torch

from cleave.testing.arrays import TorchArrays
from cleave.testing.measure import set_count

from .jobs import Job
from .jobs.every import AnyJob
from .peers import Peer, reason
from .pool import Pool


class Made:
    """Random operands of each case, by the job's module of cleave.testing."""

    def __init__(self, testing: ModuleType, device: str = "cuda:0"):
        self._testing = testing
        self._arrays = TorchArrays(device)

    def operands(self, case: Any) -> list[Any]:
        """As many sets as leave L2 cold."""
        return [self._testing.make_operands(self._arrays, case, seed) for seed in range(set_count(case.bytes))]

    def result_of(self, call: Callable[[], object], operands: Any) -> torch.Tensor:
        """A copy of what `call` makes of poisoned memory, or of zeros where it adds to what is there."""
        if getattr(operands, "c", None) is None:
            self._arrays.poison(operands.out)
        else:
            operands.out.zero_()
        torch.cuda.synchronize()
        call()
        torch.cuda.synchronize()
        return operands.out.to(torch.float32, copy=True)

    def theirs(self, peer: Peer, case: Any, sets: Sequence[Any]) -> list[Callable[[], object]] | None:
        """A peer's call for each set, of its own where it serves another case; None where it serves none."""
        served = peer.serves(case)
        if served is None:
            return None
        try:
            own = sets if served == case else self.operands(served)
            return [next(iter(peer.calls(served, operands).values())) for operands in own]
        except (RuntimeError, ValueError, AssertionError) as error:
            print(f"{case.title}: without {peer.name}: {reason(error)}", file=sys.stderr)
            return None


OperandSets = Pool | Made


def sets_for(job: AnyJob) -> OperandSets:
    return Pool() if isinstance(job, Job) else Made(job.testing)
