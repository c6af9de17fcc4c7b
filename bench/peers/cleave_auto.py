"""Our own product where rows may depend on the batch: what batch invariance costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from cleave.testing import dense
from cleave.testing.case import GemmCase
from cleave.testing.operands import Operands


def serves(case: GemmCase) -> GemmCase | None:
    return case if case.deterministic == "batch_invariant" else None


def calls(case: GemmCase, operands: Operands) -> dict[str, Callable[[], object]]:
    plan = dense.plan_for(replace(case, deterministic=True), operands)
    return {"plan.run": lambda: dense.run(plan, operands, None)}
