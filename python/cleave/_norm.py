"""Norms that `cleave.quantize` applies before it quantises."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, eq=False, slots=True)
class Norm:
    """A norm of rows, as `rms_norm` and `layer_norm` make it. Arrays are kept as they are."""

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
    """h / sqrt(mean(h^2) + eps) * weight, of each row h: `norm` of `cleave.quantize`.

    Args:
        weight: [K], float16, bfloat16 or float32, contiguous, beside x; None for 1.
        eps: finite, not negative.
        zero_centered: True, if the weight is kept less 1, as in Gemma: 1 + weight is meant.

    Raises:
        ValueError: for an eps that is none. What is wrong with the weight is for `quantize` to say.
    """
    return Norm("rms_norm", weight, None, eps, zero_centered)


def layer_norm(weight: Any = None, bias: Any = None, eps: float = 1e-5, *, zero_centered: bool = False) -> Norm:
    """(h - mean(h)) / sqrt(variance(h) + eps) * weight + bias, of each row h: `norm` of `cleave.quantize`.

    Args: as `rms_norm`, and bias: [K], of the weight's dtype, contiguous; None for 0.
    """
    return Norm("layer_norm", weight, bias, eps, zero_centered)
