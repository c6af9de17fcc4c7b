"""Sums over ranks: their bound, their bits and their order."""

from __future__ import annotations

import os
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch.nn import functional

import cleave
import cleave.distributed as cd
from cleave.distributed._fold import fold

from .ranks import ROUNDOFF, Ranks, all_reduce_by, forget_forms, in_rank_order, of_large_products, same_bits

ops = torch.ops.cleave


def sums_are_within_their_bound(ranks: Ranks) -> None:
    """The bound, from float64, is what K's sums, each rank's rounding and D's may lose."""
    for dtype in ROUNDOFF:
        for m in (37, ranks.size - 1, 64):
            k = 64 * ranks.size
            a, b, bias = ranks.draw(m, k, dtype=dtype), ranks.draw(k, 40, dtype=dtype), ranks.draw(40)
            expected = a.double() @ b.double() + bias.double()
            parts = [x.double() @ y.double() for x, y in zip(a.chunk(ranks.size, 1), b.chunk(ranks.size), strict=True)]
            # float32 sums of 2^-24 a step, of which tensor cores truncate, in units of |a| |b|.
            slack = (k + 64) * 2.0**-23 * (a.double().abs() @ b.double().abs())
            bound = slack + ROUNDOFF[dtype] * (sum(p.abs() + slack for p in parts) + expected.abs())
            d = cd.gemm_all_reduce(ranks.columns(a), ranks.rows(b), bias=bias)
            assert d.dtype == dtype and d.shape == (m, 40)
            assert ((d.double() - expected).abs() <= 1.01 * bound).all()


def sums_have_the_same_bits_everywhere(ranks: Ranks) -> None:
    """On all ranks, in one shot and in two, whole and scattered; and they are the sum in rank order."""
    for dtype, partial_dtype in ((torch.bfloat16, None), (torch.float16, torch.float32), (torch.float32, None)):
        for m in (37, ranks.size - 1, 64):
            a, b = ranks.draw(m, 96 * ranks.size, dtype=dtype), ranks.draw(96 * ranks.size, 40, dtype=dtype)
            bias, c = ranks.draw(40), ranks.draw(m, 40)
            own = ranks.columns(a), ranks.rows(b)
            options = {"bias": bias, "activation": "relu", "partial_dtype": partial_dtype, "out_dtype": torch.float32}
            made = []
            for shots in ("one", "two"):
                with all_reduce_by(shots):
                    made.append(cd.gemm_all_reduce(*own, c=c, **options))
            scattered = cd.gemm_reduce_scatter(*own, c=ranks.rows(c), **options)
            assert same_bits(*made) and same_bits(scattered, ranks.rows(made[0]))
            assert all(same_bits(x, made[0]) for x in ranks.everyones(made[0]))
            partials = ranks.everyones(ops.gemm(*own, out_dtype=partial_dtype))
            expected = functional.relu(in_rank_order(partials, c.cpu(), bias.cpu()))
            assert same_bits(made[0], expected)
            if ranks.size > 2 and m == 64 and dtype != torch.bfloat16:  # else the order may not show
                other = functional.relu(in_rank_order(partials[::-1], c.cpu(), bias.cpu()))
                assert not same_bits(made[0], other)


def sums_inside_products_have_the_bits_of_those_behind(ranks: Ranks) -> None:
    """On GPUs, and though one rank's product, whose rows TMA does not read, cannot have its sum inside."""
    for rows, partial_dtype in ((1, torch.bfloat16), (24, torch.float32), (64, torch.bfloat16)):
        for own_k in (128, 128 if ranks.rank else 124):
            a, b = ranks.draw(rows, 128 * ranks.size), ranks.draw(128 * ranks.size, 256)
            own = ranks.columns(a)[:, :own_k].bfloat16(), ranks.rows(b)[:own_k].bfloat16()
            bias, c = ranks.draw(256), ranks.draw(rows, 256)
            options = {"bias": bias, "activation": "relu", "partial_dtype": partial_dtype, "out_dtype": torch.float32}
            partials = ranks.everyones(ops.gemm(*own, out_dtype=partial_dtype))
            expected = functional.relu(in_rank_order(partials, c.cpu(), bias.cpu()))
            for inside in ("0", "1", "1"):
                os.environ["CLEAVE_SUMS_IN_PRODUCTS"] = inside
                try:
                    forget_forms()
                    assert same_bits(cd.gemm_all_reduce(*own, c=c, **options), expected)
                finally:
                    del os.environ["CLEAVE_SUMS_IN_PRODUCTS"]


def sums_of_many_ranks_are_in_their_order(ranks: Ranks) -> None:
    """More of them than one kernel takes inputs, too, with all that is added to them."""
    parts = [ranks.draw(33, 40) for _ in range(20)]  # of bfloat16, sums are exact in any order
    bias, c, scale = ranks.draw(40), ranks.draw(33, 40), torch.full((1,), 0.5, device=ranks.device)
    expected = (in_rank_order(parts, c, bias) / 0.5).round().clamp(-128, 127).to(torch.int8)
    assert same_bits(fold(parts, torch.int8, bias, c, "none", scale), expected)
    for count in (1, 2, 3, 4, 7, 8, 9, 10, 17, 18):
        assert same_bits(fold(parts[:count], torch.float32), in_rank_order(parts[:count])), count
    assert not same_bits(fold(parts, torch.float32), in_rank_order(parts[::-1]))


@cleave.batch_invariant()
def rows_of_sums_do_not_depend_on_the_batch(ranks: Ranks) -> None:
    """Few rows have the bits that they have among many, whose products are moved in parts."""
    few, k = 5, 8192  # which one GPU splits where it may
    a, b = ranks.draw(128 * ranks.size, k).bfloat16(), ranks.draw(k, 64).bfloat16()
    unsplit = ops.gemm(a, b, out_dtype=torch.float32, split_k_mode="none")
    assert ranks.device != "cpu" or not same_bits(ops.gemm(a, b, out_dtype=torch.float32), unsplit)
    for multiply in (cd.gemm_all_reduce, lambda a, b, **options: cd.all_gather_gemm(ranks.rows(a), b, **options)):
        made = multiply(a[: few * ranks.size], b, out_dtype=torch.float32)
        with of_large_products():
            assert same_bits(multiply(a, b, out_dtype=torch.float32)[: few * ranks.size], made)


def scaled_sums_are_those_of_their_partials(ranks: Ranks) -> None:
    for dtype in (torch.int8, torch.float8_e4m3fn):
        for granularity in ("row", "block_1x128"):
            x, w = ranks.draw(37, 128 * ranks.size), ranks.draw(64, 128 * ranks.size)
            q, scale = ops.quantize(ranks.columns(x), dtype, granularity)
            v, w_scale = ops.quantize(ranks.columns(w), dtype, granularity)
            own, bias = (q, v.t(), scale, w_scale.t()), ranks.draw(64)
            d = cd.scaled_gemm_all_reduce(*own, bias=bias, activation="gelu", partial_dtype=torch.float32)
            partials = ranks.everyones(ops.scaled_gemm(*own, None, torch.float32))
            expected = functional.gelu(in_rank_order(partials, bias.cpu()).double())
            assert d.dtype == torch.bfloat16
            assert ((d.cpu().double() - expected).abs() <= 2.0**-8 * expected.abs() + 1e-5).all()
            assert all(same_bits(y, d) for y in ranks.everyones(d))
            own_rows = cd.scaled_gemm_reduce_scatter(*own, bias=bias, activation="gelu", partial_dtype=torch.float32)
            assert same_bits(own_rows, ranks.rows(d))
            # In 8 bits, divided and rounded once; two products of one rounding apart may fall to neighbours.
            step = torch.full((), 0.5, device=ranks.device)
            d8 = cd.scaled_gemm_all_reduce(*own, partial_dtype=torch.float32, out_dtype=torch.int8, scale_d=step)
            assert same_bits(d8, (in_rank_order(partials) / 0.5).round().clamp(-128, 127).to(torch.int8))


def sums_are_gated_and_quantised_once(ranks: Ranks) -> None:
    """From their float32, in one shot and in two, with the bits of each rank's rows."""
    for dtype, m in ((torch.bfloat16, 37), (torch.float32, ranks.size - 1), (torch.float16, 64)):
        a, b = ranks.draw(m, 96 * ranks.size, dtype=dtype), ranks.draw(96 * ranks.size, 512, dtype=dtype)
        own, bias, c = (ranks.columns(a), ranks.rows(b)), ranks.draw(512), ranks.draw(m, 512)
        sums = cd.gemm_all_reduce(*own, bias=bias, out_dtype=torch.float32)
        gate, up = sums.double().chunk(2, 1)
        gated = functional.silu(gate) * up
        scales = {"row": "k", "block_1x128": "mn"}
        for shots in ("one", "two"):
            with all_reduce_by(shots):
                for name in ("swiglu", "swiglu_interleaved"):
                    given, of_bias = own, bias
                    if name == "swiglu_interleaved":
                        order = torch.stack(torch.arange(512).chunk(2), -1).flatten()
                        given, of_bias = (own[0], own[1][:, order].contiguous()), bias[order]
                    d = cd.gemm_all_reduce(*given, bias=of_bias, activation=name)
                    assert d.dtype == dtype and d.shape == (m, 256)
                    assert ((d.double() - gated).abs() <= 2 * ROUNDOFF[dtype] * gated.abs() + 1e-5).all()
                    assert same_bits(cd.gemm_reduce_scatter(*given, bias=of_bias, activation=name), ranks.rows(d))
                for granularity, major in scales.items():
                    for out, activation in (
                        (torch.int8, "relu"),
                        (torch.float8_e4m3fn, "swiglu"),
                        (torch.int8, "swiglu_interleaved"),
                    ):
                        options = {"bias": bias, "activation": activation}
                        of_all = {} if activation != "relu" else {"c": c}
                        of_own = {} if activation != "relu" else {"c": ranks.rows(c)}
                        finished = cd.gemm_all_reduce(*own, **of_all, **options, out_dtype=torch.float32)
                        expected = ops.quantize(finished, out, granularity, scale_major=major)
                        options |= {"out_scale": granularity, "scale_major": major, "out_dtype": out}
                        made = cd.gemm_all_reduce(*own, **of_all, **options)
                        assert all(same_bits(x, y) for x, y in zip(made, expected, strict=True))
                        assert made[1].stride() == expected[1].stride() or m <= 1
                        rows = cd.gemm_reduce_scatter(*own, **of_own, **options)
                        assert all(same_bits(x, ranks.rows(y)) for x, y in zip(rows, expected, strict=True))
                for granularity in scales:
                    options = {"activation": "swiglu", "out_scale": granularity, "out_dtype": torch.int8}
                    q, scale = cd.gemm_all_reduce(*own, bias=bias, **options)
                    spread = scale.double().repeat_interleave(256 // scale.shape[1], 1)
                    assert q.shape == (m, 256)
                    assert ((q.double() * spread - gated).abs() <= 0.51 * spread + 1e-5).all()
    q, scale = ops.quantize(ranks.draw(8, 256), torch.int8, "row")
    v, w_scale = ops.quantize(ranks.draw(128, 256), torch.int8, "row")
    given = q, v.t(), scale, w_scale.t()
    whole = cd.scaled_gemm_all_reduce(*given, out_dtype=torch.float32)
    made = cd.scaled_gemm_all_reduce(*given, out_scale="block_1x128", out_dtype=torch.float8_e4m3fn, use_ue8m0=True)
    expected = ops.quantize(whole, torch.float8_e4m3fn, "block_1x128", use_ue8m0=True)
    assert all(same_bits(x, y) for x, y in zip(made, expected, strict=True))
    x, w = (t.detach().float().requires_grad_() for t in own)
    cd.gemm_all_reduce(x, w, activation="swiglu").square().mean().backward()
    grads = x.grad, w.grad
    x.grad = w.grad = None
    gate, up = cd.gemm_all_reduce(x, w, out_dtype=torch.float32).chunk(2, 1)
    (functional.silu(gate) * up).square().mean().backward()
    for grad, again in zip(grads, (x.grad, w.grad), strict=True):
        torch.testing.assert_close(grad, again, rtol=1e-3, atol=1e-3 * grad.abs().max().item())
    compiled = torch.compile(cd.gemm_all_reduce, fullgraph=True, backend="aot_eager")
    name = dist.group.WORLD.group_name
    for granularity in ("row", "block_1x128"):
        options = {"activation": "swiglu", "out_scale": granularity, "out_dtype": torch.int8}
        for x, y in zip(compiled(*own, name, **options), cd.gemm_all_reduce(*own, **options), strict=True):
            assert same_bits(x, y)
    options = {"activation": "swiglu", "out_dtype": torch.float32}
    assert same_bits(compiled(*own, name, **options), cd.gemm_all_reduce(*own, **options))


def gates_and_scales_do_not_depend_on_the_way(ranks: Ranks) -> None:
    """By every transport, whole and scattered, moved in parts or not, and in lines that are not whole."""
    for m, columns, large in ((37, 600, False), (ranks.size - 1, 72, False), (256 * ranks.size, 264, True)):
        a, b = ranks.draw(m, 64 * ranks.size).bfloat16(), ranks.draw(64 * ranks.size, columns).bfloat16()
        own, bias = (ranks.columns(a), ranks.rows(b)), ranks.draw(columns)
        partials = ranks.everyones(ops.gemm(*own, split_k_mode="none"))
        sums = in_rank_order(partials, bias.cpu())
        for activation, gate, up in (
            ("swiglu", *sums.chunk(2, 1)),
            ("swiglu_interleaved", sums[:, ::2], sums[:, 1::2]),
        ):
            gated = functional.silu(gate.double()) * up.double()
            options = {"bias": bias, "activation": activation, "split_k_mode": "none", "out_dtype": torch.float32}
            finished = cd.gemm_all_reduce(*own, **options)
            assert ((finished.cpu().double() - gated).abs() <= 2.0**-20 * gated.abs() + 1e-6).all()
            expected = ops.quantize(finished, torch.float8_e4m3fn, "block_1x128", scale_major="mn", use_ue8m0=True)
            form = {"out_scale": "block_1x128", "scale_major": "mn", "use_ue8m0": True}
            for transport in ("auto", "peer", "gloo"):
                with of_large_products() if large else nullcontext():
                    options |= {"transport": transport, "out_dtype": torch.float32}
                    for _ in range(2):  # the second is known
                        assert same_bits(cd.gemm_all_reduce(*own, **options), finished), (m, activation, transport)
                        assert same_bits(cd.gemm_reduce_scatter(*own, **options), ranks.rows(finished))
                    options |= {"out_dtype": torch.float8_e4m3fn}
                    for _ in range(2):
                        whole = cd.gemm_all_reduce(*own, **options, **form)
                        assert all(same_bits(x, y) for x, y in zip(whole, expected, strict=True)), (m, transport)
                        rows = cd.gemm_reduce_scatter(*own, **options, **form)
                        assert all(same_bits(x, ranks.rows(y)) for x, y in zip(rows, expected, strict=True))


def products_are_split_as_it_is_said(ranks: Ranks) -> None:
    """Each rank's, before its partial result is rounded and added."""
    for m in (16, 256):
        a, b = ranks.draw(m, 512 * ranks.size).bfloat16(), ranks.draw(512 * ranks.size, 64).bfloat16()
        own, seen = (ranks.columns(a), ranks.rows(b)), []
        for mode, slices in (("none", None), ("parallel", 4), ("serial", 2), ("auto", 3)):
            how = {"split_k_mode": mode, "split_k_slices": slices}
            partials = ranks.everyones(ops.gemm(*own, out_dtype=torch.float32, **how))
            how |= {"out_dtype": torch.float32, "partial_dtype": torch.float32}
            for _ in range(2):  # the second is known
                made = cd.gemm_all_reduce(*own, **how)
                assert same_bits(made, in_rank_order(partials)), (m, mode)
                assert same_bits(cd.gemm_reduce_scatter(*own, **how), ranks.rows(made)), (m, mode)
            seen.append(made)
        assert not same_bits(seen[0], seen[1])


def exact_sums_have_the_bits_of_one_process(ranks: Ranks) -> None:
    """order="k": of int8 with scales of all of K, whole and scattered, in every epilogue."""
    for m, large in ((37, False), (ranks.size - 1, False), (128 * ranks.size, True)):
        x, w, bias = ranks.draw(m, 160 * ranks.size), ranks.draw(48, 160 * ranks.size), ranks.draw(48)
        (q, scale), (v, w_scale) = (ops.quantize(t, torch.int8, "row") for t in (x, w))
        one = torch.full((1,), 0.01, device=ranks.device)
        own = ranks.columns(q), ranks.columns(v).t()
        for scales in ((scale, w_scale.t()), (one, w_scale.t()), (one, one), (None, None)):
            for activation in ("none", "gelu"):
                options = {"bias": bias, "activation": activation, "out_dtype": torch.float32}
                expected = ops.scaled_gemm.full(q, v.t(), *scales, **options)
                with of_large_products() if large else nullcontext():
                    for transport in ("auto", "peer", "gloo"):
                        options |= {"order": "k", "transport": transport}
                        made = cd.scaled_gemm_all_reduce(*own, *scales, **options)
                        assert same_bits(made, expected), (m, activation, (made - expected).abs().max())
                        assert same_bits(cd.scaled_gemm_reduce_scatter(*own, *scales, **options), ranks.rows(expected))
        for activation in ("none", "swiglu", "swiglu_interleaved"):  # one epilogue's definitions
            options = {"bias": bias, "activation": activation, "out_dtype": torch.float8_e4m3fn}
            options |= {"out_scale": "block_1x128"}
            expected = cleave.scaled_gemm(q, v.t(), scale, w_scale.t(), **options)
            with of_large_products() if large else nullcontext():
                made = cd.scaled_gemm_all_reduce(*own, scale, w_scale.t(), order="k", **options)
                rows = cd.scaled_gemm_reduce_scatter(*own, scale, w_scale.t(), order="k", **options)
            with all_reduce_by(m * 48 * 2):  # integers make two trips
                scattered = cd.scaled_gemm_all_reduce(*own, scale, w_scale.t(), order="k", **options)
            for x, y, again, z in zip(made, rows, scattered, expected, strict=True):
                assert same_bits(x, z) and same_bits(again, z) and same_bits(y, ranks.rows(z)), (m, activation)
    c = ranks.draw(m, 48)
    made = cd.scaled_gemm_all_reduce(*own, scale, w_scale.t(), bias=bias, c=c, order="k", out_dtype=torch.float32)
    exact = (q.cpu().int() @ v.cpu().int().t()).double() * scale.cpu().double() * w_scale.t().cpu().double()
    torch.testing.assert_close(made.cpu().double(), exact + c.cpu() + bias.cpu(), rtol=1e-5, atol=1e-4)


CHECKS = (
    sums_are_within_their_bound,
    sums_have_the_same_bits_everywhere,
    sums_inside_products_have_the_bits_of_those_behind,
    sums_of_many_ranks_are_in_their_order,
    rows_of_sums_do_not_depend_on_the_batch,
    scaled_sums_are_those_of_their_partials,
    sums_are_gated_and_quantised_once,
    gates_and_scales_do_not_depend_on_the_way,
    products_are_split_as_it_is_said,
    exact_sums_have_the_bits_of_one_process,
)
