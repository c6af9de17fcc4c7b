"""How far float32 products may be from exact ones, and how far those of rounded operands are."""

from __future__ import annotations

from typing import Any

import numpy as np

UNIT = 2.0**-24

# How far a product may be off, relative to itself: kernels/cleave/core/float_parts.h.
PRODUCTS = {"ieee": 0.0, "tf32x3": 2.0**-21, "bf16x3": 2.0**-15 * (1 + 2.0**-16)}


def bound(k: int, squares: Any, precision: str = "ieee") -> Any:
    """The error of a sum of k products of random signs, whose squares add up to `squares`.

    After i of them the sum is some sqrt(i) products large, and is rounded: k roundings add up, as
    random ones do, to about UNIT * sqrt(k) * 0.3 for products of size 1. The largest of n elements
    is one whose sum happened to stay large for long, too (the integral of a squared Brownian
    motion, whose tail falls as exp(-pi^2 x / 8)): it stays within UNIT * sqrt(k) * t but for
    n * exp(-3.6 t) cases. The 7 makes that 1e-5 of half a million elements; the 8 are the
    epilogue's.

    Products that are off by at most a part c of themselves, as often up as down, add
    c * t * sqrt(squares) but for n * 2 exp(-t^2 / 2) cases (Hoeffding): 7.2 makes that 1e-5 of a
    million elements.
    """
    return (UNIT * (7 * k**0.5 + 8) + 7.2 * PRODUCTS[precision]) * squares**0.5


def to_tf32(x: np.ndarray) -> np.ndarray:
    """float32 rounded to 10 bits of mantissa, ties away from zero, as tensor cores have it."""
    return ((x.view(np.uint32) + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)
