"""A product of bfloat16 with int4 weights in Triton, as a peer: weights packed along K, eight in a word of 32 bits, and
groups of K with scales, as GPTQ's kernels have them; K is split where few tiles would leave SMs idle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

from .peers.triton_grouped import quickly


@dataclass(frozen=True)
class TritonWeights:
    """words: int32 [K / 8, N], of which bits 4 i are row i's; scales: [K / group, N]."""

    words: torch.Tensor
    scales: torch.Tensor

    @staticmethod
    def of(codes: torch.Tensor, scales: torch.Tensor) -> TritonWeights:
        """codes: uint8 [N, K]."""
        rows, columns = codes.shape
        places = torch.arange(0, 32, 4, device=codes.device, dtype=torch.int32)
        eight = codes.view(rows, columns // 8, 8).int() << places
        return TritonWeights(eight.sum(2, dtype=torch.int32).t().contiguous(), scales)

    def clone(self) -> TritonWeights:
        return TritonWeights(self.words.clone(), self.scales.clone())


def _clear(arguments: dict[str, Any]) -> None:
    arguments["d_ptr"].zero_()


def _configurations() -> list[Any]:
    return [
        triton.Config(
            {"BLOCK_N": n, "BLOCK_K": k, "SPLIT_K": split},
            num_warps=4,
            num_stages=stages,
            pre_hook=_clear if split > 1 else None,
        )
        for n in (64, 128)
        for k in (64, 128)
        for split in (1, 4, 8)
        for stages in (3, 5)
    ]


@triton.autotune(configs=_configurations(), key=["m", "n", "k"], do_bench=quickly)
@triton.jit
def _multiply(
    x_ptr, words_ptr, scales_ptr, d_ptr, m, n, k, GROUP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr, SPLIT_K: tl.constexpr,
):  # fmt: skip
    tile, part = tl.program_id(0), tl.program_id(1)
    across = tl.cdiv(n, BLOCK_N)
    rows = tile // across * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tile % across * BLOCK_N + tl.arange(0, BLOCK_N)
    lines = part * BLOCK_K + tl.arange(0, BLOCK_K)
    x_at = x_ptr + rows[:, None] * k + lines[None, :]
    words_at = words_ptr + (lines[:, None] // 8) * n + columns[None, :]
    shifts = (lines % 8 * 4)[:, None]
    sums = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for first in range(part * BLOCK_K, k, BLOCK_K * SPLIT_K):
        x = tl.load(x_at, rows[:, None] < m, 0.0)
        words = tl.load(words_at, columns[None, :] < n, 0)
        scales = tl.load(scales_ptr + first // GROUP * n + columns, columns < n, 0.0)
        weight = ((words >> shifts & 15) - 8).to(tl.bfloat16) * scales[None, :]
        sums = tl.dot(x, weight, sums)
        x_at += BLOCK_K * SPLIT_K
        words_at += BLOCK_K * SPLIT_K // 8 * n
    d_at = d_ptr + rows[:, None] * n + columns[None, :]
    inside = (rows[:, None] < m) & (columns[None, :] < n)
    if SPLIT_K == 1:
        tl.store(d_at, sums.to(tl.bfloat16), inside)
    else:
        tl.atomic_add(d_at, sums.to(tl.bfloat16), inside, sem="relaxed")


def multiply(x: torch.Tensor, weights: TritonWeights, out: torch.Tensor) -> None:
    (m, k), n = x.shape, weights.words.shape[1]
    block = 16 if m <= 16 else 32 if m <= 32 else 64
    if m > 64:
        block = 128
    _multiply[lambda chosen: (triton.cdiv(m, block) * triton.cdiv(n, chosen["BLOCK_N"]), chosen["SPLIT_K"])](
        x, weights.words, weights.scales, out, m, n, k, GROUP=k // weights.scales.shape[0], BLOCK_M=block
    )
