"""The operation "gemm": dense products, of scaled 8-bit operands too."""

from __future__ import annotations

from typing import Any

from . import accuracy
from .arrays import Arrays
from .case import GemmCase
from .operands import Operands, make_operands

__all__ = ["GemmCase", "errors", "make_operands", "plan_for", "run"]


def plan_for(case: GemmCase, operands: Operands) -> Any:
    """The library's plan for these operands."""
    import cleave

    options = {
        "bias": operands.bias,
        "activation": case.activation,
        "out": operands.out,
        "split_k_mode": case.split_k_mode,
        "split_k_slices": case.split_k_slices,
    }
    if not case.quantized and not operands.scales:
        return cleave.plan_gemm(operands.a, operands.b, precision=case.precision, **options)
    scales = {"scale_a": None, "scale_b": None} | operands.scales
    options["use_fast_accum"] = case.use_fast_accum
    return cleave.plan_scaled_gemm(operands.a, operands.b, **scales, **options)


def run(plan: Any, operands: Operands, stream: int | None) -> None:
    plan.run(operands.a, operands.b, bias=operands.bias, out=operands.out, stream=stream, **operands.scales)


def errors(arrays: Arrays, case: GemmCase, operands: Operands) -> accuracy.Errors:
    """Errors of what a run left in `out`."""
    return accuracy.compare(arrays, operands.out, accuracy.reference(arrays, case, operands))
