"""torch.bincount and cumsum: it waits for the GPU, to learn the largest id."""

from __future__ import annotations

from collections.abc import Callable

import torch

from bench.operations.expert_offsets import Case, Operands


def serves(case: Case) -> Case | None:
    return case


def calls(case: Case, operands: Operands) -> dict[str, Callable[[], object]]:
    ids = operands.expert_ids.flatten()

    def count() -> None:
        operands.offs = torch.bincount(ids, minlength=case.experts).cumsum(0, dtype=torch.int32)

    return {"torch.bincount, cumsum": count}
