"""A persistent product in Triton whose tiles do not depend on M: how batch-invariant products are written there.

One CTA an SM takes 128x128 tiles of D in turns, each over the whole of K: bits of a row follow from K's order alone.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import triton
import triton.language as tl

from cleave.testing.case import GemmCase
from cleave.testing.operands import Operands

TILE_M, TILE_N, TILE_K = (tl.constexpr(extent) for extent in (128, 128, 64))
ROWS_OF_TILES = tl.constexpr(8)  # whose columns are taken together, so that L2 serves B


def serves(case: GemmCase) -> GemmCase | None:
    fits = case.plain and case.dtype in ("float16", "bfloat16") and case.result_dtype == case.dtype
    return case if fits and case.deterministic == "batch_invariant" else None


def calls(case: GemmCase, operands: Operands) -> dict[str, Callable[[], object]]:
    a, b, d = operands.a, operands.b, operands.out
    tiles = triton.cdiv(case.m, TILE_M.value) * triton.cdiv(case.n, TILE_N.value)
    ctas = min(tiles, torch.cuda.get_device_properties(a.device).multi_processor_count)
    strides = (*a.stride(), *b.stride(), *d.stride())
    arguments = (a, b, d, case.m, case.n, case.k, *strides, ctas)
    return {"triton": lambda: multiply[(ctas,)](*arguments, num_warps=8, num_stages=3)}


@triton.jit
def multiply(a, b, d, m, n, k, a_m, a_k, b_k, b_n, d_m, d_n, ctas):  # type: ignore[no-untyped-def]
    tiles_m = tl.cdiv(m, TILE_M)
    tiles_n = tl.cdiv(n, TILE_N)
    band = ROWS_OF_TILES * tiles_n
    for tile in tl.range(tl.program_id(0), tiles_m * tiles_n, ctas):
        first = tile // band * ROWS_OF_TILES
        rows = min(tiles_m - first, ROWS_OF_TILES)
        at_m = (first + tile % band % rows) * TILE_M + tl.arange(0, TILE_M)
        at_n = tile % band // rows * TILE_N + tl.arange(0, TILE_N)
        in_k = tl.arange(0, TILE_K)
        a_rows = a + tl.where(at_m < m, at_m, 0)[:, None] * a_m
        b_columns = b + tl.where(at_n < n, at_n, 0)[None, :] * b_n
        sums = tl.zeros((TILE_M, TILE_N), dtype=tl.float32)
        for begin in tl.range(0, k, TILE_K):
            at_k = begin + in_k
            a_tile = tl.load(a_rows + at_k[None, :] * a_k, mask=at_k[None, :] < k, other=0.0)
            b_tile = tl.load(b_columns + at_k[:, None] * b_k, mask=at_k[:, None] < k, other=0.0)
            sums = tl.dot(a_tile, b_tile, sums)
        inside = (at_m[:, None] < m) & (at_n[None, :] < n)
        tl.store(d + at_m[:, None] * d_m + at_n[None, :] * d_n, sums.to(d.dtype.element_ty), mask=inside)
