"""An epilogue function's values, by PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from .graph import Graph

Known = Mapping[str, Tensor | float]  # values by name


def evaluate(
    graph: Graph, wanted: Iterable[str], known: Known, dtype: torch.dtype = torch.float32
) -> dict[str, Tensor | float]:
    """Values of a graph from tensors that broadcast together, and numbers; in `dtype`."""
    found = {name: x.to(dtype) if isinstance(x, Tensor) else x for name, x in known.items()}
    used = needed(graph, wanted, known)
    for name, (operation, *operands) in graph.values.items():
        if name in used and name not in found:
            found[name] = _apply(operation, *(_operand(x, found) for x in operands))
    return {value: _operand(value, found) for value in wanted}


def _operand(value: str, found: Known) -> Tensor | float:
    return found[value] if value in found else float(value)


def _apply(operation: str, *operands: Tensor | float) -> Tensor:
    if operation.startswith("to_"):
        dtype = getattr(torch, operation.removeprefix("to_"))
        limits = torch.iinfo(dtype) if dtype == torch.int8 else torch.finfo(dtype)
        (x,) = map(torch.as_tensor, operands)
        given = x.dtype
        if dtype.itemsize == 1:
            x = x.clamp(limits.min, limits.max)
        return (x.round() if dtype == torch.int8 else x).to(dtype).to(given)
    if operation == "where":  # numbers as they are: tensors of the CPU's would be copied, which no capture allows
        condition, *values = operands
        return torch.where(torch.as_tensor(condition), *values)
    return _OPERATIONS[operation](*map(torch.as_tensor, operands))


_OPERATIONS: dict[str, Callable[..., Tensor]] = {
    "negative": torch.neg,
    "absolute": torch.abs,
    "exp": torch.exp,
    "log": torch.log,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "tanh": torch.tanh,
    "erf": torch.erf,
    "sigmoid": torch.sigmoid,
    "silu": torch.nn.functional.silu,
    "relu": torch.relu,
    "logical_not": torch.logical_not,
    "add": torch.add,
    "subtract": torch.subtract,
    "multiply": torch.multiply,
    "divide": torch.divide,
    "minimum": torch.minimum,
    "maximum": torch.maximum,
    "less": torch.less,
    "less_equal": torch.less_equal,
    "equal": torch.eq,
    "not_equal": torch.ne,
    "logical_and": torch.logical_and,
    "logical_or": torch.logical_or,
}


def needed(graph: Graph, wanted: Iterable[str], known: Mapping[str, Any]) -> set[str]:
    """What must be known for these values: they themselves, and what they are made of where nothing is known."""
    read, left = set(), list(wanted)
    while left:
        value = left.pop()
        if value in read:
            continue
        read.add(value)
        if value not in known:
            left += graph.values.get(value, ())[1:]
    return read
