"""What PyTorch has to know of the operator: its shapes, for torch.compile, and its gradients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import _activations
from . import _operation as fixed


def register() -> None:
    torch.library.register_fake(fixed.NAME)(_result)
    torch.library.register_fake(f"{fixed.NAME}.out")(_nothing)
    if fixed.DIFFERENTIABLE:
        torch.library.register_autograd(fixed.NAME, _backward, setup_context=_save)


def _nothing(*_: Any, **__: Any) -> None:
    """All that it does is write."""


def _result(a: Tensor, b: Tensor, *more: Any, **_: Any) -> Any:
    """What the operator returns, without computing it."""
    torch._check(a.shape[-1] == b.shape[-2])
    rows, columns = a.shape[-2], b.shape[-1]
    if fixed.ACTIVATION == "swiglu":
        columns = columns // 2
    shape = (*_entries(a, b, *more), rows, columns)
    if fixed.D_ORDER == "row":
        d = a.new_empty(shape, dtype=fixed.D_DTYPE)
    else:
        d = a.new_empty((*shape[:-2], columns, rows), dtype=fixed.D_DTYPE).mT
    return (d, a.new_empty(1, dtype=torch.float32)) if fixed.HAS_AMAX else d


def _entries(a: Tensor, b: Tensor, *more: Any) -> tuple[int, ...]:
    """The leading dimensions of D."""
    if fixed.GROUPING == "none":
        return torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    if fixed.GROUPING == "m" and fixed.BOUNDS == "counts":
        return a.shape[:-2]
    if fixed.GROUPING != "k":
        return ()
    bounds = more[0 if fixed.SCALING == "none" else 2]
    return (bounds.shape[0] - (fixed.BOUNDS == "indptr"),)


def _save(
    ctx: Any,
    inputs: tuple[Tensor, ...],
    keyword_only_inputs: dict[str, Any],
    output: Tensor,
) -> None:
    ctx.options = keyword_only_inputs
    ctx.save_for_backward(*inputs, *([output] if fixed.ACTIVATION == "relu" else []))


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    a, b, *more = ctx.saved_tensors
    bias = more.pop(0) if fixed.BIAS != "none" else None
    c = more.pop(0) if fixed.HAS_C else None
    alpha, beta = ctx.options["alpha"], ctx.options.get("beta")
    if fixed.ACTIVATION == "relu":
        grad = _activations.backward("relu", grad, more[0])
    elif fixed.ACTIVATION != "none":
        x = alpha * (a @ b).float()  # what the activation was given is made again
        if c is not None:
            x = x + beta * c
        if bias is not None:
            x = x + bias
        grad = _activations.backward(fixed.ACTIVATION, grad.float(), x)
    operand = grad.to(a.dtype)
    needs = ctx.needs_input_grad
    gradients = [
        (alpha * (operand @ b.mT)).sum_to_size(a.shape) if needs[0] else None,
        (alpha * (a.mT @ operand)).sum_to_size(b.shape) if needs[1] else None,
    ]
    if bias is not None:
        gradients.append(_gradient_of_bias(bias, grad) if needs[2] else None)
    if c is not None:
        gradients.append((beta * grad).to(c.dtype) if needs[-1] else None)
    return tuple(gradients)


def _gradient_of_bias(bias: Tensor, grad: Tensor) -> Tensor:
    batched = grad.reshape(-1, *grad.shape[-2:])
    total = batched.sum((0, 1) if fixed.BIAS == "row" else (0, 2))
    return total.reshape(bias.shape).to(bias.dtype)
