"""cuBLAS's product of int8, which ends in int32, as PyTorch calls it: no dequantisation at all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from cleave.testing.case import GemmCase
from cleave.testing.operands import Operands


def serves(case: GemmCase) -> GemmCase | None:
    integers = case.plain and case.dtype == "int8"
    return replace(case, scaling="none", out_dtype=None) if integers else None


def calls(case: GemmCase, operands: Operands) -> dict[str, Callable[[], object]]:
    a, b, out = operands.a, operands.b, operands.out
    return {"torch._int_mm(out=)": lambda: torch._int_mm(a, b, out=out), "torch._int_mm": lambda: torch._int_mm(a, b)}
