"""Operations that have one kernel for a problem: what the commands show of their plans, and compare."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from .accuracy import Errors, Reference, compare
from .arrays import Arrays


@dataclass(frozen=True)
class KernelPlan:
    """A `_core.KernelPlan` by the names that a `GemmPlan` has. bytes: that the kernel has to move."""

    planned: Any
    bytes: int
    split_k_mode: str = "none"
    split_k_slices: int = 1
    workspace_size: int = 0
    candidates: tuple[dict[str, Any], ...] = ()
    why: str = "one kernel serves these sizes: nothing to choose, or to tune"

    @property
    def kernel_name(self) -> str:
        return self.planned.kernel_name

    @property
    def roofline_us(self) -> float:
        bandwidth = self.planned.memory_gb_per_s
        return self.bytes / bandwidth * 1e-3 if bandwidth else 0.0


class OneKernel(ABC):
    """What cases of such operations have besides their sizes."""

    split_k_mode = "none"
    split_k_slices = None

    title: str
    bytes: int
    flops: int
    dtypes: frozenset[str]

    @abstractmethod
    def plan(self, device: str) -> KernelPlan: ...


def errors_of(arrays: Arrays, result: Any, expected: Any, tolerance: float) -> Errors:
    """Errors of rows whose elements may be off by so much of their row's root mean square."""
    magnitudes = arrays.xp.sqrt((expected * expected).mean(-1))
    slack = arrays.xp.where(magnitudes > 0, magnitudes, 1.0)[..., None] * tolerance
    return compare(arrays, result, Reference(expected, magnitudes, slack + 0 * expected))
