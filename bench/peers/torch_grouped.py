"""torch._grouped_mm: a CUTLASS kernel inside torch."""

from __future__ import annotations

from collections.abc import Callable

import torch

from cleave.testing.grouped_case import GroupedCase
from cleave.testing.grouped_operands import GroupedOperands


def serves(case: GroupedCase) -> GroupedCase | None:
    bfloat16 = case.dtype == case.result_dtype == "bfloat16"
    return case if bfloat16 and case.plain and case.spacing == 1 else None


def calls(case: GroupedCase, operands: GroupedOperands) -> dict[str, Callable[[], object]]:
    a, b, offs = operands.a, operands.b, operands.offs

    def multiply() -> None:  # it has no out=
        operands.out = torch._grouped_mm(a, b, offs=offs)

    return {"torch._grouped_mm": multiply}
