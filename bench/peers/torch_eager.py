"""Quantisation written as operations of PyTorch, which run one by one."""

from __future__ import annotations

from collections.abc import Callable

import torch

from bench.operations.quantize import Case, Operands
from cleave.testing.dtypes import DTYPES


def serves(case: Case) -> Case | None:
    height, width = case.block
    whole = not case.rows % (height or 1) and not case.columns % (width or 1)
    return case if whole else None


def calls(case: Case, operands: Operands) -> dict[str, Callable[[], object]]:
    height, width = case.block[0] or case.rows, case.block[1] or case.columns
    blocks = operands.x.view(case.rows // height, height, case.columns // width, width)
    largest, dtype = DTYPES[case.to].largest, getattr(torch, case.to)

    def quantize() -> None:
        scales = blocks.abs().amax((1, 3), keepdim=True).float() / largest
        values = blocks / scales
        values = values.round_() if case.to == "int8" else values
        operands.values = values.to(dtype).view(case.rows, case.columns)
        operands.scales = scales

    return {"torch.abs, amax, div, round_, to": quantize}
