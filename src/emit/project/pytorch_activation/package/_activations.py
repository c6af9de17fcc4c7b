"""The gradients of activations, by the kernels that PyTorch has for them."""

from __future__ import annotations

import torch
from torch import Tensor

aten = torch.ops.aten


def backward(activation: str, grad: Tensor, x: Tensor) -> Tensor:
    """The gradient before an activation, from the one after it and what the activation was given.

    With "relu", x may be its output as well.
    """
    return _BACKWARD[activation](grad, x)


def _silu(grad: Tensor, x: Tensor) -> Tensor:
    if not torch.is_grad_enabled():
        return aten.silu_backward(grad, x)  # which has no gradient
    sigmoid = x.sigmoid()
    return grad * sigmoid * (1 + x * (1 - sigmoid))


def _swiglu(grad: Tensor, x: Tensor) -> Tensor:
    gate, up = x.chunk(2, -1)
    return torch.cat([_silu(grad * up, gate), grad * aten.silu(gate)], -1)


def _swiglu_interleaved(grad: Tensor, x: Tensor) -> Tensor:
    gate, up = x[..., 0::2], x[..., 1::2]
    return torch.stack([_silu(grad * up, gate), grad * aten.silu(gate)], -1).flatten(-2)


_BACKWARD = {
    "relu": lambda grad, x: aten.threshold_backward(grad, x, 0),
    "relu2": lambda grad, x: grad * (2 * aten.relu(x)),
    "gelu": lambda grad, x: aten.gelu_backward(grad, x),
    "gelu_tanh": lambda grad, x: aten.gelu_backward(grad, x, approximate="tanh"),
    "silu": _silu,
    "swiglu": _swiglu,
    "swiglu_interleaved": _swiglu_interleaved,
}
