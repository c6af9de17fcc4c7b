"""Norms that `cleave.quantize` applies before it quantises."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, eq=False, slots=True)
class Norm:
    """A norm of rows, made by `rms_norm` or `layer_norm`. Arrays are kept as they are."""

    kind: str
    weight: Any
    bias: Any
    eps: float
    zero_centered: bool

    def __post_init__(self) -> None:
        if not (isinstance(self.eps, int | float) and 0 <= self.eps < math.inf):
            raise ValueError(f"eps is {self.eps!r}; it must be a finite number that is not negative, as 1e-6")
        if self.zero_centered and self.weight is None:
            raise ValueError("zero_centered is True, but there is no weight; pass the weight that is kept less 1")


def rms_norm(weight: Any = None, eps: float = 1e-6, *, zero_centered: bool = False) -> Norm:
    """h / sqrt(mean(h^2) + eps) * weight for each row h, as the `norm` of `cleave.quantize`.

    Args:
        weight: [K], float16, bfloat16 or float32, contiguous, on x's device; None for 1.
        eps: finite, not negative.
        zero_centered: True if the stored weight is 1 less, as in Gemma: 1 + weight is used.

    Raises:
        ValueError: eps is out of range. The weight is checked by `quantize`.
    """
    return Norm("rms_norm", weight, None, eps, zero_centered)


def layer_norm(weight: Any = None, bias: Any = None, eps: float = 1e-5, *, zero_centered: bool = False) -> Norm:
    """(h - mean(h)) / sqrt(variance(h) + eps) * weight + bias for each row h, as the `norm` of `cleave.quantize`.

    Args: as `rms_norm`, and bias: [K], of the weight's dtype, contiguous; None for 0.
    """
    return Norm("layer_norm", weight, bias, eps, zero_centered)
