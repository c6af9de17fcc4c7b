"""torch._scaled_grouped_mm, a scale per row and per column: a CUTLASS kernel inside torch."""

from __future__ import annotations

from collections.abc import Callable

import torch

from cleave.testing.grouped_case import GroupedCase
from cleave.testing.grouped_operands import GroupedOperands


def serves(case: GroupedCase) -> GroupedCase | None:
    rows = case.dtype == "float8_e4m3fn" and case.scaling == "row" and case.form != "wgrad"
    bfloat16 = case.result_dtype == "bfloat16"
    return case if rows and bfloat16 and case.plain and case.spacing == 1 else None


def calls(case: GroupedCase, operands: GroupedOperands) -> dict[str, Callable[[], object]]:
    a, b = operands.a, operands.b
    options = operands.scales | {
        "offs": operands.offs,
        "out_dtype": torch.bfloat16,
        "use_fast_accum": case.use_fast_accum,
    }

    def multiply() -> None:  # it has no out=
        operands.out = torch._scaled_grouped_mm(a, b, **options)

    return {"torch._scaled_grouped_mm": multiply}
