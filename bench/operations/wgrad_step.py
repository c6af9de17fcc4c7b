"""The operation "wgrad_step": weight gradients from the tokens' experts, offsets included.

The tokens are sorted by expert already; `expert_ids` says how many each has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from cleave.testing.arrays import Arrays, TorchArrays
from cleave.testing.grouped import errors
from cleave.testing.grouped_case import GroupedCase as Case
from cleave.testing.grouped_operands import GroupedOperands
from cleave.testing.grouped_operands import make_operands as make_grouped_operands

from .expert_offsets import expert_ids
from .products import grouped

__all__ = ["Case", "describe", "errors", "make_operands", "ours", "poison"]

describe, poison = grouped.describe, grouped.poison


@dataclass(kw_only=True)
class Operands(GroupedOperands):
    """`expert_ids`: [tokens], of the tokens in an order of their own."""

    expert_ids: Any

    @property
    def dy(self) -> Any:
        """[tokens, n]"""
        return self.a.swapaxes(0, 1)

    @property
    def x(self) -> Any:
        """[tokens, k]"""
        return self.b


def make_operands(arrays: Arrays, case: Case, seed: int) -> Operands:
    made = make_grouped_operands(arrays, case, seed)
    sizes = [end - begin for begin, end in case.ranges]
    return Operands(**vars(made), expert_ids=expert_ids(arrays, sizes, seed))


def ours(arrays: TorchArrays, case: Case, sets: Sequence[Operands]) -> tuple[list[Callable[[], None]], dict[str, Any]]:
    """One call per operand set, as an application would make it."""
    import cleave
    from cleave import moe

    def bind(dy: Any, x: Any, ids: Any, out: Any) -> Callable[[], None]:
        return lambda: cleave.grouped_gemm_wgrad(dy, x, moe.expert_offsets(ids, case.groups), out=out)

    return [bind(o.dy, o.x, o.expert_ids, o.out) for o in sets], {}
