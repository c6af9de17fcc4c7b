"""Gradients of what was broadcast. Emitted projects have a copy of this file."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def sum_to(grad: Tensor, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Sums of grad over what broadcast from `shape`. They are made in the wider type: float16 ends at 65504."""
    before = grad.dim() - len(shape)
    dims = [i for i in range(grad.dim()) if i < before or (shape[i - before] == 1 and grad.shape[i] != 1)]
    if dims:
        grad = grad.sum(dims, keepdim=True, dtype=torch.promote_types(grad.dtype, dtype))
    return grad.to(dtype).reshape(shape)
