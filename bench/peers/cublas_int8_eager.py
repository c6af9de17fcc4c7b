"""cuBLAS's product of int8, dequantised by three operations of PyTorch: scale, scale, convert."""

from __future__ import annotations

from collections.abc import Callable

import torch

from cleave.testing.case import GemmCase
from cleave.testing.operands import Operands


def serves(case: GemmCase) -> GemmCase | None:
    vectors = case.scaling in ("tensor", "row")
    return case if case.plain and case.dtype == "int8" and vectors else None


def calls(case: GemmCase, operands: Operands) -> dict[str, Callable[[], object]]:
    a, b, out = operands.a, operands.b, operands.out
    scale_a, scale_b = operands.scales["scale_a"], operands.scales["scale_b"]
    return {
        "torch._int_mm * scales, copied to out": lambda: out.copy_(torch._int_mm(a, b) * scale_a * scale_b),
        "torch._int_mm * scales": lambda: (torch._int_mm(a, b) * scale_a * scale_b).to(out.dtype),
    }
