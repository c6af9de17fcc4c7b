"""GroupedLinear in blocks of 8-bit floats: its three products, and their autograd."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from . import _dealt, _float8, _main_grad
from ._float8 import E4M3, Rows
from ._operators.grouped_autograd import Groups, gradient_of_bias
from ._scales import BLOCK

_ops = torch.ops.cleave
_full = _ops.grouped_gemm.full


def multiply(
    x: Tensor,
    weight: Tensor,
    offs: Tensor,
    bias: Tensor | None,
    activation: str = "none",
    gather: Tensor | None = None,
    top_k: int = 1,
) -> Tensor:
    """x[rows of g] @ weight[g].T + bias[g]: [tokens, K] by [G, N, K], without gradients; of the rows of x that gather
    names, if there is one."""
    rows, *_ = tokens(x, offs, E4M3, False)
    of_weight, _ = experts(weight, False)
    return by_groups(rows, of_weight, offs, x.dtype, bias, activation=activation, gather=gather, top_k=top_k)


class Linear(torch.autograd.Function):
    """The same, for backward. It keeps x and weight transposed in 8 bits."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        offs: Tensor,
        bias: Tensor | None,
        grad_dtype: torch.dtype,
        accumulate: bool,
    ) -> Tensor:
        needs_x, needs_weight, *_ = ctx.needs_input_grad
        rows, x_t, ends = tokens(x, offs, E4M3, needs_weight)
        of_weight, experts_t = experts(weight, needs_x)
        ctx.save_for_backward(offs, ends, bias, *x_t, *experts_t)
        ctx.x_dtype, ctx.weight_dtype, ctx.grad_dtype = x.dtype, _dealt.gradient_dtype(weight), grad_dtype
        ctx.groups = weight.shape[0]
        # The very object: main_grad is an attribute of it.
        ctx.main_weight = weight if accumulate else None
        return by_groups(rows, of_weight, offs, x.dtype, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        offs, ends, bias, *operands = ctx.saved_tensors
        x_t, experts_t = Rows(*operands[:2]), Rows(*operands[2:])
        needs_x, needs_weight, _, needs_bias, *_ = ctx.needs_input_grad
        grad = grad.contiguous()
        dx = dw = db = None
        if needs_x or needs_weight:
            rows, grad_t, _ = tokens(grad, offs, ctx.grad_dtype, needs_weight)
        if needs_weight:
            dw = weight_gradient(grad_t, x_t, ends, ctx.weight_dtype, ctx.main_weight)
        if needs_x:
            dx = by_groups(rows, experts_t, offs, ctx.x_dtype)
        if needs_bias:
            db = gradient_of_bias(bias, grad, Groups(offs), grad, grad.new_empty((ctx.groups, 0, 0)))
        return dx, dw, None, db, None, None


def tokens(x: Tensor, offs: Tensor, dtype: torch.dtype, transpose: bool) -> tuple[Rows, Rows, Tensor | None]:
    """x, and with `transpose` x transposed, each group's columns in whole blocks, which end where the third says."""
    if not transpose:
        return *_float8.quantize(x, dtype, "block_1x128", False), None
    q, scale, q_t, scale_t, ends = _ops.quantize_grouped(x, offs, dtype, scale_major="mn")
    return Rows(q, scale), Rows(q_t, scale_t), ends


def experts(weight: Tensor, transpose: bool) -> tuple[Rows, Rows]:
    """[G, N, K], and with `transpose` [G, K, N]: quantised as one matrix, whose squares are one expert's each."""
    groups, n, k = weight.shape
    rows, rows_t = _float8.quantize(weight.reshape(-1, k), E4M3, "block_128x128", transpose)
    by_expert = Rows(rows.q.view(groups, n, k), rows.scale.view(groups, n // BLOCK, -1))
    if transpose:
        rows_t = Rows(*(x.unflatten(1, (groups, -1)).transpose(0, 1) for x in rows_t))
    return by_expert, rows_t


def by_groups(
    rows: Rows, weight: Rows, offs: Tensor, dtype: torch.dtype, bias: Tensor | None = None, **options: Any
) -> Tensor:
    scales = rows.scale, weight.scale.mT
    return _full(rows.q, weight.q.mT, offs, bias, dtype, *scales, **options)


def weight_gradient(
    grad_t: Rows, x_t: Rows, ends: Tensor, dtype: torch.dtype, main_weight: Tensor | None
) -> Tensor | None:
    """dy.T @ x of each group, or what autograd gets where it is added to the main_grad of main_weight."""
    operands = grad_t.q, x_t.q.mT, ends
    scales = grad_t.scale, x_t.scale.mT
    if main_weight is None:
        return _full(*operands, None, dtype, *scales, alignment=BLOCK)
    add = partial(_ops.grouped_gemm.out, *operands, None, *scales, alignment=BLOCK)
    return _main_grad.add(main_weight, add)
