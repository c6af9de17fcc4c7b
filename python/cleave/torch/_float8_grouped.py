"""GroupedLinear in blocks of 8-bit floats: its three products, and their autograd."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from . import _dealt, _float8
from ._float8 import E4M3, Rows
from ._grouped_autograd import Groups, gradient_of_bias
from ._scales import BLOCK

_ops = torch.ops.cleave
_full = _ops.grouped_gemm.full


def multiply(x: Tensor, weight: Tensor, offs: Tensor, bias: Tensor | None, activation: str = "none") -> Tensor:
    """x[rows of g] @ weight[g].T + bias[g]: [tokens, K] by [G, N, K], without gradients."""
    rows, _ = _float8.quantize(x, E4M3, "block_1x128", False)
    experts, _ = _experts(weight, False)
    return _by_groups(rows, experts, offs, x.dtype, bias, activation)


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
        ends, x_t = None, Rows(None, None)
        if needs_weight:
            rows, x_t, ends = _tokens(x, offs, E4M3)
        else:
            rows, _ = _float8.quantize(x, E4M3, "block_1x128", False)
        experts, experts_t = _experts(weight, needs_x)
        ctx.save_for_backward(offs, ends, bias, *x_t, *experts_t)
        ctx.x_dtype, ctx.weight_dtype, ctx.grad_dtype = x.dtype, _dealt.gradient_dtype(weight), grad_dtype
        ctx.groups = weight.shape[0]
        # The very object: main_grad is an attribute of it.
        ctx.main_weight = weight if accumulate else None
        return _by_groups(rows, experts, offs, x.dtype, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        offs, ends, bias, *operands = ctx.saved_tensors
        x_t, experts_t = Rows(*operands[:2]), Rows(*operands[2:])
        needs_x, needs_weight, _, needs_bias, *_ = ctx.needs_input_grad
        grad = grad.contiguous()
        dx = dw = db = None
        if needs_weight:
            rows, grad_t, _ = _tokens(grad, offs, ctx.grad_dtype)
            dw = _weight_gradient(grad_t, x_t, ends, ctx)
        elif needs_x:
            rows, _ = _float8.quantize(grad, ctx.grad_dtype, "block_1x128", False)
        if needs_x:
            dx = _by_groups(rows, experts_t, offs, ctx.x_dtype)
        if needs_bias:
            db = gradient_of_bias(bias, grad, Groups(offs), grad, grad.new_empty((ctx.groups, 0, 0)))
        return dx, dw, None, db, None, None


def _tokens(x: Tensor, offs: Tensor, dtype: torch.dtype) -> tuple[Rows, Rows, Tensor]:
    """x, and x transposed with each group's columns in whole blocks, which end where the third says."""
    q, scale, q_t, scale_t, ends = _ops.quantize_grouped(x, offs, dtype, scale_major="mn")
    return Rows(q, scale), Rows(q_t, scale_t), ends


def _experts(weight: Tensor, transpose: bool) -> tuple[Rows, Rows]:
    """[G, N, K], and with `transpose` [G, K, N]: quantised as one matrix, whose squares are one expert's each."""
    groups, n, k = weight.shape
    rows, rows_t = _float8.quantize(weight.reshape(-1, k), E4M3, "block_128x128", transpose)
    experts = Rows(rows.q.view(groups, n, k), rows.scale.view(groups, n // BLOCK, -1))
    if transpose:
        rows_t = Rows(*(x.unflatten(1, (groups, -1)).transpose(0, 1) for x in rows_t))
    return experts, rows_t


def _by_groups(
    rows: Rows, experts: Rows, offs: Tensor, dtype: torch.dtype, bias: Tensor | None = None, activation: str = "none"
) -> Tensor:
    scales = rows.scale, experts.scale.mT
    return _full(rows.q, experts.q.mT, offs, bias, dtype, *scales, activation=activation)


def _weight_gradient(grad_t: Rows, x_t: Rows, ends: Tensor, ctx: Any) -> Tensor | None:
    """dy.T @ x of each group, or nothing where it is added to main_grad."""
    operands = grad_t.q, x_t.q.mT, ends
    scales = grad_t.scale, x_t.scale.mT
    if ctx.main_weight is None:
        return _full(*operands, None, ctx.weight_dtype, *scales, alignment=BLOCK)
    main_grad = main_grad_of(ctx.main_weight)
    _ops.grouped_gemm.out(*operands, None, *scales, c=main_grad, out=main_grad, alignment=BLOCK)
    ctx.main_weight.grad_added_to_main_grad = True
    return None


def main_grad_of(weight: Tensor) -> Tensor:
    main_grad = getattr(weight, "main_grad", None)
    if main_grad is None:
        raise RuntimeError(
            "weight has no main_grad; set weight.main_grad = torch.zeros_like(weight, dtype=torch.float32), or "
            "accumulate_main_grad = False, as under FSDP, which reduces weight.grad alone"
        )
    return main_grad
