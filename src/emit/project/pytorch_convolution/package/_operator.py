"""What PyTorch has to know of the operator: its shapes, for torch.compile, and its gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from . import _activations
from . import _operation as fixed

# PyTorch pads both sides alike: what differs is padded before.
_EVEN = all(begin == end for begin, end in fixed.PADDING)
_PADDING = [begin if _EVEN else 0 for begin, _ in fixed.PADDING]
_GEOMETRY = (fixed.STRIDE, _PADDING, fixed.DILATION, False, [0] * len(_PADDING), fixed.GROUPS)


def register() -> None:
    torch.library.register_fake(fixed.NAME)(_RESULTS[fixed.KIND])
    torch.library.register_fake(f"{fixed.NAME}.out")(_nothing)
    if fixed.DIFFERENTIABLE:
        torch.library.register_autograd(fixed.NAME, _backward, setup_context=_save)


def _nothing(*_: Any, **__: Any) -> None:
    """All that it does is write."""


def _new(like: Tensor, shape: Sequence[int]) -> Tensor:
    return like.new_empty(shape, dtype=fixed.D_DTYPE).to(memory_format=fixed.ORDER)


def _fprop(input: Tensor, *_: Any, **__: Any) -> Tensor:
    axes = zip(input.shape[2:], fixed.TAPS, fixed.STRIDE, fixed.PADDING, fixed.DILATION, strict=True)
    outputs = [
        (size + sum(padding) - (taps - 1) * dilation - 1) // stride + 1
        for size, taps, stride, padding, dilation in axes
    ]
    return _new(input, (input.shape[0], fixed.FILTERS, *outputs))


def _dgrad(input_size: Sequence[int], weight: Tensor, *_: Any, **__: Any) -> Tensor:
    return _new(weight, input_size)


def _wgrad(input: Tensor, *_: Any, **__: Any) -> Tensor:
    return _new(input, (fixed.FILTERS, fixed.CHANNELS // fixed.GROUPS, *fixed.TAPS))


_RESULTS = {"fprop": _fprop, "dgrad": _dgrad, "wgrad": _wgrad}


def _padded(x: Tensor) -> Tensor:
    """With the zeros that PyTorch does not add."""
    if _EVEN:
        return x
    ends = [end for padding in reversed(fixed.PADDING) for end in padding]
    return torch.nn.functional.pad(x, ends)


def _conv(x: Tensor, w: Tensor) -> Tensor:
    return torch.ops.aten.convolution(_padded(x), w, None, *_GEOMETRY)


def _gradients(x: Tensor, w: Tensor, y: Tensor, of_x: bool, of_w: bool) -> tuple[Tensor | None, Tensor | None]:
    """The gradients of sum(y * conv(x, w)) by x and w."""
    padded, wanted = _padded(x), (of_x, of_w, False)
    grads = torch.ops.aten.convolution_backward(y, padded, w, None, *_GEOMETRY, wanted)
    grad_x = grads[0]
    for axis, (begin, _) in enumerate([] if _EVEN or not of_x else fixed.PADDING, 2):
        grad_x = grad_x.narrow(axis, begin, x.shape[axis])
    return grad_x if of_x else None, grads[1] if of_w else None


def _save(
    ctx: Any,
    inputs: tuple[Any, ...],
    keyword_only_inputs: dict[str, Any],
    output: Tensor,
) -> None:
    ctx.options = keyword_only_inputs
    if fixed.KIND == "dgrad":
        ctx.input_size, *inputs = inputs
    ctx.save_for_backward(*inputs, *([output] if fixed.ACTIVATION == "relu" else []))


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    first, second, *more = ctx.saved_tensors
    bias = more.pop(0) if fixed.HAS_BIAS else None
    c = more.pop(0) if fixed.HAS_C else None
    alpha, beta = ctx.options["alpha"], ctx.options.get("beta")
    if fixed.ACTIVATION == "relu":
        grad = _activations.backward("relu", grad, more[0])
    elif fixed.ACTIVATION != "none":
        x = alpha * _again(ctx, first, second).float()
        if c is not None:
            x = x + beta * c
        if bias is not None:
            x = x + bias.view(-1, *[1] * len(fixed.TAPS))
        grad = _activations.backward(fixed.ACTIVATION, grad.float(), x)
    needs = list(ctx.needs_input_grad)
    operand = (alpha * grad).to(first.dtype)
    if fixed.KIND == "fprop":
        gradients = list(_gradients(first, second, operand, *needs[:2]))
    elif fixed.KIND == "dgrad":
        _, of_weight = _gradients(operand, first, second, False, needs[1])
        gradients = [None, of_weight, _conv(operand, first) if needs[2] else None]
    else:
        of_input, _ = _gradients(first, operand, second, needs[0], False)
        gradients = [of_input, _conv(first, operand) if needs[1] else None]
    if bias is not None:
        needed = needs[len(gradients)]
        total = grad.sum((0, *range(2, grad.dim()))).to(bias.dtype) if needed else None
        gradients.append(total)
    if c is not None:
        gradients.append((beta * grad).to(c.dtype) if needs[-1] else None)
    return tuple(gradients)


def _again(ctx: Any, first: Tensor, second: Tensor) -> Tensor:
    """What the activation was given."""
    if fixed.KIND == "fprop":
        return _conv(first, second)
    images = first.new_empty(ctx.input_size).to(memory_format=fixed.ORDER)
    return _gradients(images, first, second, True, False)[0]
