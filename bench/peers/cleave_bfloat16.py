"""Our own grouped product in bfloat16, where 8-bit floats are to be faster."""

from __future__ import annotations

from dataclasses import replace

from bench.self_baseline import calls
from cleave.testing.grouped_case import GroupedCase

__all__ = ["calls", "serves"]


def serves(case: GroupedCase) -> GroupedCase | None:
    plain = replace(case, dtype="bfloat16", scaling="none", use_fast_accum=False)
    return plain if case.quantized else None
