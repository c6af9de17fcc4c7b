"""torch._scaled_mm with a scale per row and per column: a CUTLASS kernel inside torch."""

from __future__ import annotations

from bench.scaled_mm import calls, takes
from cleave.testing.case import GemmCase

__all__ = ["calls", "serves"]


def serves(case: GemmCase) -> GemmCase | None:
    return case if takes(case) and case.scaling == "row" else None
