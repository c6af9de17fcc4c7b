"""What products over ranks promise, as functions that every rank of a group runs: by gloo, on GPUs by NCCL."""

from __future__ import annotations

import copy
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import parallelize_module
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

import cleave
import cleave.distributed as cd
from cleave.distributed import _agreement, _operators, _peer_memory, _peers, _sums, _transports
from cleave.distributed._fold import fold
from cleave.distributed._peers import peers_of
from cleave.torch import parallel

ops = torch.ops.cleave
ROUNDOFF = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8, torch.float32: 2.0**-24}


@dataclass(frozen=True)
class Ranks:
    rank: int
    size: int
    device: str

    def draw(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """The same on all ranks: their generators are."""
        return torch.randn(shape).to(dtype).to(self.device)

    def columns(self, x: Tensor) -> Tensor:
        """This rank's, leaf and contiguous."""
        return x.chunk(self.size, 1)[self.rank].detach().contiguous()

    def rows(self, x: Tensor) -> Tensor:
        """This rank's, as torch.chunk deals them; the last ranks may have none."""
        parts = x.chunk(self.size)
        return (parts[self.rank] if self.rank < len(parts) else x[:0]).detach().contiguous()

    def everyones(self, x: Tensor) -> list[Tensor]:
        made = [torch.empty_like(x, device="cpu") for _ in range(self.size)]
        dist.all_gather_object(made, x.detach().cpu())
        return made


def same_bits(x: Tensor, y: Tensor) -> bool:
    return x.dtype == y.dtype and x.shape == y.shape and torch.equal(_bytes(x), _bytes(y))


def _bytes(x: Tensor) -> Tensor:
    return x.detach().cpu().contiguous().view(torch.uint8)


def in_rank_order(partials: list[Tensor], *others: Tensor) -> Tensor:
    """Their sum as it is promised, by torch."""
    total = partials[0].float()
    for x in (*partials[1:], *others):
        total = total + x.float()
    return total


def by_memory(ranks: Ranks) -> bool:
    """Whether calls that say no transport go through memory of the ranks'."""
    return (os.environ.get("CLEAVE_TRANSPORT") or ("peer" if ranks.device == "cuda" else "gloo")) == "peer"


def forget_forms() -> None:
    for peers in _peers._known.get(dist.group.WORLD.group_name, {}).values():
        peers.forms.clear()


@contextmanager
def of_large_products() -> Iterator[None]:
    """Small ones count as large, which are moved while they are made."""
    chosen = _transports._WAVE, _transports._LEAST_ROWS, _transports._HIDING
    _transports._WAVE, _transports._LEAST_ROWS, _transports._HIDING = 1, 64, 64
    forget_forms()
    try:
        yield
    finally:
        _transports._WAVE, _transports._LEAST_ROWS, _transports._HIDING = chosen
        forget_forms()


@contextmanager
def all_reduce_by(shots: str) -> Iterator[None]:
    chosen = _sums.is_one_shot
    _sums.is_one_shot = lambda *_: shots == "one"
    forget_forms()
    try:
        yield
    finally:
        _sums.is_one_shot = chosen
        forget_forms()


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


def sums_of_many_ranks_are_in_their_order(ranks: Ranks) -> None:
    """More of them than one kernel takes inputs, too, with all that is added to them."""
    parts = [ranks.draw(33, 40) for _ in range(20)]  # of bfloat16, sums are exact in any order
    bias, c, scale = ranks.draw(40), ranks.draw(33, 40), torch.full((1,), 0.5, device=ranks.device)
    expected = (in_rank_order(parts, c, bias) / 0.5).round().clamp(-128, 127).to(torch.int8)
    assert same_bits(fold(parts, torch.int8, bias, c, "none", scale), expected)
    for count in (1, 2, 3, 4, 7, 8, 9, 10, 17, 18):
        assert same_bits(fold(parts[:count], torch.float32), in_rank_order(parts[:count])), count
    assert not same_bits(fold(parts, torch.float32), in_rank_order(parts[::-1]))


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


def calls_take_turns_without_an_end(ranks: Ranks) -> None:
    """Nothing closes a call, whatever sizes and operations follow each other, however late a rank is."""
    draws = random.Random(ranks.rank)
    for call in range(40):
        m = 1 + call * 7 % 50
        a = torch.full((m, 8), 1.0 + ranks.rank + call, device=ranks.device)
        b = torch.ones(8, 16, device=ranks.device)
        total = 8.0 * (ranks.size * (1 + call) + ranks.size * (ranks.size - 1) / 2)
        if draws.random() < 0.3:
            time.sleep(draws.random() * 2e-3)
        if call % 3 < 2:
            multiply = cd.gemm_all_reduce if call % 3 == 0 else cd.gemm_reduce_scatter
            made = multiply(a, b, transport="peer")
            assert (made == total).all(), (call, made, total)
        else:
            made = cd.all_gather_gemm(a, b, transport="peer")
            for rank, rows in enumerate(made.chunk(ranks.size)):
                assert (rows == 8.0 * (1 + rank + call)).all(), (call, rank, rows)


def memory_grows_up_to_its_limit(ranks: Ranks) -> None:
    a, b = ranks.draw(64, 16), ranks.draw(16, 1 << 15)
    held = _peer_memory.memory_of(peers_of(dist.group.WORLD.group_name), a.device, 1).bytes
    made = cd.gemm_all_reduce(a, b, transport="peer")
    grown = _peer_memory.memory_of(peers_of(dist.group.WORLD.group_name), a.device, 1).bytes
    assert grown >= max(held, made.nbytes)
    os.environ["CLEAVE_PEER_BYTES"] = str(grown)
    try:
        wide = torch.cat([b] * (1 + grown // made.nbytes), 1)
        with pytest.raises(ValueError, match=r"cannot serve this call: it would take .* CLEAVE_PEER_BYTES"):
            cd.gemm_all_reduce(a, wide, transport="peer")
        other = "nccl" if ranks.device == "cuda" else "gloo"
        assert same_bits(cd.gemm_all_reduce(a, wide, transport=other)[:, : b.shape[1]], made)  # by what else there is
    finally:
        del os.environ["CLEAVE_PEER_BYTES"]


def threads_that_ask_first_get_the_same_memory(ranks: Ranks) -> None:
    """It is made once, by whoever comes first: ranks would not agree on which of two is whose."""
    name, device = dist.new_group(list(range(ranks.size))).group_name, ranks.draw(1).device
    met, found = threading.Barrier(4), []

    def ask() -> None:
        met.wait()
        peers = peers_of(name, "a question")
        found.append((peers, _peer_memory.memory_of(peers, device, 1)))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4 and all(peers is found[0][0] and memory is found[0][1] for peers, memory in found)
    assert isinstance(found[0][1], _peer_memory.PeerMemory)


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


def gathered_products_are_those_of_the_whole(ranks: Ranks) -> None:
    for dtype in ROUNDOFF:
        for m in (37, ranks.size - 1, 16 * ranks.size):
            a, b, bias = ranks.draw(m, 72, dtype=dtype), ranks.draw(72, 40, dtype=dtype), ranks.draw(40)
            rows = None if m % ranks.size == 0 else m
            d, whole = cd.all_gather_gemm(ranks.rows(a), b, bias=bias, activation="silu", rows=rows, gathered=True)
            assert same_bits(whole, a)
            assert same_bits(d, ops.gemm(a, b, bias, activation="silu"))


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
    c = ranks.draw(m, 48)
    made = cd.scaled_gemm_all_reduce(*own, scale, w_scale.t(), bias=bias, c=c, order="k", out_dtype=torch.float32)
    exact = (q.cpu().int() @ v.cpu().int().t()).double() * scale.cpu().double() * w_scale.t().cpu().double()
    torch.testing.assert_close(made.cpu().double(), exact + c.cpu() + bias.cpu(), rtol=1e-5, atol=1e-4)


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


def gradients_are_those_of_one_rank(ranks: Ranks) -> None:
    """Those of a's and b's own parts, of bias and c, by all three operators."""
    for m in (37, ranks.size - 1):
        for activation, function in (("none", lambda x: x), ("relu", functional.relu), ("gelu", functional.gelu)):
            x, w, bias, c, g = (ranks.draw(*s) for s in ((m, 96), (96, 30), (30,), (m, 30), (m, 30)))
            whole = [t.double().cpu().requires_grad_() for t in (x, w, bias, c)]
            (function(whole[0] @ whole[1] + whole[2] + whole[3]) * g.double().cpu()).sum().backward()
            of_x, of_w, of_bias, of_c = (t.grad for t in whole)
            a, b = ranks.columns(x).requires_grad_(), ranks.rows(w).requires_grad_()
            for scatter in (False, True):
                part = ranks.rows if scatter else (lambda t: t.detach())
                added, given = part(c).requires_grad_(), bias.detach().clone().requires_grad_()
                multiply = cd.gemm_reduce_scatter if scatter else cd.gemm_all_reduce
                d = multiply(a, b, bias=given, c=added, activation=activation)
                made = torch.autograd.grad(d, (a, b, given, added), part(g))
                expected = (ranks.columns(of_x), ranks.rows(of_w), of_bias, part(of_c))
                for y, z in zip(made, expected, strict=True):
                    torch.testing.assert_close(y.cpu().double(), z, atol=1e-4, rtol=1e-4)

            whole = [t.double().cpu().requires_grad_() for t in (x, w, bias)]
            (function(whole[0] @ whole[1] + whole[2]) * g.double().cpu()).sum().backward()
            of_x, of_w, of_bias = (t.grad for t in whole)
            for kept in (True, False):
                a, b = ranks.rows(x).requires_grad_(), ranks.columns(w).requires_grad_()
                given = bias.chunk(ranks.size)[ranks.rank].detach().clone().requires_grad_()
                d = cd.all_gather_gemm(a, b, bias=given, rows=m, activation=activation, save_gathered=kept)
                made = torch.autograd.grad(d, (a, b, given), ranks.columns(g))
                expected = (ranks.rows(of_x), ranks.columns(of_w), of_bias.chunk(ranks.size)[ranks.rank])
                for y, z in zip(made, expected, strict=True):
                    torch.testing.assert_close(y.cpu().double(), z, atol=1e-4, rtol=1e-4)


def gradients_of_gradients_are_those_of_one_rank(ranks: Ranks) -> None:
    """Those of the squares of the operands' gradients, of which a rank has its part."""
    m = 4 * ranks.size

    def penalty(multiply: Callable[..., Tensor], *given: Tensor) -> tuple[Tensor, ...]:
        given = tuple(t.detach().clone().requires_grad_() for t in given)
        first = torch.autograd.grad(multiply(*given).square().sum(), given, create_graph=True)
        return torch.autograd.grad(sum(t.square().sum() for t in first), given)

    x, w = ranks.draw(m, 6 * ranks.size), ranks.draw(6 * ranks.size, 5 * ranks.size)
    for activation, function in (("none", lambda x: x), ("relu", functional.relu), ("silu", functional.silu)):
        of_x, of_w = penalty(lambda a, b, function=function: function(a @ b), x, w)
        columns, rows = (ranks.columns, ranks.rows), (ranks.rows, ranks.columns)
        for multiply, (of_a, of_b) in (
            (cd.gemm_all_reduce, columns),
            (cd.gemm_reduce_scatter, columns),
            (cd.all_gather_gemm, rows),
        ):
            made = penalty(lambda a, b, f=multiply, g=activation: f(a, b, activation=g), of_a(x), of_b(w))
            for y, z in zip(made, (of_a(of_x), of_b(of_w)), strict=True):
                torch.testing.assert_close(y, z, atol=2e-3, rtol=1e-3)


def operands_are_cast_under_autocast(ranks: Ranks) -> None:
    """As those of one rank's products are; calls past torch's dispatcher, too."""
    a, b, bias = ranks.draw(8, 16), ranks.draw(16, 24).bfloat16(), ranks.draw(24)
    for multiply in (cd.gemm_all_reduce, cd.gemm_reduce_scatter, cd.all_gather_gemm):
        for grads in (False, True):
            with torch.set_grad_enabled(grads), torch.autocast(ranks.device, torch.bfloat16):
                made = multiply(a.detach().requires_grad_(grads), b, bias=bias)
            assert same_bits(made, multiply(a.bfloat16(), b, bias=bias)) and made.requires_grad == grads


def sums_of_gradients_may_exceed_float16(ranks: Ranks) -> None:
    """Where the bias is wider than what it is added to."""
    a, b, bias = ranks.draw(48, 8).half(), ranks.draw(8, 16).half(), torch.zeros(16, device=ranks.device)
    d = cd.all_gather_gemm(a, b, bias=bias.requires_grad_(), rows=48 * ranks.size)
    (got,) = torch.autograd.grad(d, bias, torch.full_like(d, 2000.0))
    assert torch.equal(got, torch.full_like(bias, 2000.0 * 48 * ranks.size))


def compiled_calls_are_eager_ones(ranks: Ranks) -> None:
    """In one graph, with their backward."""
    x, w1, w2 = ranks.draw(8, 48), ranks.draw(48, 60), ranks.draw(60, 48)

    def block(a: Tensor, up: Tensor, down: Tensor) -> Tensor:
        return cd.gemm_reduce_scatter(cd.all_gather_gemm(a, up, activation="silu"), down)

    compiled = torch.compile(block, fullgraph=True, backend="aot_eager")
    made = []
    for function in (block, compiled):
        given = [t.detach().clone().requires_grad_() for t in (x, w1, w2)]
        y = function(*given)
        made.append([y, *torch.autograd.grad(y, given, torch.ones_like(y))])
    assert all(same_bits(y, z) for y, z in zip(*made, strict=True))


def who_watches_sees_operators(ranks: Ranks) -> None:
    """Others get the same bits without them."""

    seen: list[str] = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
            seen.append(function.name())
            return function(*arguments, **(options or {}))

    a, b = ranks.draw(8, 16), ranks.draw(16, 24)
    bias, q = ranks.draw(24), ops.quantize(ranks.draw(8, 16), torch.int8)[0]
    one = torch.ones(1, device=ranks.device)
    calls: list[Callable[[], Any]] = [
        lambda: cd.gemm_all_reduce(a, b, bias=bias),
        lambda: cd.gemm_reduce_scatter(a, b),
        lambda: cd.all_gather_gemm(a, b, bias=bias),
        lambda: cd.scaled_gemm_all_reduce(q, q.t(), one, one),
        lambda: cd.scaled_gemm_reduce_scatter(q, q.t(), one, one),
        lambda: cd.all_gather_scaled_gemm(q, q.t(), one, one),
    ]
    for call in calls:
        made = call()
        with Watch():
            assert same_bits(call(), made)
        assert sum("reduce" in name or "gather" in name for name in seen) == 1, seen
        seen.clear()
    with torch.profiler.profile() as profile:
        calls[0]()
    assert any(event.key == "cleave::gemm_all_reduce" for event in profile.key_averages())
    a.requires_grad_()
    assert cd.gemm_all_reduce(a, b).requires_grad
    with torch.no_grad():
        assert not cd.gemm_all_reduce(a, b).requires_grad


def operators_are_as_they_say(ranks: Ranks) -> None:
    """torch's own look at schemas and shapes."""
    group, (m, k) = dist.group.WORLD.group_name, (7, 16)
    a, b = ranks.draw(m, k), ranks.draw(k, 24)
    q, v = ops.quantize(a, torch.int8)[0], ops.quantize(b, torch.int8)[0]
    calls: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = [
        (ops.gemm_all_reduce, (a, b, group), {"out_dtype": torch.bfloat16}),
        (ops.gemm_reduce_scatter, (a, b, group), {}),
        (ops.all_gather_gemm, (a, b, group), {}),
        (ops.all_gather_rows, (a, group), {}),
        (ops.all_reduce_rows, (a, group, a[0]), {}),
        (ops.reduce_scatter_rows, (a, group), {}),
        (ops.scaled_gemm_all_reduce, (q, v, None, None, group), {}),
        (ops.scaled_gemm_reduce_scatter, (q, v, None, None, group), {"out_dtype": torch.float16}),
        (ops.all_gather_scaled_gemm, (q, v, None, None, group), {}),
    ]
    assert {op._qualified_op_name.removeprefix("cleave::") for op, _, _ in calls} == _operators.SCHEMAS.keys()
    for op, arguments, options in calls:
        torch.library.opcheck(op, arguments, options, test_utils=("test_schema", "test_faketensor"))


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
        (lambda: cd.gemm_all_reduce(a, b, activation="swiglu"), ValueError, "'swiglu'; it must be one of none, relu"),
        (lambda: cd.gemm_all_reduce(a, b, bias=one), ValueError, r"bias is \[1\]; it must be \[24\]"),
        (lambda: cd.gemm_reduce_scatter(a, b, c=ranks.draw(9, 24)), ValueError, r"c is \[9, 24\]; it must be \["),
        (lambda: cd.gemm_all_reduce(a, b, partial_dtype=torch.int8), TypeError, "partial_dtype is torch.int8; it must"),
        (lambda: cd.gemm_all_reduce(a, b, out_dtype=torch.int32), TypeError, "out_dtype is torch.int32"),
        (lambda: cd.gemm_all_reduce(a, b, out_dtype=torch.int8), ValueError, "scale_d is missing; give both"),
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
        (
            lambda: cd.gemm_all_reduce(a, b, split_k_mode="serial"),
            TypeError,
            "'split_k_mode'. It has a, b, group, bias",
        ),
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

    expected = block()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # NCCL's watchdog goes on
        made = block()
    other = torch.zeros((), dtype=torch.bool, device=x.device)
    for _ in range(10_000):
        for d in made:
            d.zero_()
        graph.replay()
        for d, e in zip(made, expected, strict=True):
            other |= (d.view(torch.int16) != e.view(torch.int16)).any()
    assert not other.item()


def a_block_trains_as_on_one_rank(ranks: Ranks) -> None:
    """A gated block with its norm, rows dealt between products: tensor and sequence parallelism, twenty steps."""
    tokens, features, hidden = 12 * ranks.size, 32, 24 * ranks.size
    x, target = ranks.draw(tokens, features), ranks.draw(tokens, features)
    weights = [ranks.draw(*s) * 0.2 for s in ((features, hidden), (features, hidden), (hidden, features))]
    norm = ranks.draw(features) * 0.1 + 1

    def train(multiply: tuple[Any, ...], given: list[Tensor], part: Callable[[Tensor], Tensor]) -> Any:
        parameters = [p.detach().clone().requires_grad_() for p in given]
        gamma = norm.detach().clone().requires_grad_()
        first, last = multiply
        losses = []
        for _ in range(20):
            gate, up, down = parameters
            normed = functional.rms_norm(part(x), (features,), gamma)
            both = first(normed, torch.cat([gate, up], 1))
            opened, raised = both.chunk(2, 1)
            loss = (part(x) + last(functional.silu(opened) * raised, down) - part(target)).square().sum() / tokens
            grads = list(torch.autograd.grad(loss, [*parameters, gamma]))
            if part is not whole:  # each rank has its rows' part
                dist.all_reduce(grads[3])
                dist.all_reduce(loss := loss.detach())
            losses.append(loss.item())
            with torch.no_grad():
                for p, g in zip([*parameters, gamma], grads, strict=True):
                    p -= 0.02 * g
        return losses, parameters

    def whole(t: Tensor) -> Tensor:
        return t

    own = [*map(ranks.columns, weights[:2]), ranks.rows(weights[2])]
    expected, parameters = train((ops.gemm, ops.gemm), weights, whole)
    losses, dealt = train((cd.all_gather_gemm, cd.gemm_reduce_scatter), own, ranks.rows)
    assert losses[-1] < 0.5 * losses[0]
    torch.testing.assert_close(torch.tensor(losses), torch.tensor(expected), rtol=1e-5, atol=1e-6)
    for p, q, part in zip(dealt, parameters, (ranks.columns, ranks.columns, ranks.rows), strict=True):
        torch.testing.assert_close(p, part(q), rtol=1e-4, atol=1e-5)


def styles_are_the_layers_of_one_rank(ranks: Ranks) -> None:
    """Outputs and all gradients, in every layout that has a product of its own, and by way of DTensors."""
    mesh = init_device_mesh(ranks.device, (ranks.size,))
    features, hidden, length = 16, 8 * ranks.size, 4 * ranks.size
    for layout, input_dtensor in ((Replicate(), False), (Shard(1), False), (Shard(-2), True), (Shard(0), False)):
        torch.manual_seed(1)
        shape = (2 * ranks.size, length, features) if layout == Shard(0) else (2, length, features)
        whole = nn.Sequential(nn.Linear(features, hidden), nn.GELU(), nn.Linear(hidden, features)).to(ranks.device)
        x, g = ranks.draw(*shape).requires_grad_(), ranks.draw(*shape)
        dealt = parallelize_module(
            copy.deepcopy(whole),
            mesh,
            {
                "0": parallel.ColwiseParallel(input_layouts=layout),
                "2": parallel.RowwiseParallel(output_layouts=layout, use_local_output=not input_dtensor),
            },
        )
        expected = whole(x)
        expected.backward(g)

        def own(t: Tensor, layout: Any = layout) -> Tensor:
            return distribute_tensor(t.detach(), mesh, [layout])

        given = (own(x) if input_dtensor else own(x).to_local()).requires_grad_()
        made = dealt(given)
        assert isinstance(made, DTensor) == input_dtensor
        made.backward(own(g) if input_dtensor else own(g).to_local())
        for y, z in ((made, expected), (given.grad, x.grad)):
            y = y.to_local() if isinstance(y, DTensor) else y
            torch.testing.assert_close(y, own(z).to_local(), rtol=1e-4, atol=1e-5)
        for y, z in zip(dealt.parameters(), whole.parameters(), strict=True):
            torch.testing.assert_close(y.grad.full_tensor(), z.grad, rtol=1e-4, atol=1e-4)
        assert dealt.state_dict().keys() == whole.state_dict().keys()
        if not input_dtensor:
            compiled = torch.compile(dealt, fullgraph=True, backend="aot_eager")
            again = given.detach().clone().requires_grad_()
            y = compiled(again)
            y.backward(own(g).to_local())
            assert same_bits(y, made) and same_bits(again.grad, given.grad)
    if ranks.size > 1:
        row = parallel.RowwiseParallel(output_layouts=Shard(0))
        with pytest.raises(ValueError, match=r"dimension 0 has 1 elements for . ranks; pad"):
            parallelize_module(nn.Linear(hidden, 4).to(ranks.device), mesh, row)(ranks.draw(1, 8))
    for features in (8 * ranks.size + 1, 1):  # dealt unevenly; some ranks have none
        whole = nn.Linear(16, features).to(ranks.device)
        column = parallel.ColwiseParallel(output_layouts=Replicate(), use_local_output=False)
        x = ranks.draw(4, 16)
        made = parallelize_module(copy.deepcopy(whole), mesh, column)(x)
        assert made.shape == (4, features)
        torch.testing.assert_close(made.to_local(), whole(x), rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match=r"a layout is S.*\(.*5\), but x has 2 dimensions"):
        parallelize_module(whole, mesh, parallel.ColwiseParallel(input_layouts=Shard(5)))(x)
    with pytest.raises(NotImplementedError, match=r"Conv3d, but the module is Embedding; use torch"):
        parallelize_module(nn.Embedding(4, 4), mesh, parallel.ColwiseParallel())
    with pytest.raises(ValueError, match=r"output_layouts is P.*; it must be Replicate"):
        parallel.RowwiseParallel(output_layouts=Partial())


CHECKS = (
    sums_are_within_their_bound,
    sums_have_the_same_bits_everywhere,
    sums_of_many_ranks_are_in_their_order,
    transports_have_the_same_bits,
    large_products_are_moved_while_they_are_made,
    rows_of_sums_do_not_depend_on_the_batch,
    calls_take_turns_without_an_end,
    memory_grows_up_to_its_limit,
    threads_that_ask_first_get_the_same_memory,
    a_rank_in_another_call_is_named,
    gathered_products_are_those_of_the_whole,
    scaled_sums_are_those_of_their_partials,
    exact_sums_have_the_bits_of_one_process,
    scales_travel_with_their_rows,
    gradients_are_those_of_one_rank,
    gradients_of_gradients_are_those_of_one_rank,
    operands_are_cast_under_autocast,
    sums_of_gradients_may_exceed_float16,
    compiled_calls_are_eager_ones,
    who_watches_sees_operators,
    operators_are_as_they_say,
    refusals_name_argument_value_and_remedy,
    disagreement_is_an_error_on_every_rank,
    the_plan_says_why,
    graphs_replay_the_same_bits,
    a_block_trains_as_on_one_rank,
    styles_are_the_layers_of_one_rank,
)
