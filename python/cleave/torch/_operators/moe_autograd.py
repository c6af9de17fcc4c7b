"""The gradients of torch.ops.cleave.moe_router_logits, moe_route, moe_permute, moe_gather, moe_unpermute and its own.

Those of moe_router_logits are float32 products, as torch's switch says. Those of moe_route are its weights' with
respect to its logits, the choice as it is; a bias has none. For moe_permute and moe_gather they are sums of a token's
rows, which moe_unpermute makes; for the latter copies of a token's gradient, times the weights if there are any. Those
of moe_unpermute_backward, whose results are linear in each of what it takes, are made by these two again.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .untracked import register_autograd

_ops = torch.ops.cleave
_LEAST_SCORE_SUM = 1e-20  # as kernels/cleave/route/score.h has it


def register() -> None:
    register_autograd("cleave::moe_router_logits", _logits_backward, setup_context=_save_logits)
    register_autograd("cleave::moe_route", _route_backward, setup_context=_save_route)
    register_autograd("cleave::moe_permute", _permute_backward, setup_context=_save)
    register_autograd("cleave::moe_gather", _gather_backward, setup_context=_save)
    register_autograd("cleave::moe_unpermute", _unpermute_backward, setup_context=_save_unpermute)
    register_autograd("cleave::moe_unpermute_backward", _twice_backward, setup_context=_save_twice)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    indices = output[2] if isinstance(output, tuple) else inputs[1]
    ctx.tokens = inputs[0].shape[0]
    ctx.save_for_backward(indices)


def _permute_backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor, None, None]:
    return _sum_of_rows(ctx, grad), None, None


def _gather_backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
    return _sum_of_rows(ctx, grad), None


def _sum_of_rows(ctx: Any, grad: Tensor) -> Tensor:
    (indices,) = ctx.saved_tensors
    top_k = grad.shape[0] // ctx.tokens if ctx.tokens else 1
    return _ops.moe_unpermute(grad.contiguous(), indices, None, top_k)


def _save_unpermute(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    y, indices, weights, _ = inputs
    ctx.save_for_backward(None if weights is None else y, indices, weights)


def _unpermute_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    y, indices, weights = ctx.saved_tensors
    grad = grad.contiguous()
    if weights is None:
        return _ops.moe_gather(grad, indices), None, None, None
    rows, of_weights = _ops.moe_unpermute_backward(grad, y, indices, weights)
    return rows, None, of_weights, None


def _save_twice(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.save_for_backward(*inputs)


def _twice_backward(ctx: Any, of_rows: Tensor, of_weights: Tensor) -> tuple[Tensor | None, ...]:
    grad, y, indices, weights = ctx.saved_tensors
    of_rows, of_weights = of_rows.contiguous(), of_weights.contiguous()
    of_grad = _ops.moe_unpermute(of_rows, indices, weights) + _ops.moe_unpermute(y, indices, of_weights)
    of_y, of_w = _ops.moe_unpermute_backward(grad, of_rows, indices, of_weights)
    return of_grad, of_y, None, of_w


def _save_logits(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:2])


def _logits_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    x, weight = ctx.saved_tensors
    of_x, of_weight = ctx.needs_input_grad[:2]
    grad = grad.contiguous()
    return (
        _ops.gemm(grad, weight.float(), out_dtype=x.dtype) if of_x else None,
        _ops.gemm(grad.t(), x.float(), out_dtype=weight.dtype) if of_weight else None,
        None,
    )


def _save_route(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    logits, _, _, ctx.scoring_func, *_, ctx.renormalize, ctx.routed_scaling_factor = inputs
    ctx.save_for_backward(logits, *output)


def _route_backward(ctx: Any, grad: Tensor, _: Any) -> tuple[Tensor | None, ...]:
    logits, made, ids = ctx.saved_tensors
    chosen = ids.long()
    of_logits = torch.zeros_like(logits, dtype=torch.float32)
    if ctx.scoring_func == "softmax" and ctx.renormalize and ctx.routed_scaling_factor == 1.0:
        of_chosen = torch._softmax_backward_data(grad, made, 1, torch.float32)
        return of_logits.scatter(1, chosen, of_chosen).to(logits.dtype), *[None] * 8
    of_weights = grad * ctx.routed_scaling_factor
    of_chosen = logits.float().gather(1, chosen)
    if ctx.scoring_func == "softmax" and ctx.renormalize:
        of_chosen = _softmax_backward(of_chosen.softmax(1), of_weights)
    elif ctx.scoring_func == "softmax":
        scores = logits.float().softmax(1)
        weights = scores.gather(1, chosen)
        of_logits = -scores * (weights * of_weights).sum(1, keepdim=True)
        of_chosen = of_logits.gather(1, chosen) + weights * of_weights
    else:
        scores = of_chosen.sigmoid()
        if ctx.renormalize:
            total = scores.sum(1, keepdim=True) + _LEAST_SCORE_SUM
            of_weights = (of_weights - (of_weights * scores / total).sum(1, keepdim=True)) / total
        of_chosen = of_weights * scores * (1 - scores)
    return of_logits.scatter(1, chosen, of_chosen).to(logits.dtype), *[None] * 8


def _softmax_backward(softmax: Tensor, grad: Tensor) -> Tensor:
    return softmax * (grad - (softmax * grad).sum(1, keepdim=True))
