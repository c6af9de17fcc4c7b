"""What a sum over ranks is, whichever way its parts go: at once, by a second trip to all ranks, while more are made."""

from __future__ import annotations

import torch
from torch import Tensor

import cleave.distributed as cd

from .ranks import FILLED_BY_NONE, Ranks, all_reduce_by, in_rank_order, of_large_products, replays_are, same_bits

ops = torch.ops.cleave


def scaled_sums_in_parts_have_the_bits_of_those_at_once(ranks: Ranks) -> None:
    """Scales lie in lines, in columns, or are those of blocks of rows, of which parts cannot be cut out."""
    m = 256 * ranks.size
    for dtype in (torch.float8_e4m3fn, torch.int8):
        for granularity, major in (("row", "k"), ("block_1x128", "k"), ("block_1x128", "mn"), ("block_128x128", "k")):
            x, w = ranks.draw(m, 128 * ranks.size), ranks.draw(64, 128 * ranks.size)
            form = {"scale_major": major} if granularity == "block_1x128" else {}
            q, scale = ops.quantize(ranks.columns(x), dtype, granularity, **form)
            v, w_scale = ops.quantize(ranks.columns(w), dtype, granularity)
            own, c = (q, v.t(), scale, w_scale.t()), ranks.draw(m, 64)
            for activation in ("none", "relu"):
                options = {"bias": ranks.draw(64), "activation": activation, "out_dtype": torch.float32}
                with all_reduce_by("two"):
                    expected = cd.scaled_gemm_all_reduce(*own, c=c, **options)
                with of_large_products():
                    for _ in range(2):  # the second one is known
                        assert same_bits(cd.scaled_gemm_all_reduce(*own, c=c, **options), expected)
                        rows = cd.scaled_gemm_reduce_scatter(*own, c=ranks.rows(c), **options)
                        assert same_bits(rows, ranks.rows(expected))


def known_sums_read_what_they_are_given(ranks: Ranks) -> None:
    """Calls that are like one before, with other tensors: strided ones, and ranks without rows."""
    for m in (37, ranks.size - 1, 128 * ranks.size):
        for shots in ("one", "two", "in parts"):
            with of_large_products() if shots == "in parts" else all_reduce_by(shots):
                for _ in range(3):
                    a, b = ranks.draw(m, 48 * ranks.size, dtype=torch.float16), ranks.draw(48 * ranks.size, 32).half()
                    own, bias, c = (ranks.columns(a), ranks.rows(b)), ranks.draw(32), ranks.draw(m, 40)[:, :32]
                    partials = ranks.everyones(ops.gemm(*own, split_k_mode="none"))
                    expected = in_rank_order(partials, c.cpu(), bias.cpu())
                    options = {"bias": bias, "out_dtype": torch.float32, "split_k_mode": "none"}
                    assert same_bits(cd.gemm_all_reduce(*own, c=c, **options), expected)
                    first = min(ranks.rank * -(-m // ranks.size), m)
                    mine = c[first : first + ranks.rows(c).shape[0]]
                    assert same_bits(cd.gemm_reduce_scatter(*own, c=mine, **options), ranks.rows(expected))


def rows_that_ranks_have_are_summed(ranks: Ranks) -> None:
    for m, dtype in ((37, torch.float32), (max(ranks.size - 1, 1), torch.bfloat16), (200 * ranks.size, torch.bfloat16)):
        for shots in ("one", "two", "in parts"):
            with of_large_products() if shots == "in parts" else all_reduce_by(shots):
                for _ in range(2):
                    x = torch.randn(m, 72, generator=torch.Generator().manual_seed(ranks.rank)).to(dtype)
                    x, bias = x.to(ranks.device) + ranks.draw(72).to(dtype), ranks.draw(72)
                    for given in (x, torch.cat([x, x], 1)[:, :72]):
                        expected = in_rank_order(ranks.everyones(x), bias.cpu()).to(dtype)
                        group = torch.distributed.group.WORLD.group_name
                        assert same_bits(ops.all_reduce_rows(given, group, bias), expected)
                        assert same_bits(ops.reduce_scatter_rows(given, group, bias), ranks.rows(expected))


def large_products_are_replayed(ranks: Ranks) -> None:
    if ranks.device == "cpu":
        return
    m = 512 * ranks.size
    x, w = ranks.draw(m, 256, dtype=torch.bfloat16), ranks.draw(256, 512, dtype=torch.bfloat16)

    def block() -> tuple[Tensor, ...]:
        h = cd.all_gather_gemm(ranks.rows(x), w, activation="silu")
        sums = [cd.gemm_all_reduce(x, w, activation=name) for name in ("none", "relu")]
        return h, cd.gemm_reduce_scatter(h, w.t()), *sums

    for wave in (1, FILLED_BY_NONE):
        with of_large_products(wave):
            assert replays_are(block, 300, eager_every=3)


CHECKS = (
    scaled_sums_in_parts_have_the_bits_of_those_at_once,
    known_sums_read_what_they_are_given,
    rows_that_ranks_have_are_summed,
    large_products_are_replayed,
)
