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
    torch.float32: 2e-5 if fixed.IEEE else 2e-3,
    torch.float16: 2e-3,
    torch.bfloat16: 1e-2,
    torch.float8_e4m3fn: 7e-2,
    torch.float8_e5m2: 1.3e-1,
    torch.int8: 1e-2,
    torch.int32: 0.0,
}
ACTIVATIONS = {
    "none": lambda x: x,
    "relu": torch.nn.functional.relu,
    "relu2": lambda x: torch.nn.functional.relu(x).square(),
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "silu": torch.nn.functional.silu,
    "swiglu": lambda x: torch.nn.functional.silu(x.chunk(2, -1)[0]) * x.chunk(2, -1)[1],
}


def values(*shape: int, dtype: torch.dtype) -> Tensor:
    """Random ones, small enough for 8 bits."""
    if dtype.itemsize == 1 or dtype == torch.int32:
        return torch.randint(-7, 8, shape, device="cuda").to(dtype)
    return torch.randn(shape, device="cuda").to(dtype)


def within(x: Tensor, expected: Tensor, tolerance: float) -> bool:
    return bool((x.double() - expected).abs().max() <= tolerance * expected.abs().max())


@dataclass
class Case:
    """Arguments of a call, and the result in float64, which may be defined in a part alone."""

    arguments: list[Any]
    result: Tensor
    where: Any = ...  # an index
    amax: Tensor | None = None

    @property
    def tensors(self) -> list[Tensor]:
        return [x for x in self.arguments if isinstance(x, Tensor)]

    def check(self, result: Tensor) -> None:
        assert result.shape == self.result.shape
        assert within(result[self.where], self.result[self.where], TOLERANCE[result.dtype])
