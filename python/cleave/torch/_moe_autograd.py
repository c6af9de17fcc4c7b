"""The gradients of torch.ops.cleave.moe_permute, moe_gather and moe_unpermute.

For the former two they are sums of a token's rows, which moe_unpermute makes; for the latter copies
of a token's gradient, times the weights if there are any.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_ops = torch.ops.cleave


def register() -> None:
    torch.library.register_autograd("cleave::moe_permute", _permute_backward, setup_context=_save)
    torch.library.register_autograd("cleave::moe_gather", _gather_backward, setup_context=_save)
    torch.library.register_autograd("cleave::moe_unpermute", _unpermute_backward, setup_context=_save_unpermute)


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
