"""Another case of our own, where it is what a case is compared with."""

from __future__ import annotations

from collections.abc import Callable

from cleave.testing import grouped
from cleave.testing.grouped_case import GroupedCase
from cleave.testing.grouped_operands import GroupedOperands


def calls(case: GroupedCase, operands: GroupedOperands) -> dict[str, Callable[[], object]]:
    plan = grouped.plan_for(case, operands)
    return {"plan.run": lambda: grouped.run(plan, operands, None)}
