"""The gradient of the operation's activation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from . import _activations
from . import _operation as fixed


def kept(results: tuple[Tensor, ...]) -> dict[str, Tensor]:
    """What backward wants of them, by name."""
    return {"result": results[0]} if fixed.ACTIVATION == "relu" else {}


def without_gradient(results: tuple[Tensor, ...]) -> list[Tensor]:
    """Those that no gradient is asked of."""
    return []


def gradients(
    call: dict[str, Any],
    shape: torch.Size,
    sums: Callable[[], Tensor],
    grads: tuple[Tensor | None, ...],
    wanted: list[str],
    of_sums: bool,
) -> tuple[Tensor | None, dict[str, Tensor | None]]:
    """The gradient of the sums that the activation is given, and none of arguments of its own."""
    (grad,) = grads
    if fixed.ACTIVATION == "relu":
        grad = _activations.backward("relu", grad, call["result"])
    elif fixed.ACTIVATION != "none":
        grad = _activations.backward(fixed.ACTIVATION, grad.float(), sums())
    return grad, {}
