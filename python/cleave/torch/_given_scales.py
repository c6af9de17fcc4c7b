"""Scales and divisors that callers give layers of 8 bits, as converting them takes them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def static_scale(activation: Any) -> Tensor:
    """The one scale of all activations. What is not positive would make zeros, NaNs or saturated values of them."""
    scale = torch.as_tensor(activation).detach()
    if scale.numel() != 1 or scale.dtype == torch.bool or not _all_positive(scale):
        raise ValueError(f'activation is {activation!r}; it must be "dynamic", or one scale, positive and finite')
    return scale.reshape(1)


def check_smooth(smooth: Tensor, features: int) -> None:
    if smooth.shape != (features,):
        raise ValueError(f"smooth is {tuple(smooth.shape)}; it must be ({features},)")
    if not _all_positive(smooth):
        raise ValueError("smooth has a value that is zero, negative, NaN or infinite; channels are divided by them")


def _all_positive(values: Tensor) -> bool:
    return values.is_meta or bool((values > 0).logical_and(values.isfinite()).all())
