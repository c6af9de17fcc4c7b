"""The loop that a user writes: the counts copied to the host, then a product per expert."""

from __future__ import annotations

from collections.abc import Callable

import torch

from bench.operations.wgrad_step import Case, Operands


def serves(case: Case) -> Case | None:
    return case if case.plain and not case.quantized else None


def calls(case: Case, operands: Operands) -> dict[str, Callable[[], object]]:
    dy, x, ids, out = operands.dy, operands.x, operands.expert_ids, operands.out

    def step() -> None:
        begin = 0
        ends = torch.bincount(ids, minlength=case.groups).cumsum(0).tolist()
        for expert, end in enumerate(ends):
            torch.mm(dy[begin:end].t(), x[begin:end], out=out[expert])
            begin = end

    return {"torch.bincount, cumsum, tolist, and a torch.mm(out=) per expert": step}
