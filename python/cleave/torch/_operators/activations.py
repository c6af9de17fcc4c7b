"""The gradients of the activations of products, which are epilogue functions: those of functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from ..._core import activations
from ..._epilogue.graph import SUM, parse
from ..._epilogue.values import evaluate, split
from .epilogue import Gradients


def backward(
    activation: str,
    grad: Tensor,
    result: Tensor | None,
    multiply: Callable[[str, Iterable[Any], torch.dtype], list[Tensor]],
) -> Tensor:
    """The gradient of the sums, of b's columns, from that of the result.

    result: if `keeps_result`. multiply: as of Gradients.
    """
    text = activations[activation]
    stored = {} if result is None else {parse(text).outputs["d"][1]: result}
    gradients = Gradients(text, "", {}, {"d": grad}, grad.shape, grad.dtype, stored, multiply, lambda x, *_: x)
    return gradients.of([SUM])[SUM]


def apply(text: str, inputs: Iterable[Any], sums: Tensor) -> list[Tensor]:
    """The outputs of a function of sums that are there, of b's columns."""
    graph = parse(text)
    wanted = [value for _, value in graph.outputs.values()]
    made = evaluate(graph, wanted, split(sums, graph.sums) | dict(zip(graph.inputs, inputs, strict=True)))
    return [made[value] for value in wanted]
