"""The activations, as plain array operations, which torch can differentiate."""

from __future__ import annotations

import math
from typing import Any

from .arrays import Arrays


def activate(arrays: Arrays, name: str, x: Any) -> Any:
    """Takes float64 values; under "swiglu" the gates come before what they open."""
    xp = arrays.xp
    if name == "none":
        return x
    if name == "relu":
        return xp.where(x < 0, xp.zeros_like(x), x)
    if name == "gelu":
        return 0.5 * x * (1.0 + arrays.erf(x * math.sqrt(0.5)))
    if name == "gelu_tanh":
        return 0.5 * x * (1.0 + xp.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))
    if name == "silu":
        return 0.5 * x * (1.0 + xp.tanh(0.5 * x))
    if name == "swiglu":
        half = x.shape[-1] // 2
        return activate(arrays, "silu", x[..., :half]) * x[..., half:]
    raise ValueError(f"unknown activation '{name}'")
