"""The operation "gemm": dense products, of scaled 8-bit operands too."""

from __future__ import annotations

from typing import Any

from . import accuracy, out_scales
from .arrays import Arrays
from .case import GemmCase, options
from .operands import Operands, make_operands

__all__ = ["GemmCase", "errors", "make_operands", "plan_for", "run"]


def plan_for(case: GemmCase, operands: Operands) -> Any:
    """The library's plan for these operands."""
    import cleave

    results = {"bias": operands.bias, "c": operands.c, "out": operands.out, "scale_out": operands.scale_out}
    promised = "deterministic", "sum_order"
    if operands.weights is not None:
        bias, c, out = operands.bias, operands.c, operands.out
        chosen = options(case, *promised, "kernel", "static_b") | {"scale_a": operands.scales.get("scale_a")}
        return cleave.plan_mixed_gemm(operands.a, operands.weights, bias=bias, c=c, out=out, **chosen)
    shared = "out_scale", "use_ue8m0", *promised, "kernel", "static_b"
    if not case.quantized and not operands.scales:
        chosen = options(case, "precision", *shared)
        return cleave.plan_gemm(operands.a, operands.b, **results, **chosen)
    scales = {"scale_a": None, "scale_b": None} | operands.scales
    chosen = options(case, "use_fast_accum", *shared)
    return cleave.plan_scaled_gemm(operands.a, operands.b, **scales, **results, **chosen)


def run(plan: Any, operands: Operands, stream: int | None) -> None:
    results = {"c": operands.c, "out": operands.out, "scale_out": operands.scale_out}
    plan.run(operands.a, operands.b, bias=operands.bias, stream=stream, **results, **operands.scales)


def errors(arrays: Arrays, case: GemmCase, operands: Operands) -> accuracy.Errors:
    """Errors of what a run left in `out` and `scale_out`."""
    result, scale = operands.out, operands.scale_out
    stored = result if scale is None else out_scales.dequantize_result(arrays, result, scale)
    return accuracy.compare(arrays, stored, accuracy.reference(arrays, case, operands))
