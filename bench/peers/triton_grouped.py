"""Grouped products in Triton, one launch for all groups of rows (SGMV, where groups are adapters of low rank).

A program finds its group in the groups' ends: the host knows no sizes. K is split where few tiles would leave SMs idle,
and then partial sums are added by atomics, in no order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl

from cleave.testing.grouped_case import GroupedCase
from cleave.testing.grouped_operands import GroupedOperands


def serves(case: GroupedCase) -> GroupedCase | None:
    fits = case.plain and case.form == "forward" and case.spacing == 1
    return case if fits and case.dtype in ("float16", "bfloat16") and case.result_dtype == case.dtype else None


def calls(case: GroupedCase, operands: GroupedOperands) -> dict[str, Callable[[], object]]:
    a, b, offs, out = operands.a, operands.b, operands.offs, operands.out
    return {"triton": lambda: multiply(a, b, offs, out)}


def multiply(
    a: torch.Tensor, b: torch.Tensor, offs: torch.Tensor, out: torch.Tensor, alpha: float = 1.0, add: bool = False
) -> None:
    """out = alpha * a @ b[g] of every group's rows, or that added to out. a: [M, K], b: [G, K, N], out: [M, N].

    K is split where out is float32 and not added to; a float32 `a` is rounded to b's type.
    """
    (m, k), (groups, _, n) = a.shape, b.shape
    splits, room = out.dtype == torch.float32 and not add, 16 if groups <= 16 else 256
    form = {"ADD": add, "SPLITS": splits, "GROUPS": max(room, triton.next_power_of_2(groups))}
    _multiply[lambda chosen: _grid(m, n, groups, chosen)](
        a, b, offs, out, alpha, n, k, groups, *a.stride(), *b.stride(), *out.stride(), _bucket(m, groups), **form
    )


def _grid(m: int, n: int, groups: int, chosen: dict[str, Any]) -> tuple[int, int, int]:
    """As many rows of tiles as there may be: every group that has rows ends in one of its own."""
    tiles = triton.cdiv(m, chosen["BLOCK_M"]) + min(groups, m) - 1
    return triton.cdiv(n, chosen["BLOCK_N"]), tiles, chosen["SPLIT_K"]


def _bucket(m: int, groups: int) -> int:
    """What a choice of configuration goes by: rows, and rows of a group, in powers of two."""
    return m.bit_length() * 64 + (m // groups).bit_length()


def _clear(arguments: dict[str, Any]) -> None:
    arguments["out_ptr"].zero_()


def _configurations() -> list[Any]:
    shrink = [(rows, columns, 256, 3) for rows in (16, 64) for columns in (16, 32, 64)]
    expand = [(rows, columns, block, 2) for rows in (16, 64) for columns in (64, 128) for block in (16, 32, 64)]
    return [
        triton.Config(
            {"BLOCK_M": rows, "BLOCK_N": columns, "BLOCK_K": block, "SPLIT_K": slices},
            num_warps=4,
            num_stages=stages,
            pre_hook=_clear if slices > 1 else None,
        )
        for rows, columns, block, stages in shrink + expand
        for slices in (1, 8)
    ]


def _worth_trying(configurations: list[Any], arguments: dict[str, Any], **form: Any) -> list[Any]:
    """A small N in one tile or two, a small K in one step, splits only of what may be split."""
    n, k = (max(arguments[name], 16) for name in ("n", "k"))

    def worth(columns: int, block: int, slices: int) -> bool:
        in_step = block == min(triton.next_power_of_2(k), 64) if k <= 64 else block > 64 or n > 64
        narrow = n // 2 <= columns <= n if n <= 64 else columns > 16
        return in_step and narrow and (slices == 1 or form["SPLITS"])

    return [
        each for each in configurations if worth(each.kwargs["BLOCK_N"], each.kwargs["BLOCK_K"], each.kwargs["SPLIT_K"])
    ]


def quickly(call: Callable[[], object], quantiles: Any) -> Any:
    return triton.testing.do_bench(call, warmup=1, rep=3, quantiles=quantiles)


@triton.autotune(
    configs=_configurations(),
    key=["n", "k", "bucket", "ADD"],
    prune_configs_by={"early_config_prune": _worth_trying},
    do_bench=quickly,
    restore_value=["out_ptr"],
)
@triton.jit(do_not_specialize=["bucket"])
def _multiply(
    a_ptr, b_ptr, offs_ptr, out_ptr, alpha, n, k, groups, a_m, a_k, b_g, b_k, b_n, out_m, out_n, bucket,
    ADD: tl.constexpr, SPLITS: tl.constexpr, GROUPS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr, SPLIT_K: tl.constexpr,
):  # fmt: skip
    row, part = tl.program_id(1), tl.program_id(2)
    every = tl.arange(0, GROUPS)
    ends = tl.load(offs_ptr + every, every < groups, 0)
    begins = tl.load(offs_ptr + every - 1, (every > 0) & (every < groups), 0)
    tiles = tl.cumsum(tl.where(every < groups, tl.cdiv(ends - begins, BLOCK_M), 0), 0)
    group = tl.sum((tiles <= row).to(tl.int32), 0)
    if group >= groups:
        return
    mine = every == group
    end = tl.sum(tl.where(mine, ends, 0), 0)
    begin = tl.sum(tl.where(mine, begins, 0), 0)
    before = tl.sum(tl.where(every == group - 1, tiles, 0), 0)
    rows = begin + (row - before) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    lines = part * BLOCK_K + tl.arange(0, BLOCK_K)
    a_at = a_ptr + rows[:, None] * a_m + lines[None, :] * a_k
    b_at = b_ptr + group.to(tl.int64) * b_g + lines[:, None] * b_k + columns[None, :] * b_n
    sums = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for first in range(part * BLOCK_K, k, BLOCK_K * SPLIT_K):
        inside_k = first + tl.arange(0, BLOCK_K) < k
        a = tl.load(a_at, (rows[:, None] < end) & inside_k[None, :], 0.0)
        b = tl.load(b_at, inside_k[:, None] & (columns[None, :] < n), 0.0)
        sums = tl.dot(a.to(b.dtype), b, sums)
        a_at += BLOCK_K * SPLIT_K * a_k
        b_at += BLOCK_K * SPLIT_K * b_k
    sums *= alpha
    out_at = out_ptr + rows[:, None] * out_m + columns[None, :] * out_n
    inside = (rows[:, None] < end) & (columns[None, :] < n)
    if SPLIT_K > 1:
        tl.atomic_add(out_at, sums, inside, sem="relaxed")
    else:
        if ADD:
            sums += tl.load(out_at, inside, 0.0).to(tl.float32)
        tl.store(out_at, sums.to(out_ptr.dtype.element_ty), inside)
