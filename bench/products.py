"""What the operations that are products share; `operation` is a module of cleave.cli."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

from cleave.testing.arrays import Arrays, TorchArrays
from cleave.testing.operands import Operands


def ours(
    operation: ModuleType, arrays: TorchArrays, case: Any, sets: Sequence[Operands]
) -> tuple[list[Callable[[], None]], dict[str, Any]]:
    """One call per operand set, and what there is to say about the plan."""
    plan = operation.plan_for(case, sets[0])
    return calls(operation, arrays, plan, sets), facts(plan)


def calls(operation: ModuleType, arrays: TorchArrays, plan: Any, sets: Sequence[Operands]) -> list[Callable[[], None]]:
    """One call of the plan per operand set."""

    def bind(operands: Operands) -> Callable[[], None]:
        own = replace(operands)  # a peer may leave its result in another array
        return lambda: operation.run(plan, own, arrays.stream)

    return [bind(operands) for operands in sets]


def facts(plan: Any) -> dict[str, Any]:
    return {
        "floor_us": plan.roofline_us,
        "kernel": plan.kernel_name,
        "mode": plan.split_k_mode,
        "slices": plan.split_k_slices,
        "workspace_bytes": plan.workspace_size,
    }


def poison(arrays: Arrays, operands: Operands) -> None:
    arrays.poison(operands.out)
