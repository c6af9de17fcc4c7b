"""An nn.Linear whose weight is dealt to ranks: what each multiplies, and the gradients of that.

| | x | y | gradient of x |
|---|---|---|---|
| "replicated" | all ranks' | this rank's features | `gemm_all_reduce` |
| "gathered" | this rank's rows | all rows, this rank's features | `gemm_reduce_scatter` |
| "summed" | this rank's features | all ranks' | a local product |
| "scattered" | this rank's features | this rank's rows | `all_gather_gemm` |
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ... import distributed
from ...distributed import _gradients
from .. import _dealt
from .._operators.sum_to import sum_to

_gemm = torch.ops.cleave.gemm.default


def multiply(way: str, x: Tensor, weight: Tensor, bias: Tensor | None, group_name: str) -> Tensor:
    """x @ weight.t() + bias over the ranks, of matrices, whose weight and bias are DTensors."""
    if torch.is_autocast_enabled(x.device.type):
        x = x.to(torch.get_autocast_dtype(x.device.type))
    if torch.compiler.is_compiling():
        weight, bias = _dealt.own(weight), _dealt.own(bias)
    if torch.is_grad_enabled():
        return _Linear.apply(x, weight, bias, group_name, way)
    return _forward(way, x, _dealt.own(weight).t(), _dealt.own(bias), group_name, False)[0]


def _forward(
    way: str, x: Tensor, b: Tensor, bias: Tensor | None, group_name: str, keeps: bool
) -> tuple[Tensor, Tensor | None]:
    """y, and with `keeps` all ranks' x where they are gathered."""
    if way == "gathered":
        made = distributed.all_gather_gemm(x, b, group_name, bias=bias, gathered=keeps)
        return made if keeps else (made, None)
    if way == "replicated":
        return _gemm(x, b, bias), None
    add = distributed.gemm_reduce_scatter if way == "scattered" else distributed.gemm_all_reduce
    return add(x, b, group_name, bias=bias), None


class _Linear(torch.autograd.Function):
    """The gradients that the operators have, of the dtype that the weight's owner asks for."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, group_name: str, way: str) -> Tensor:
        keeps = ctx.needs_input_grad[1]
        y, gathered = _forward(way, x, _dealt.own(weight).t(), _dealt.own(bias), group_name, keeps)
        ctx.save_for_backward(x, weight, bias, gathered)
        ctx.group_name, ctx.way = group_name, way
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias, gathered = ctx.saved_tensors
        needs_x, needs_weight, needs_bias, *_ = ctx.needs_input_grad
        way, group = ctx.way, ctx.group_name
        own, grad = _dealt.own(weight).to(grad.dtype), grad.contiguous()  # under autocast forward cast the weight
        dx = dw = db = None
        of_bias = grad
        if way == "summed":
            grad = _gradients.of_all_ranks(grad, group)
            dx = _gemm(grad, own) if needs_x else None
        elif way == "scattered":
            dx, grad = _gradients.of_scattered(grad, own.t(), group, needs_x, rows=x.shape[0])
            of_bias = grad
        elif needs_x:
            add = distributed.gemm_reduce_scatter if way == "gathered" else distributed.gemm_all_reduce
            dx = add(grad, own, group)
        if needs_weight:
            rows = _gradients.gathered_again(gathered, x, group) if way == "gathered" else x
            dw = _dealt.like(_gemm(grad.mT, rows, out_dtype=_dealt.gradient_dtype(weight)), weight)
        if needs_bias:
            db = _dealt.like(sum_to(of_bias, _dealt.own(bias).shape, _dealt.gradient_dtype(bias)), bias)
        return dx, dw, db, None, None
