"""DeepGEMM's grouped kernels: bfloat16, and 8-bit floats scaled by blocks.

Each group begins at a multiple of 128 rows, and the rows between are computed with the others: they
are part of its time, to lay tokens out so is not. It is left out where they would be as many as the tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import deep_gemm
import torch

from cleave.testing.grouped_case import GroupedCase
from cleave.testing.grouped_operands import GroupedOperands

_SERVED = (("bfloat16", "none"), ("float8_e4m3fn", "block_128x128"))
_ROWS = 128


def serves(case: GroupedCase) -> GroupedCase | None:
    padded = replace(case, alignment=_ROWS)
    fits = case.plain and case.form != "wgrad" and case.result_dtype == "bfloat16"
    fits = fits and (case.dtype, case.scaling) in _SERVED
    return padded if fits and padded.rows < 2 * case.tokens else None


def calls(case: GroupedCase, operands: GroupedOperands) -> dict[str, Callable[[], object]]:
    a, out = operands.a, operands.out
    b = operands.b.swapaxes(1, 2)  # [groups, n, k], as it lies in memory
    groups = torch.full((case.rows,), -1, dtype=torch.int32)
    for group, (begin, end) in enumerate(case.ranges):
        groups[begin:end] = group
    groups = groups.to(a.device)
    if not case.quantized:
        multiply = deep_gemm.m_grouped_bf16_gemm_nt_contiguous
        return {"deep_gemm.m_grouped_bf16_gemm_nt_contiguous": lambda: multiply(a, b, out, groups)}
    # The layout that its kernel wants is made here once, outside of what is timed.
    scale_a = operands.scales["scale_a"].contiguous()
    scaled_a = a, deep_gemm.get_mn_major_tma_aligned_tensor(scale_a)
    scaled_b = b, operands.scales["scale_b"].swapaxes(1, 2)
    multiply = deep_gemm.m_grouped_fp8_gemm_nt_contiguous
    return {"deep_gemm.m_grouped_fp8_gemm_nt_contiguous": lambda: multiply(scaled_a, scaled_b, out, groups)}
