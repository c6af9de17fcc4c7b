"""The operation "conv": convolutions and both of their gradients."""

from __future__ import annotations

from typing import Any

from . import accuracy, conv_reference
from .arrays import Arrays
from .case import options
from .conv_case import ConvCase
from .conv_operands import ConvOperands, make_operands

__all__ = ["ConvCase", "errors", "make_operands", "plan_for", "run"]


def plan_for(case: ConvCase, operands: ConvOperands) -> Any:
    """The library's plan for these operands."""
    import cleave

    plan = (cleave.plan_conv1d, cleave.plan_conv2d, cleave.plan_conv3d)[len(case.size) - 1]
    return plan(
        case.kind,
        *operands.inputs.values(),
        size=None if case.kind == "fprop" else case.shapes[case.made],
        bias=operands.bias,
        out=operands.out,
        **options(case, "stride", "padding", "dilation", "groups", "division", "kernel", "precision", "use_fast_accum"),
        **operands.scales,
    )


def run(plan: Any, operands: ConvOperands, stream: int | None) -> None:
    plan.run(*operands.inputs.values(), bias=operands.bias, out=operands.out, stream=stream, **operands.scales)


def errors(arrays: Arrays, case: ConvCase, operands: ConvOperands) -> accuracy.Errors:
    """Errors of what a run left in `out`."""
    return accuracy.compare(
        arrays, conv_reference.matrices(arrays, case, operands.out), conv_reference.reference(arrays, case, operands)
    )
