"""The operation "router_logits": a router's logits for few tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .accuracy import Errors
from .arrays import Arrays
from .dtypes import DTYPES
from .kernel_plan import KernelPlan, OneKernel, errors_of


@dataclass(frozen=True)
class RouterLogitsCase(OneKernel):
    """As `cleave.moe.router_logits` has them. dtype: of the tokens."""

    tokens: int
    experts: int
    features: int
    dtype: str = "bfloat16"
    weight_dtype: str = "float32"
    static_weight: bool = False

    @property
    def dtypes(self) -> frozenset[str]:
        return frozenset((self.dtype, self.weight_dtype, "float32"))

    @property
    def bytes(self) -> int:
        """Each operand read once, the logits written once."""
        x = self.tokens * self.features * DTYPES[self.dtype].bytes
        return x + self.experts * self.features * DTYPES[self.weight_dtype].bytes + 4 * self.tokens * self.experts

    @property
    def flops(self) -> int:
        return 2 * self.tokens * self.experts * self.features

    @property
    def title(self) -> str:
        sizes = f"{self.tokens}x{self.experts}x{self.features} {self.dtype}*{self.weight_dtype}"
        return sizes + " static weight" * self.static_weight

    def plan(self, device: str) -> KernelPlan:
        from .. import _core

        sizes = self.tokens, self.experts, self.features
        planned = _core.plan_router_logits_problem(*sizes, self.dtype, self.weight_dtype, self.static_weight, device)
        return KernelPlan(planned, self.bytes)


@dataclass
class RouterLogitsOperands:
    case: RouterLogitsCase
    device: str
    x: Any
    weight: Any
    logits: Any = None


def make_operands(arrays: Arrays, case: RouterLogitsCase, seed: int = 0) -> RouterLogitsOperands:
    x = arrays.normal((case.tokens, case.features), case.dtype, seed)
    weight = arrays.normal((case.experts, case.features), case.weight_dtype, seed + 1)
    return RouterLogitsOperands(case, arrays.device_name, x, weight)


def plan_for(case: RouterLogitsCase, operands: RouterLogitsOperands) -> KernelPlan:
    return case.plan(operands.device)


def run(plan: KernelPlan, operands: RouterLogitsOperands, stream: int | None) -> None:
    import cleave

    static = operands.case.static_weight
    operands.logits = cleave.moe.router_logits(operands.x, operands.weight, static_weight=static, stream=stream)


def errors(arrays: Arrays, case: RouterLogitsCase, operands: RouterLogitsOperands) -> Errors:
    expected = arrays.float64(operands.x) @ arrays.float64(operands.weight).T
    # float32 sums of as many products; rounding errors add up as random ones do.
    return errors_of(arrays, operands.logits, expected, 8 * DTYPES["float32"].roundoff * (1 + case.features**0.5))
