"""The operation "grouped": a product for each group of a mixture of experts' tokens, in one."""

from __future__ import annotations

from typing import Any

from . import accuracy, dense
from .arrays import Arrays
from .case import options
from .grouped_case import GroupedCase
from .grouped_operands import GroupedOperands, make_operands, of_group

__all__ = ["GroupedCase", "errors", "make_operands", "plan_for", "run"]


def plan_for(case: GroupedCase, operands: GroupedOperands) -> Any:
    """The library's plan for these operands; it holds for any sizes of the groups."""
    import cleave

    if operands.weights is not None:
        arrays = {"offs": operands.offs, "bias": operands.bias, "c": operands.c, "out": operands.out}
        arrays["scale_a"] = operands.scales.get("scale_a")
        alignment, chosen = case.alignment, options(case, "deterministic", "sum_order", "kernel")
        return cleave.plan_mixed_gemm(operands.a, operands.weights, **arrays, alignment=alignment, **chosen)
    return cleave.plan_grouped_gemm(
        operands.a,
        operands.b,
        operands.offs,
        alignment=case.spacing if case.spacing > 1 else None,
        bias=operands.bias,
        c=operands.c,
        out=operands.out,
        scale_out=operands.scale_out,
        **options(
            case, "use_fast_accum", "precision", "out_scale", "use_ue8m0", "deterministic", "sum_order", "kernel"
        ),
        **operands.scales,
    )


def run(plan: Any, operands: GroupedOperands, stream: int | None) -> None:
    plan.run(
        operands.a,
        operands.b,
        offs=operands.offs,
        bias=operands.bias,
        c=operands.c,
        out=operands.out,
        scale_out=operands.scale_out,
        stream=stream,
        **operands.scales,
    )


def errors(arrays: Arrays, case: GroupedCase, operands: GroupedOperands) -> accuracy.Errors:
    """Errors of what a run left in `out`, group by group: a product of all might not fit."""
    parts = []
    for group in range(case.groups):
        product, own = of_group(case, operands, group)
        parts.append((dense.errors(arrays, product, own), product.m * product.n))
    return accuracy.overall(parts)
