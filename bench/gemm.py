"""The operation "gemm": products, of scaled 8-bit operands too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cleave.cli import measure
from cleave.cli.accuracy import Errors, Reference, compare, reference
from cleave.cli.arrays import Arrays, TorchArrays
from cleave.cli.case import GemmCase as Case
from cleave.cli.operands import Operands, make_operands

__all__ = ["Case", "describe", "errors", "make_operands", "ours", "poison", "reference"]


def ours(
    arrays: TorchArrays, case: Case, sets: Sequence[Operands]
) -> tuple[list[Callable[[], None]], dict[str, Any]]:
    """One call per operand set, and what there is to say about the plan."""
    plan = measure.plan_for(case, sets[0])
    calls = [lambda o=operands: measure.run(plan, o, arrays.stream) for operands in sets]
    return calls, {
        "floor_us": plan.roofline_us,
        "kernel": plan.kernel_name,
        "mode": plan.split_k_mode,
        "slices": plan.split_k_slices,
        "workspace_bytes": plan.workspace_size,
    }


def describe(case: Case) -> dict[str, Any]:
    fields = ("m", "n", "k", "dtype", "layout", "scaling", "use_fast_accum")
    return {field: getattr(case, field) for field in fields} | {"out_dtype": case.result_dtype}


def poison(arrays: Arrays, operands: Operands) -> None:
    arrays.poison(operands.out)


def errors(arrays: Arrays, case: Case, operands: Operands, expected: Reference) -> Errors:
    return compare(arrays, operands.out, expected)
