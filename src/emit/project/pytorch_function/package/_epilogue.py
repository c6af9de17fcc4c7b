"""The gradients of the operation's epilogue function: its derivative's values, by PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from . import _formula
from . import _operation as fixed
from ._sum_to import sum_to
from .function.derivative import derivative, given_derivative, has_derivative
from .function.graph import Graph, parse
from .function.values import evaluate, join, needed, split

FORWARD = parse(fixed.FUNCTION)
SUMS = FORWARD.sums


def kept(results: tuple[Tensor, ...]) -> dict[str, Tensor]:
    """What backward wants of them, by name: nothing, since the sums are made again."""
    return {}


def without_gradient(results: tuple[Tensor, ...]) -> list[Tensor]:
    """Those that no gradient is asked of: the largest magnitudes."""
    return [x for name, x in zip(FORWARD.outputs, results, strict=True) if not has_derivative(FORWARD, name)]


def gradients(
    call: dict[str, Any],
    shape: torch.Size,
    sums: Callable[[], Tensor],
    grads: tuple[Tensor | None, ...],
    wanted: list[str],
    of_sums: bool,
) -> tuple[Tensor | None, dict[str, Tensor | None]]:
    """The gradient of the sums that the function is given, if it is wanted, and those of its inputs, by name.

    shape: the result's."""
    given = {name: grad for name, grad in zip(FORWARD.outputs, grads, strict=True) if grad is not None}
    graph = derivative_of(tuple(given))
    inputs = {name: call[name] for name in FORWARD.inputs}
    known = {name: spread(x, FORWARD.inputs[name]) for name, x in inputs.items()}
    known |= {f"grad_{name}": spread(grad, FORWARD.shape(name)) for name, grad in given.items()}
    names = [*(SUMS if of_sums else []), *(name for name in inputs if name in wanted)]
    values = {name: graph.outputs[name][1] for name in names if name in graph.outputs}
    if not needed(graph, values.values(), known).isdisjoint(SUMS):
        known |= split(sums(), SUMS)
    made = evaluate(graph, values.values(), known)
    device = next(iter(given.values())).device
    by_name = {name: torch.as_tensor(made[value], device=device).expand(shape) for name, value in values.items()}
    of_inputs = {name: _summed(grad, inputs[name], known[name]) for name, grad in by_name.items() if name in inputs}
    if not any(name in by_name for name in SUMS):
        return None, of_inputs
    nothing = torch.zeros((), device=device).expand(shape)
    return join([by_name.get(name, nothing) for name in SUMS], SUMS), of_inputs


def derivative_of(grads: tuple[str, ...]) -> Graph:
    """From the gradients of these outputs: the one that is given, or that follows from the function."""
    if fixed.BACKWARD:
        return given_derivative(fixed.BACKWARD, SUMS, grads)
    return derivative(fixed.FUNCTION, grads)


def spread(x: Any, shape: str) -> Any:
    """As it broadcasts with the result."""
    return _formula.spread(x, shape) if isinstance(x, Tensor) else x


def _summed(grad: Tensor, x: Tensor, spread: Tensor) -> Tensor:
    """Over what an input was broadcast over."""
    shape = spread.shape[max(0, spread.dim() - grad.dim()) :]
    return sum_to(grad, shape, x.dtype).reshape(x.shape)
