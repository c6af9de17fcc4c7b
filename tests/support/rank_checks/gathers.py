"""Products of rows that are gathered from all ranks."""

from __future__ import annotations

import torch

import cleave.distributed as cd

from .ranks import ROUNDOFF, Ranks, same_bits

ops = torch.ops.cleave


def gathered_products_are_those_of_the_whole(ranks: Ranks) -> None:
    for dtype in ROUNDOFF:
        for m in (37, ranks.size - 1, 16 * ranks.size):
            a, b, bias = ranks.draw(m, 72, dtype=dtype), ranks.draw(72, 40, dtype=dtype), ranks.draw(40)
            rows = None if m % ranks.size == 0 else m
            d, whole = cd.all_gather_gemm(ranks.rows(a), b, bias=bias, activation="silu", rows=rows, gathered=True)
            assert same_bits(whole, a)
            assert same_bits(d, ops.gemm(a, b, bias, activation="silu"))
            # GPUs take alternating gates contiguous along K alone.
            for gates, w in (("swiglu", b), ("swiglu_interleaved", b.t().contiguous().t())):
                d = cd.all_gather_gemm(ranks.rows(a), w, bias=bias, activation=gates, rows=rows)
                assert same_bits(d, ops.gemm(a, w, bias, activation=gates))
    x, w = ranks.draw(8, 16).requires_grad_(), ranks.draw(16, 12).requires_grad_()
    cd.all_gather_gemm(x, w, activation="swiglu").square().sum().backward()
    y, v = torch.cat([x.detach()] * ranks.size).requires_grad_(), w.detach().requires_grad_()
    ops.gemm(y, v, activation="swiglu").square().sum().backward()
    torch.testing.assert_close(w.grad, v.grad, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(x.grad, ranks.rows(y.grad) * ranks.size, rtol=1e-4, atol=1e-4)


def rows_may_lie_otherwise_on_some_ranks(ranks: Ranks) -> None:
    """Also where the same call was made with packed rows before, and unaligned ones."""
    a, b = ranks.draw(6 * ranks.size, 40), ranks.draw(40, 24)
    own, expected = ranks.rows(a), ops.gemm(a, b)
    lies = [own, own.t().contiguous().t(), torch.cat([own.flatten()[:1], own.flatten()])[1:].view_as(own)]
    for turn in range(6):
        given = lies[(turn + ranks.rank) % len(lies)]
        assert same_bits(cd.all_gather_gemm(given, b), expected), turn
        assert same_bits(cd.all_gather_gemm(given, b, gathered=True)[1], a), turn


def scales_travel_with_their_rows(ranks: Ranks) -> None:
    for dtype in (torch.int8, torch.float8_e4m3fn):
        for granularity in ("row", "block_1x128"):
            for m in (37, 8 * ranks.size):
                q, scale = ops.quantize(ranks.draw(m, 256), dtype, granularity)
                v, w_scale = ops.quantize(ranks.draw(64, 256), dtype, granularity)
                own = ranks.rows(q.view(torch.uint8)).view(dtype), v.t(), ranks.rows(scale), w_scale.t()
                d = cd.all_gather_scaled_gemm(*own, rows=m, out_dtype=torch.float32)
                assert same_bits(d, ops.scaled_gemm(q, v.t(), scale, w_scale.t(), None, torch.float32))
    q, v = (ops.quantize(ranks.draw(rows, 64), torch.int8)[0] for rows in (8, 40))
    one, column = torch.full((1,), 0.25 + ranks.rank, device=ranks.device), torch.ones(1, 40, device=ranks.device)
    d = cd.all_gather_scaled_gemm(q, v.t(), one, column, out_dtype=torch.float32)
    exact = q.cpu().float() @ v.cpu().float().t()
    assert same_bits(d, torch.cat([exact * (0.25 + r) for r in range(ranks.size)]))


CHECKS = (
    gathered_products_are_those_of_the_whole,
    rows_may_lie_otherwise_on_some_ranks,
    scales_travel_with_their_rows,
)
