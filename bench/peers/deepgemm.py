"""DeepGEMM's dense kernels: bfloat16, and 8-bit floats scaled by blocks."""

from __future__ import annotations

from collections.abc import Callable

import deep_gemm

from cleave.testing.case import GemmCase
from cleave.testing.operands import Operands

_SERVED = (("bfloat16", "none"), ("float8_e4m3fn", "block_128x128"))


def serves(case: GemmCase) -> GemmCase | None:
    fits = case.plain and case.layout == "tn" and case.result_dtype == "bfloat16"
    return case if fits and (case.dtype, case.scaling) in _SERVED else None


def calls(case: GemmCase, operands: Operands) -> dict[str, Callable[[], object]]:
    a, out = operands.a, operands.out
    b = operands.b.swapaxes(0, 1)  # [n, k], as it lies in memory
    if not case.quantized:
        return {"deep_gemm.bf16_gemm_nt": lambda: deep_gemm.bf16_gemm_nt(a, b, out)}
    # The layout that its kernel wants is made here once, outside of what is timed.
    scale_a = operands.scales["scale_a"].contiguous()
    scaled_a = a, deep_gemm.get_mn_major_tma_aligned_tensor(scale_a)
    scaled_b = b, operands.scales["scale_b"].swapaxes(0, 1)
    return {"deep_gemm.fp8_gemm_nt": lambda: deep_gemm.fp8_gemm_nt(scaled_a, scaled_b, out)}
