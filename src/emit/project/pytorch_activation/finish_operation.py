"""What the operation makes of its sums, in float64: its activation."""

from __future__ import annotations

from typing import Any

import torch
from expected_operation import Finished, fixed
from torch import Tensor

ACTIVATIONS = {
    "none": lambda x: x,
    "relu": torch.nn.functional.relu,
    "relu2": lambda x: torch.nn.functional.relu(x).square(),
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "silu": torch.nn.functional.silu,
    "swiglu_interleaved": lambda x: torch.nn.functional.silu(x[..., 0::2]) * x[..., 1::2],
    "swiglu": lambda x: torch.nn.functional.silu(x.chunk(2, -1)[0]) * x.chunk(2, -1)[1],
}
SUMS = None  # of any size


def finish(sums: Tensor, **_: Any) -> Finished:
    result = ACTIVATIONS[fixed.ACTIVATION](sums)
    # Where sums are nearly 0, rounding decides whether relu lets the gradient pass.
    smooth = result > 1e-2 if fixed.ACTIVATION == "relu" else torch.ones_like(result, dtype=torch.bool)
    return Finished([result], [torch.zeros_like(result)], smooth, [], ["matrix"])
