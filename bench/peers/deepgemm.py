"""DeepGEMM's dense bfloat16 kernel, for operands that both have K as their unit stride."""

from __future__ import annotations

from collections.abc import Callable

import deep_gemm

from cleave.cli.case import GemmCase
from cleave.cli.measure import Operands

NAME = "deepgemm"


def bind(case: GemmCase, operands: Operands) -> Callable[[], None] | None:
    plain = case.activation == "none" and case.bias == "none" and case.batch == 1
    if (
        not plain
        or case.layout != "tn"
        or case.dtype != "bfloat16"
        or case.result_dtype != "bfloat16"
    ):
        return None
    stored_b = operands.b.swapaxes(0, 1)  # [n, k], as it lies in memory
    return lambda: deep_gemm.bf16_gemm_nt(operands.a, stored_b, operands.out)
