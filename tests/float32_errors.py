"""How far float32 products may be from exact ones, and how far those of rounded operands are."""

from __future__ import annotations

from typing import Any

import numpy as np

UNIT = 2.0**-24


def bound(k: int, squares: Any) -> Any:
    """Of a sum of k products of random signs, whose squares add up to `squares`.

    After i of them the sum is about sqrt(i) products large, and is rounded: k roundings add up, as
    random ones do, to less than UNIT * k / sqrt(2) products. Four times that, since the largest of
    many elements counts, and a few roundings more, of the epilogue.
    """
    return UNIT * (3 * k**0.5 + 8) * squares**0.5


def to_tf32(x: np.ndarray) -> np.ndarray:
    """float32 rounded to 10 bits of mantissa, ties away from zero, as tensor cores have it."""
    return ((x.view(np.uint32) + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)
