"""quack's product in CuTe DSL, tuned: its first call of a shape measures its own configurations."""

from __future__ import annotations

from collections.abc import Callable

from quack.gemm_interface import gemm

from cleave.testing.case import GemmCase
from cleave.testing.operands import Operands


def serves(case: GemmCase) -> GemmCase | None:
    fits = case.plain and case.dtype in ("float16", "bfloat16") and case.result_dtype == case.dtype
    return case if fits and case.batch == 1 else None


def calls(case: GemmCase, operands: Operands) -> dict[str, Callable[[], object]]:
    a, b, out = operands.a, operands.b, operands.out
    return {"quack.gemm": lambda: gemm(a, b, out=out)}
