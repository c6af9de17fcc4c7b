"""The gradient of the operation's activation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from . import _activations
from . import _operation as fixed


def kept(output: Tensor) -> dict[str, Tensor]:
    """What backward wants of the results, by name."""
    return {"result": output} if fixed.ACTIVATION == "relu" else {}


def gradients(
    call: dict[str, Any],
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
