"""Gradients of products over ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional

import cleave.distributed as cd

from .ranks import Ranks

ops = torch.ops.cleave


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


def sums_under_gates_have_the_gradients_of_one_rank(ranks: Ranks) -> None:
    for m in (37, ranks.size - 1):
        x, w, bias, g = (ranks.draw(*s) for s in ((m, 96), (96, 30), (30,), (m, 15)))
        for activation, halves in (
            ("swiglu", lambda sums: sums.chunk(2, 1)),
            ("swiglu_interleaved", lambda sums: (sums[:, ::2], sums[:, 1::2])),
        ):
            whole = [t.double().cpu().requires_grad_() for t in (x, w, bias)]
            gate, up = halves(whole[0] @ whole[1] + whole[2])
            of_x, of_w, of_bias = torch.autograd.grad(functional.silu(gate) * up, whole, g.double().cpu())
            a, b, given = (t.requires_grad_() for t in (ranks.columns(x), ranks.rows(w), bias.detach().clone()))
            for multiply, part in ((cd.gemm_all_reduce, lambda t: t), (cd.gemm_reduce_scatter, ranks.rows)):
                d = multiply(a, b, bias=given, activation=activation)
                made = torch.autograd.grad(d, (a, b, given), part(g))
                for y, z in zip(made, (ranks.columns(of_x), ranks.rows(of_w), of_bias), strict=True):
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


def sums_of_gradients_may_exceed_float16(ranks: Ranks) -> None:
    """Where the bias is wider than what it is added to."""
    a, b, bias = ranks.draw(48, 8).half(), ranks.draw(8, 16).half(), torch.zeros(16, device=ranks.device)
    d = cd.all_gather_gemm(a, b, bias=bias.requires_grad_(), rows=48 * ranks.size)
    (got,) = torch.autograd.grad(d, bias, torch.full_like(d, 2000.0))
    assert torch.equal(got, torch.full_like(bias, 2000.0 * 48 * ranks.size))


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


CHECKS = (
    gradients_are_those_of_one_rank,
    sums_under_gates_have_the_gradients_of_one_rank,
    gradients_of_gradients_are_those_of_one_rank,
    sums_of_gradients_may_exceed_float16,
    a_block_trains_as_on_one_rank,
)
