"""Tensors of the forms that layers' calls have, which `_prepare` makes plans from. Nobody reads what they hold."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .._scales import scale_shape

# A plan, and the fewest and the most rows.
Product = tuple[Any, int, int]

# More than one, so that its stride means something.
TOKENS = 16


def tokens(like: Tensor, features: int, dtype: torch.dtype) -> Tensor:
    return like.new_empty((TOKENS, features), dtype=dtype)


def in_8_bits(x: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.empty(x.shape, dtype=dtype, device=x.device)


def scales_of(x: Tensor, granularity: str) -> Tensor:
    """Those that `quantize` finds of x, [M, K]. Kernels do not depend on how they lie in memory."""
    rows, *columns = (1,) if granularity == "tensor" else scale_shape(granularity, *x.shape)
    return torch.empty((rows, *(columns or (1,))), device=x.device)


def ends_of(experts: Tensor) -> Tensor:
    """`offs` beside weights [E, N, K]."""
    return torch.zeros(len(experts), dtype=torch.int32, device=experts.device)
