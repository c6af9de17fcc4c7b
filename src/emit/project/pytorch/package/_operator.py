"""What PyTorch has to know of the operator: its shapes, for torch.compile, and its gradients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import _activations, _formula
from . import _operation as fixed


def register() -> None:
    torch.library.register_fake(fixed.NAME)(_formula.result)
    torch.library.register_fake(f"{fixed.NAME}.out")(_nothing)
    if fixed.DIFFERENTIABLE:
        torch.library.register_autograd(fixed.NAME, _backward, setup_context=_save)


def _nothing(*_: Any, **__: Any) -> None:
    """All that it does is write."""


def _save(
    ctx: Any,
    inputs: tuple[Any, ...],
    keyword_only_inputs: dict[str, Any],
    output: Tensor,
) -> None:
    ctx.options = keyword_only_inputs
    ctx.sizes = [x for x in inputs if not isinstance(x, Tensor)]  # that of images whose gradient is made
    tensors = [x for x in inputs if isinstance(x, Tensor)]
    ctx.save_for_backward(*tensors, *([output] if fixed.ACTIVATION == "relu" else []))


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    first, second, *more = ctx.saved_tensors
    bias = more.pop(0) if fixed.HAS_BIAS else None
    c = more.pop(0) if fixed.HAS_C else None
    alpha, beta = ctx.options["alpha"], ctx.options.get("beta")
    if fixed.ACTIVATION == "relu":
        grad = _activations.backward("relu", grad, more[0])
    elif fixed.ACTIVATION != "none":
        x = alpha * _formula.product(first, second, *ctx.sizes).float()  # what the activation was given is made again
        if c is not None:
            x = x + beta * c
        if bias is not None:
            x = x + bias.view(_formula.BIAS_SHAPE)
        grad = _activations.backward(fixed.ACTIVATION, grad.float(), x)
    needs = ctx.needs_input_grad[len(ctx.sizes) :]
    gradients = [*_formula.gradients(first, second, (alpha * grad).to(first.dtype), *needs[:2])]
    if bias is not None:
        total = grad.sum_to_size(bias.view(_formula.BIAS_SHAPE).shape) if needs[2] else None
        gradients.append(None if total is None else total.reshape(bias.shape).to(bias.dtype))
    if c is not None:
        gradients.append((beta * grad).to(c.dtype) if needs[-1] else None)
    return *(None for _ in ctx.sizes), *gradients
