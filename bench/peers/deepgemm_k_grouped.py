"""DeepGEMM's weight gradients of groups: 8-bit floats scaled by blocks, and bfloat16, added to float32.

Groups have multiples of 128 rows; those that a group lacks are zero, and it computes them with the others. It is left
out where N or K is no multiple of 128: of 2 or 4 groups of 5760 x 2880 its kernel did not end (2.6.1, three of three).
In 8 bits its sums are wrong where groups have 128 rows and a CTA has a tile or two of each (1536 x 2048: in 3 of 8
groups to 83 of 128, not the same each time); such rows stay in a report as those with another result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import deep_gemm
import torch

from cleave.testing.grouped_case import GroupedCase
from cleave.testing.grouped_operands import GroupedOperands

_SERVED = (("bfloat16", "none"), ("float8_e4m3fn", "block_1x128"))
_ROWS = 128


def serves(case: GroupedCase) -> GroupedCase | None:
    fits = case.form == "wgrad" and case.accumulate and replace(case, accumulate=False).plain
    fits = fits and case.result_dtype == "float32" and (case.dtype, case.scaling) in _SERVED
    fits = fits and case.n % 128 == 0 and case.k % 128 == 0
    padded = replace(case, alignment=_ROWS)
    return padded if fits and padded.rows < 2 * case.tokens else None


def calls(case: GroupedCase, operands: GroupedOperands) -> dict[str, Callable[[], object]]:
    begins = [begin for begin, _ in case.ranges]
    sizes = [end - begin for begin, end in zip(begins, [*begins[1:], case.rows], strict=True)]
    on_gpu = torch.tensor(sizes, dtype=torch.int32, device=operands.out.device)
    options = {"ks_cpu": sizes, "grouped_layout": on_gpu, "c": operands.out}
    if not case.quantized:
        a, b = (_zeroed(x, case).t().contiguous() for x in (operands.a, operands.b.t()))
        multiply = deep_gemm.k_grouped_bf16_gemm_tn_contiguous
        return {"deep_gemm.k_grouped_bf16_gemm_tn_contiguous": lambda: multiply(a, b, operands.out, **options)}
    a = _packed(operands.a, case, sizes), operands.scales["scale_a"]
    b = _packed(operands.b.t(), case, sizes), operands.scales["scale_b"].t()
    multiply = deep_gemm.k_grouped_fp8_gemm_nt_contiguous
    return {"deep_gemm.k_grouped_fp8_gemm_nt_contiguous": lambda: multiply(a, b, operands.out, **options)}


def _zeroed(x: Any, case: GroupedCase) -> Any:
    """[rows, K] without what belongs to no group."""
    kept = torch.zeros_like(x)
    for begin, end in case.ranges:
        kept[:, begin:end] = x[:, begin:end]
    return kept


def _packed(x: Any, case: GroupedCase, sizes: list[int]) -> Any:
    """The groups' [rows, k] one behind the other."""
    return torch.cat([part.flatten() for part in _zeroed(x.view(torch.uint8), case).split(sizes, 1)]).view(x.dtype)
