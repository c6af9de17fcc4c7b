"""torch._scaled_grouped_mm, a scale per row and per column: a CUTLASS kernel inside torch."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch

from cleave.testing.grouped_case import GroupedCase
from cleave.testing.grouped_operands import GroupedOperands


def serves(case: GroupedCase) -> GroupedCase | None:
    rows = case.dtype == "float8_e4m3fn" and case.scaling == "row"
    bfloat16 = case.result_dtype == "bfloat16"
    # It reads rows between groups as the next one's.
    follow = all(begin == end for (_, end), (begin, _) in itertools.pairwise([(0, 0), *case.ranges]))
    return case if rows and bfloat16 and case.plain and follow else None


def calls(case: GroupedCase, operands: GroupedOperands) -> dict[str, Callable[[], object]]:
    a, b = operands.a, operands.b
    scales = {name: scale.flatten() if case.form == "wgrad" else scale for name, scale in operands.scales.items()}
    options = scales | {
        "offs": operands.offs,
        "out_dtype": torch.bfloat16,
        "use_fast_accum": case.use_fast_accum,
    }

    def multiply() -> None:  # it has no out=
        operands.out = torch._scaled_grouped_mm(a, b, **options)

    return {"torch._scaled_grouped_mm": multiply}
