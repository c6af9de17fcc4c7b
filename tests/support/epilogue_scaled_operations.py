"""The operations of epilogue_operations with operands of 8 bits and their scales."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from epilogue_operations import (
    Array,
    Draw,
    Operation,
    forward_convolutions,
    grouped_columns,
    grouped_rows,
    masked,
    products,
    weight_gradients,
)
from strategies_matrices import DTYPES

import cleave

PAIRS = [("int8", "int8"), ("float8_e4m3fn", "float8_e4m3fn"), ("float8_e5m2", "float8_e4m3fn")]


@dataclass
class ScaledDraw(Draw):
    """What is made here stands for 8 bits times scales: one for all of it, one for each line, or one for each 128
    neighbours of a line."""

    def __post_init__(self) -> None:
        known = [pair for pair in PAIRS if set(pair) <= DTYPES.keys()]
        self._types = list(self.random.choice(known))
        self._granularity = self.random.choice(["one", "lines", "blocks"])
        self._made: dict[int, tuple[Array, Array, Array]] = {}

    def operand(self, *shape: int, lines: int | None = None) -> Array:
        q = self._quantized(*shape)
        if lines == -1 and self.random.random() < 0.5:  # contiguous along K, as Hopper multiplies 8 bits
            q = q.swapaxes(-1, -2).copy().swapaxes(-1, -2)
        if lines is None or self._granularity == "one":
            scale = self._scales(1)
            return self._keep(q, scale, scale)
        blocks = -(-shape[-3 - lines] // 128) if self._granularity == "blocks" else 1  # the other of the last two
        scale = self._scales(*shape[:-2], *((shape[-2], blocks) if lines == -2 else (blocks, shape[-1])))
        spread = np.repeat(scale, 128 if self._granularity == "blocks" else shape[-3 - lines], -3 - lines)
        return self._keep(q, scale, spread[..., : shape[-2], : shape[-1]])

    def tensor(self, *shape: int, lines: int | None = None) -> Array:
        first, channels, *axes = shape
        q = np.moveaxis(self._quantized(first, *axes, channels), -1, 1)
        scale = self._scales(1 if lines is None else first)
        return self._keep(q, scale, scale.reshape(-1, *[1] * (len(shape) - 1)))

    def multiply(self, function: Callable[..., Any], *operands: Any, **options: Any) -> Any:
        (a, scale_a), (b, scale_b) = (map(self.to_array, self._made[id(x)][1:]) for x in operands)
        name, options = function.__name__, {"out_dtype": "float32"} | options
        if name == "grouped_gemm_wgrad":
            return function(a, b, scale_dy=scale_a, scale_x=scale_b, **options)
        if name == "grouped_gemm":
            if self._granularity == "lines":  # a vector for each group
                scale_a, scale_b = (x.reshape(x.shape[0], -1) if x.ndim == 3 else x for x in (scale_a, scale_b))
            return function(a, b, scale_a=scale_a, scale_b=scale_b, **options)
        return getattr(cleave, f"scaled_{name}")(a, b, scale_a, scale_b, **options)

    def _quantized(self, *shape: int) -> Array:
        dtype = self._types.pop(0)
        if self.whole and dtype != "int8":
            return self.rng.integers(-2, 3, shape).astype(np.float32).astype(DTYPES[dtype])
        return (self.rng.standard_normal(shape) * (30 if dtype == "int8" else 1)).astype(DTYPES[dtype])

    def _scales(self, *shape: int) -> Array:
        return self.rng.uniform(0.01, 0.05, shape).astype(np.float32)

    def _keep(self, q: Array, scale: Array, spread: Any) -> Array:
        exact = q.astype(np.float64) * spread
        self._made[id(exact)] = exact, q, scale
        return exact


def scaled(operation: Callable[[Draw], Operation]) -> Callable[[Draw], Operation]:
    def make(draw: Draw) -> Operation:
        return operation(ScaledDraw(**{field.name: getattr(draw, field.name) for field in fields(draw)}))

    make.__name__ = f"scaled_{operation.__name__}"
    return make


SCALED_OPERATIONS = tuple(
    map(scaled, (products, grouped_rows, grouped_columns, masked, weight_gradients, forward_convolutions))
)
