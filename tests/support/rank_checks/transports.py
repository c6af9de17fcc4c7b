"""What every way of moving partial results keeps, and which one a call takes."""

from __future__ import annotations

from itertools import product

import torch
from torch import Tensor
from torch.nn import functional

import cleave.distributed as cd

from .ranks import FILLED_BY_NONE, Ranks, by_memory, in_rank_order, of_large_products, replays_are, same_bits

ops = torch.ops.cleave


def transports_have_the_same_bits(ranks: Ranks) -> None:
    a, b = ranks.draw(50, 128, dtype=torch.bfloat16), ranks.draw(128, 40, dtype=torch.bfloat16)
    auto = cd.gemm_reduce_scatter(a, b)
    for transport in ("gloo", "peer", "nccl") if ranks.device == "cuda" else ("gloo", "peer"):
        assert same_bits(auto, cd.gemm_reduce_scatter(a, b, transport=transport))
        assert same_bits(
            cd.all_gather_gemm(ranks.rows(a), b, rows=50), cd.all_gather_gemm(ranks.rows(a), b, rows=50,
                                                                              transport=transport))  # fmt: skip


def large_products_are_moved_while_they_are_made(ranks: Ranks) -> None:
    """In parts, by any transport, with the bits of products that are not split. K is dealt unevenly."""
    dealt_k = [32 * (rank + 1) for rank in range(ranks.size)]
    for m, n in ((640 * ranks.size, 64 * ranks.size), (200 * ranks.size, 48), (72 * ranks.size, 48)):
        a, b = ranks.draw(m, sum(dealt_k), dtype=torch.bfloat16), ranks.draw(sum(dealt_k), n).bfloat16()
        own = a.split(dealt_k, 1)[ranks.rank].contiguous(), b.split(dealt_k)[ranks.rank].contiguous()
        bias, c = ranks.draw(n), ranks.draw(m, n)
        total = in_rank_order(ranks.everyones(ops.gemm(*own, split_k_mode="none")), c.cpu(), bias.cpu())
        own = own[0].requires_grad_(), own[1]
        q, scale = ops.quantize(a, torch.float8_e4m3fn, "row")
        v, w_scale = ops.quantize(b.t().contiguous(), torch.float8_e4m3fn, "row")
        dealt = ranks.rows(q.view(torch.uint8)).view(q.dtype), v.t(), ranks.rows(scale), w_scale.t()
        gathered = ops.gemm(a, b, bias, activation="silu", split_k_mode="none")
        scaled = ops.scaled_gemm.full(q, v.t(), scale, w_scale.t(), None, torch.float32, split_k_mode="none")
        with of_large_products():
            for transport, activation in product(("auto", "peer", "gloo"), ("none", "relu")):
                options = {"bias": bias, "activation": activation, "out_dtype": torch.float32, "transport": transport}
                expected = functional.relu(total) if activation == "relu" else total
                assert same_bits(cd.gemm_all_reduce(*own, c=c, **options), expected)
                assert same_bits(cd.gemm_reduce_scatter(*own, c=ranks.rows(c), **options), ranks.rows(expected))
                d, whole = cd.all_gather_gemm(
                    ranks.rows(a), b, bias=bias, activation="silu", gathered=True, transport=transport
                )
                assert same_bits(whole, a) and same_bits(d, gathered)
                d = cd.all_gather_gemm(ranks.rows(a), b, transport=transport)  # which keeps nothing else
                assert same_bits(d, ops.gemm(a, b, split_k_mode="none"))
                assert same_bits(
                    cd.all_gather_scaled_gemm(*dealt, out_dtype=torch.float32, transport=transport), scaled
                )
        with of_large_products(FILLED_BY_NONE):
            for kept in (False, True):
                d = cd.all_gather_gemm(ranks.rows(a), b, bias=bias, activation="silu", gathered=kept)
                d, whole = d if kept else (d, a)
                assert same_bits(whole, a) and same_bits(d, ops.gemm(a, b, bias, activation="silu"))
            expected = ops.scaled_gemm.full(q, v.t(), scale, w_scale.t(), None, torch.float32)
            assert same_bits(cd.all_gather_scaled_gemm(*dealt, out_dtype=torch.float32), expected)


def the_plan_says_why(ranks: Ranks) -> None:
    device = ranks.device
    cd.gemm_all_reduce(ranks.draw(16, 8), ranks.draw(8, 64))  # which makes the memory that all see
    small = cd.explain("gemm_all_reduce", 16, 64, device=device)
    begin = f"gemm_all_reduce over {ranks.size} ranks by "
    if by_memory(ranks):
        assert small.startswith(begin + "peer, one-shot: product into memory that all see")
        assert "which reads" in cd.explain("gemm_reduce_scatter", 16, 64, device=device)
    else:
        transport = "nccl" if device == "cuda" else "gloo"
        assert small.startswith(begin + f"{transport}, unfused, one-shot")
        assert "all-to-all of" in cd.explain("gemm_reduce_scatter", 16, 64, device=device)
    large = cd.explain("gemm_all_reduce", 1 << 16, 1 << 14, device=device)
    assert ("two-shot" in large) == (ranks.size > 1)


def graphs_replay_the_same_bits(ranks: Ranks) -> None:
    if ranks.device == "cpu":
        return
    x, w = ranks.draw(64, 256, dtype=torch.bfloat16), ranks.draw(256, 512, dtype=torch.bfloat16)

    def block() -> tuple[Tensor, ...]:
        h = cd.all_gather_gemm(x, w, activation="silu")
        return h, cd.gemm_reduce_scatter(h, w.t()), cd.gemm_all_reduce(x, w)

    assert replays_are(block, 10_000)


CHECKS = (
    transports_have_the_same_bits,
    large_products_are_moved_while_they_are_made,
    the_plan_says_why,
    graphs_replay_the_same_bits,
)
