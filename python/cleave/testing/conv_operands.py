"""Operands of a convolution: random normal values, quantised where the case has 8-bit ones."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from .arrays import Arrays
from .case import Block
from .conv_case import ConvCase
from .operands import factor, static_scale


@dataclass
class ConvOperands:
    """torch's shapes, channels last in memory. inputs: a and b, by the names of ConvCase.shapes. scales: as of
    Operands."""

    inputs: dict[str, Any]
    bias: Any
    out: Any
    scales: dict[str, Any] = field(default_factory=dict)


def make_operands(arrays: Arrays, case: ConvCase, seed: int = 0) -> ConvOperands:
    """Standard normal inputs, and a poisoned output."""
    inputs, scales = {}, static_scale(arrays, case.product)
    for i, name in enumerate(case.read):
        shape = case.shapes[name]
        matrix = math.prod(shape) // max(shape[1], 1), shape[1]
        values, scale = factor(arrays, matrix, case.dtype, True, _block(case, name), 4 * seed + i)
        inputs[name] = _channels_last(arrays, values, shape)
        if scale is not None:
            scales[("scale_a", "scale_b")[i]] = scale.reshape(-1)
    shape = case.shapes[case.made]
    out = _channels_last(arrays, arrays.full((math.prod(shape),), 0, case.result_dtype), shape)
    arrays.poison(out)
    biased = case.bias != "none"
    bias = arrays.normal((shape[1],), case.bias_dtype, 4 * seed + 2) if biased else None
    return ConvOperands(inputs, bias, out, scales)


def _block(case: ConvCase, name: str) -> Block | None:
    """What shares a scale, in the matrix whose rows are pixels or taps."""
    if case.scaling == "none":
        return None
    return (case.taps if case.scaling == "row" and name == "weight" else None), None


def _channels_last(arrays: Arrays, values: Any, shape: tuple[int, ...]) -> Any:
    """`values`, which lie as [images or filters, *size, channels], in torch's shape."""
    lead, channels, *size = shape
    return arrays.xp.moveaxis(values.reshape(lead, *size, channels), -1, 1)
