"""The sum of the ranks' partial results, in the order of the ranks, and what is done to it once.

It is the fixup of split-K whose outer slices are ranks. Partial results are inputs of the epilogue of a product
whose K is empty, so that types, layouts, activations and rounding are those of all products.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor

from .._epilogue import functions
from .._epilogue.inputs import InputShape, matrix, row, scalar
from .._epilogue.value import Trace, Value

_MOST_INPUTS = 8  # of an epilogue function

ACTIVATIONS: dict[str, Callable[[Value], Value]] = {
    "none": lambda x: x,
    "relu": functions.relu,
    "relu2": functions.relu2,
    "gelu": functions.gelu,
    "gelu_tanh": partial(functions.gelu, approximate="tanh"),
    "silu": functions.silu,
}


def fold(
    partials: list[Tensor],
    out_dtype: torch.dtype,
    bias: Tensor | None = None,
    c: Tensor | None = None,
    activation: str = "none",
    scale_d: Tensor | None = None,
) -> Tensor:
    """activation(((p0 + p1) + p2 ...) + c + bias) / scale_d, in float32 up to D's rounding.

    partials: [M, N] of each rank. bias: [N]. c: [M, N]. scale_d: one element. More of them than a kernel takes are
    added in several, whose sums between are float32: the same bits.
    """
    others = {name: x for name, x in (("c", c), ("bias", bias), ("scale_d", scale_d)) if x is not None}
    total, rest = partials[0], partials[1:]
    while len(rest) + len(others) > _MOST_INPUTS:
        total = _add(total, rest[:_MOST_INPUTS], {}, "none", torch.float32)
        rest = rest[_MOST_INPUTS:]
    return _add(total, rest, others, activation, out_dtype)


def _add(total: Tensor, rest: list[Tensor], others: dict[str, Tensor], activation: str, dtype: torch.dtype) -> Tensor:
    rows, columns = total.shape
    a, b = total.new_empty(rows, 0), total.new_empty(0, columns)
    text = _text(len(rest), tuple(others), activation)
    inputs = [*rest, *others.values()]
    return torch.ops.cleave.gemm.epilogue(a, b, text, inputs, c=total, out_dtype=dtype)[0]


_SHAPES: dict[str, InputShape] = {"c": matrix, "bias": row, "scale_d": scalar}


@lru_cache(maxsize=256)
def _text(count: int, others: tuple[str, ...], activation: str) -> str:
    """The epilogue function that adds `count` partial results to the first, which is its sum."""
    partials = {f"p{i}": matrix for i in range(1, count + 1)}
    inputs = partials | {name: _SHAPES[name] for name in others}

    def add(acc: Value, **values: Value) -> Value:
        for name in (*partials, *(n for n in others if n != "scale_d")):
            acc = acc + values[name]
        acc = ACTIVATIONS[activation](acc)
        return acc * (1.0 / values["scale_d"]) if "scale_d" in values else acc

    def as_output(value: Any) -> dict[str, Any]:
        return {"d": value}

    trace = Trace("fold", inputs)
    return trace.run(add, [Value(trace, "acc")], {name: Value(trace, name) for name in inputs}, as_output).text
