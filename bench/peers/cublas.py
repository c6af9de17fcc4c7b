"""cuBLAS, as PyTorch calls it."""

from __future__ import annotations

from collections.abc import Callable

import torch

from cleave.testing.case import GemmCase
from cleave.testing.operands import Operands


def serves(case: GemmCase) -> GemmCase | None:
    fits = case.plain and not case.quantized and case.result_dtype == case.dtype
    return case if fits else None


def calls(case: GemmCase, operands: Operands) -> dict[str, Callable[[], object]]:
    a, b, out = operands.a, operands.b, operands.out
    return {"torch.mm(out=)": lambda: torch.mm(a, b, out=out), "torch.mm": lambda: torch.mm(a, b)}
