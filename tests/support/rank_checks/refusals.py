"""Calls that are refused, on one rank, or because ranks disagree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist

import cleave.distributed as cd
from cleave.distributed import _agreement

from .ranks import Ranks, by_memory

ops = torch.ops.cleave


def a_rank_in_another_call_is_named(ranks: Ranks) -> None:
    """By what the ranks say where they meet; a group's memory is of no use after that, and others' is."""
    if ranks.size == 1:
        return
    group = dist.new_group(list(range(ranks.size)))
    a, b = ranks.draw(8, 16), ranks.draw(16, 24)
    cd.gemm_all_reduce(a, b, group, transport="peer")
    late = torch.cat([a, a]) if ranks.rank == 1 else a
    for _ in range(2):
        with pytest.raises(cd.PeerError, match=rf"rank {ranks.rank} calls gemm_all_reduce\(rows=|which did not come"):
            cd.gemm_all_reduce(late, b, group, transport="peer")
            if ranks.device == "cuda":
                torch.cuda.synchronize()  # the next call finds what the kernel has left
                cd.gemm_all_reduce(late, b, group, transport="peer")
    assert torch.isfinite(cd.gemm_all_reduce(a, b, transport="peer")).all()


def refusals_name_argument_value_and_remedy(ranks: Ranks) -> None:
    a, b = ranks.draw(8, 16), ranks.draw(16, 24)
    q, one = a.to(torch.int8), torch.ones(1, device=ranks.device)
    x, of_x = ops.quantize(ranks.draw(8, 256), torch.int8, "block_1x128")
    blocks = x, x.t(), of_x, of_x.t()
    cases: list[tuple[Callable[[], Any], type[Exception], str]] = [
        (lambda: cd.gemm_all_reduce(a[None], b), ValueError, r"a is \[1, 8, 16\].*flatten"),
        (lambda: cd.gemm_all_reduce(a, b[1:]), ValueError, r"b is \[15, 24\]; a's columns"),
        (lambda: cd.gemm_all_reduce(q, b), TypeError, "a is torch.int8.*scaled form"),
        (lambda: cd.scaled_gemm_all_reduce(a, b, one, one), TypeError, "a is torch.float32.*without scales"),
        (lambda: cd.gemm_all_reduce(a, b, order="k"), ValueError, "order is 'k'.*a is torch.float32.*Use order='rank'"),
        (
            lambda: cd.scaled_gemm_all_reduce(*blocks, order="k"),
            ValueError,
            "order is 'k'.*scales of blocks make floats of its sums",
        ),
        (
            lambda: cd.scaled_gemm_all_reduce(q, q.t(), one, one, order="k", partial_dtype=torch.float32),
            TypeError,
            "partial_dtype is torch.float32; with order 'k'",
        ),
        (lambda: cd.gemm_all_reduce(a, b, order="tree"), ValueError, "order is 'tree'; it must be 'rank'"),
        (
            lambda: cd.gemm_all_reduce(a, b, activation="sine"),
            ValueError,
            "'sine'; it must be one of none, relu.*swiglu",
        ),
        (lambda: cd.gemm_all_reduce(a, b[:, :5], activation="swiglu"), ValueError, "b has 5 columns; swiglu joins"),
        (lambda: cd.all_gather_gemm(a, b[:, :5], activation="swiglu"), ValueError, "b has 5 columns; swiglu joins"),
        (lambda: cd.gemm_all_reduce(a, b, c=a, activation="swiglu"), ValueError, "c is given, but activation is swi"),
        (
            lambda: cd.gemm_all_reduce(a, b, out_scale="tensor", out_dtype=torch.int8),
            ValueError,
            "out_scale is 'tensor'; it must be 'row' or 'block_1x128'",
        ),
        (lambda: cd.gemm_all_reduce(a, b, out_scale="row"), TypeError, "out_dtype is None beside out_scale"),
        (
            lambda: cd.gemm_all_reduce(a, b, out_scale="block_1x128", scale_major="m", out_dtype=torch.int8),
            ValueError,
            "scale_major is 'm'; it must be 'k' or 'mn'",
        ),
        (
            lambda: cd.gemm_all_reduce(a, b, out_scale="block_1x128", out_dtype=torch.int8, actvation="relu"),
            TypeError,
            "'actvation'. Did you mean 'activation'",
        ),
        (lambda: cd.gemm_reduce_scatter(a, b, use_ue8m0=True), ValueError, "use_ue8m0 is given, but no scales are"),
        (
            lambda: cd.scaled_gemm_all_reduce(q, q.t(), one, one, scale_d=one, out_scale="row", out_dtype=torch.int8),
            ValueError,
            "scale_d is given beside out_scale",
        ),
        (lambda: cd.gemm_all_reduce(a, b, split_k_mode="halves"), ValueError, "halves"),
        (lambda: cd.gemm_all_reduce(a, b, bias=one), ValueError, r"bias is \[1\]; it must be \[24\]"),
        (lambda: cd.gemm_reduce_scatter(a, b, c=ranks.draw(9, 24)), ValueError, r"c is \[9, 24\]; it must be \["),
        (lambda: cd.gemm_all_reduce(a, b, partial_dtype=torch.int8), TypeError, "partial_dtype is torch.int8; it must"),
        (lambda: cd.gemm_all_reduce(a, b, out_dtype=torch.int32), TypeError, "out_dtype is torch.int32"),
        (lambda: cd.gemm_all_reduce(a, b, out_dtype=torch.int8), ValueError, "scale_d is missing; give both"),
        (
            lambda: cd.gemm_all_reduce(a, b, activation="swiglu", out_dtype=torch.int8),
            ValueError,
            "scale_d is missing; give both",
        ),
        (
            lambda: cd.scaled_gemm_all_reduce(q, q.t(), one, one, scale_d=one, activation="swiglu"),
            ValueError,
            "scale_d is given, which only 8-bit results have",
        ),
        (
            lambda: cd.moe_dispatch(a, torch.zeros(8, 1).int(), ranks.size, transport="peer"),
            ValueError,
            "which moves what",
        ),
        (lambda: cd.gemm_all_reduce(a, b, transport="mpi"), ValueError, "transport is 'mpi', but group"),
        (lambda: cd.all_gather_gemm(a, b, rows=9), ValueError, "a has 8 rows on rank .*torch.chunk would deal"),
        (lambda: cd.all_gather_scaled_gemm(q, q.t(), one.expand(3), one), ValueError, r"scale_a is \[3\]; it must"),
        (lambda: cd.gemm_all_reduce(a.double(), b.double()), TypeError, "a is torch.float64; it must be torch.float16"),
        (
            lambda: cd.gemm_all_reduce(a, b, bias=torch.zeros(24, device="meta")),
            ValueError,
            f"a is on {a.device} and bias on meta; move one",
        ),
        (lambda: cd.gemm_all_reduce(a, b, actvation="relu"), TypeError, "'actvation'. Did you mean 'activation'"),
        (lambda: cd.gemm_all_reduce(a, b, alpha=2.0), TypeError, "'alpha'. It has a, b, group"),
        (lambda: cd.gemm_all_reduce(a, b, dist.GroupMember.NON_GROUP_MEMBER), RuntimeError, "not in the group of gemm"),
        (lambda: cd.explain("gemm_all_reduce", -1, 8), ValueError, "m is -1 and n is 8; they must be 0 or more"),
        (lambda: cd.explain("gemm", 8, 8), ValueError, "operation is 'gemm'; it must be one of all_gather_gemm"),
    ]
    for call, error, match in cases:
        with pytest.raises(error, match=match):
            call()
    dist.barrier()  # which no refused call has upset


def disagreement_is_an_error_on_every_rank(ranks: Ranks) -> None:
    if ranks.size == 1:
        return
    a, b = ranks.draw(8, 16), ranks.draw(16, 24)
    if ranks.device == "cpu" and not by_memory(ranks):  # by gloo it is looked for in any case, and nothing is moved
        with pytest.raises(
            cd.PeerError, match=r"is in gemm_all_reduce, all-gather of \d+ bytes, and rank . in .*the same"
        ):
            cd.gemm_all_reduce(a[: 8 - ranks.rank], b)
        with pytest.raises(cd.PeerError, match=r"in gemm_reduce_scatter, all-to-all of .* still of use"):
            (cd.all_gather_gemm if ranks.rank == 1 else cd.gemm_reduce_scatter)(a, b)
        assert torch.isfinite(cd.gemm_all_reduce(a, b)).all()
    asked = _agreement.is_checked
    _agreement.is_checked = lambda: True
    try:
        cd.gemm_all_reduce(a, b)
        with pytest.raises(cd.PeerError, match=f"rank {ranks.rank} calls gemm_all_reduce.*All must make the same"):
            cd.gemm_all_reduce(a[: 8 - ranks.rank], b)
        with pytest.raises(cd.PeerError, match=r"calls gemm_all_reduce\(|calls all_gather_rows\("):
            if ranks.rank == 0:
                ops.all_gather_rows(a, dist.group.WORLD.group_name)
            else:
                cd.gemm_all_reduce(a, b)
    finally:
        _agreement.is_checked = asked


CHECKS = (
    a_rank_in_another_call_is_named,
    refusals_name_argument_value_and_remedy,
    disagreement_is_an_error_on_every_rank,
)
