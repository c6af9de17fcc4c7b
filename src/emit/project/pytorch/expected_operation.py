"""What a call of the operator is to compute, and how near it has to come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

if not torch.cuda.is_available():
    pytest.skip("needs PyTorch with CUDA, and a GPU", allow_module_level=True)

import operation
from operation import _operation as fixed

operator = getattr(operation, operation.__all__[0])
# What the rounding of operands and of the result may cause, relative to the largest value.
TOLERANCE = {
    torch.float32: {"tf32": 2e-3, "bf16x3": 1e-4}.get(fixed.PRECISION, 2e-5),
    torch.float16: 2e-3,
    torch.bfloat16: 1e-2,
    torch.float8_e4m3fn: 7e-2,
    torch.float8_e5m2: 1.3e-1,
    torch.int8: 1e-2,
    torch.int32: 0.0,
}


def values(*shape: int, dtype: torch.dtype) -> Tensor:
    """Random ones, small enough for 8 bits."""
    if dtype.itemsize == 1 or dtype == torch.int32:
        return torch.randint(-7, 8, shape, device="cuda").to(dtype)
    return torch.randn(shape, device="cuda").to(dtype)


def within(x: Tensor, expected: Tensor, tolerance: float, slack: Tensor | float = 0.0) -> bool:
    """Where something finite is expected, which 8 bits saturate; `slack` may come on top."""
    if x.itemsize == 1:
        limits = torch.iinfo(x.dtype) if x.dtype == torch.int8 else torch.finfo(x.dtype)
        expected = expected.clamp(limits.min, limits.max)
    finite = expected.isfinite()
    error = ((x.double() - expected).abs() - slack)[finite]
    return bool((error <= tolerance * expected[finite].abs().max()).all())


@dataclass
class Finished:
    """What becomes of sums: the results, and how far the rounding of sums may move them; where it does not decide about
    the gradient; inputs that this took; and for each result "matrix", or to what a matrix is reduced."""

    results: list[Tensor]
    slack: list[Tensor]
    smooth: Tensor
    inputs: list[Any]
    shapes: list[str]


@dataclass
class Case:
    """Arguments of a call, and what is to be made, in float64, which may be defined in a part alone: where `where` is
    true of each result."""

    arguments: list[Any]
    finished: Finished
    where: list[Tensor] | None = None
    amax: Tensor | None = None

    @property
    def tensors(self) -> list[Tensor]:
        return [x for x in self.arguments if isinstance(x, Tensor)]

    def check(self, made: list[Tensor]) -> None:
        expected, slack = self.finished.results, self.finished.slack
        for i, (x, y, loose) in enumerate(zip(made, expected, slack, strict=True)):
            assert x.shape == y.shape
            there = ... if self.where is None else self.where[i]
            assert within(x[there], y[there], TOLERANCE[x.dtype], loose[there])
