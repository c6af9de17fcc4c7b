"""cuBLAS, as PyTorch calls it."""

from __future__ import annotations

from collections.abc import Callable

import torch

from cleave.cli.case import GemmCase
from cleave.cli.measure import Operands

NAME = "cublas"


def bind(case: GemmCase, operands: Operands) -> Callable[[], None] | None:
    if case.activation != "none" or case.bias != "none" or case.result_dtype != case.dtype:
        return None
    multiply = torch.mm if case.batch == 1 else torch.bmm
    return lambda: multiply(operands.a, operands.b, out=operands.out)
