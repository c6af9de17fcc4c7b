"""cuBLASLt's product of 8-bit floats with one scale per matrix, as PyTorch calls it.

It computes less than a product with a scale per row and column, which is to beat it anyway.
"""

from __future__ import annotations

from dataclasses import replace

from bench.scaled_mm import calls, takes
from cleave.testing.case import GemmCase

__all__ = ["calls", "serves"]


def serves(case: GemmCase) -> GemmCase | None:
    return replace(case, scaling="tensor") if takes(case) else None
