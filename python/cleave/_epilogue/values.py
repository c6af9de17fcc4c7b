"""An epilogue function's values, by PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

import torch
from torch import Tensor

from .graph import INTERLEAVED, Graph, needed

Known = Mapping[str, Tensor | float]  # values by name


def evaluate(
    graph: Graph, wanted: Iterable[str], known: Known, dtype: torch.dtype = torch.float32
) -> dict[str, Tensor | float]:
    """Values of a graph from tensors that broadcast together, and numbers; in `dtype`, but that what is chosen of
    known values stays of their dtype."""
    found, cast = dict(known), {}

    def in_dtype(value: str) -> Tensor | float:
        x = _operand(value, found)
        if not isinstance(x, Tensor) or x.dtype in (dtype, torch.bool):
            return x
        if value not in cast:
            cast[value] = x.to(dtype)
        return cast[value]

    used = needed(graph, wanted, known)
    for name, (operation, *operands) in graph.values.items():
        if name in used and name not in found:
            read = partial(_operand, found=found) if operation == "where" else in_dtype
            found[name] = _apply(operation, *map(read, operands))
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


def split(sums: Tensor, names: tuple[str, ...]) -> dict[str, Tensor]:
    """The sums of b's columns as a function takes them, whose `Graph.sums` are `names`."""
    count = len(names)
    parts = [sums[..., i::count] for i in range(count)] if names == INTERLEAVED else sums.chunk(count, -1)
    return dict(zip(names, parts, strict=True))


def join(parts: list[Tensor], names: tuple[str, ...]) -> Tensor:
    """The inverse."""
    if len(parts) == 1:
        return parts[0]
    return torch.stack(parts, -1).flatten(-2) if names == INTERLEAVED else torch.cat(parts, -1)
