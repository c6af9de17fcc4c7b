"""torch.bincount and cumsum, then torch._grouped_mm: nothing is copied to the host by hand."""

from __future__ import annotations

from collections.abc import Callable

import torch

from bench.operations.wgrad_step import Case, Operands

from .torch_grouped import serves

__all__ = ["calls", "serves"]


def calls(case: Case, operands: Operands) -> dict[str, Callable[[], object]]:
    dy, x, ids = operands.dy, operands.x, operands.expert_ids

    def step() -> None:
        offs = torch.bincount(ids, minlength=case.groups).cumsum(0, dtype=torch.int32)
        operands.out = torch._grouped_mm(dy.t(), x, offs=offs)

    return {"torch.bincount, cumsum, torch._grouped_mm": step}
