"""The operation "gemm": dense products, of scaled 8-bit operands too."""

from __future__ import annotations

from typing import Any

from . import accuracy
from .arrays import Arrays
from .case import GemmCase, options
from .operands import Operands, make_operands

__all__ = ["GemmCase", "errors", "make_operands", "plan_for", "run"]


def plan_for(case: GemmCase, operands: Operands) -> Any:
    """The library's plan for these operands."""
    import cleave

    results = {"bias": operands.bias, "out": operands.out}
    if not case.quantized and not operands.scales:
        return cleave.plan_gemm(operands.a, operands.b, **results, **options(case, "deterministic", "precision"))
    scales = {"scale_a": None, "scale_b": None} | operands.scales
    chosen = options(case, "deterministic", "use_fast_accum")
    return cleave.plan_scaled_gemm(operands.a, operands.b, **scales, **results, **chosen)


def run(plan: Any, operands: Operands, stream: int | None) -> None:
    plan.run(operands.a, operands.b, bias=operands.bias, out=operands.out, stream=stream, **operands.scales)


def errors(arrays: Arrays, case: GemmCase, operands: Operands) -> accuracy.Errors:
    """Errors of what a run left in `out`."""
    return accuracy.compare(arrays, operands.out, accuracy.reference(arrays, case, operands))
