"""What is compared with other cases, or other ways, of our own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from cleave.testing import conv, grouped
from cleave.testing.conv_case import ConvCase
from cleave.testing.conv_operands import ConvOperands
from cleave.testing.grouped_case import GroupedCase
from cleave.testing.grouped_operands import GroupedOperands


def calls(case: GroupedCase, operands: GroupedOperands) -> dict[str, Callable[[], object]]:
    plan = grouped.plan_for(case, operands)
    return {"plan.run": lambda: grouped.run(plan, operands, None)}


def dividing(division: str) -> Callable[[ConvCase, ConvOperands], dict[str, Callable[[], object]]]:
    """`calls` of the same convolution, whose kernel divides in that way."""

    def calls(case: ConvCase, operands: ConvOperands) -> dict[str, Callable[[], object]]:
        plan = conv.plan_for(replace(case, division=division), operands)
        return {"plan.run": lambda: conv.run(plan, operands, None)}

    return calls


def serves_all(case: ConvCase) -> ConvCase:
    return case
