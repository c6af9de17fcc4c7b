"""The activations, as plain array operations, which torch can differentiate, and how steep they are."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .._epilogue.activations import GATED, PAIRED
from .arrays import Arrays


@dataclass(frozen=True)
class Elementwise:
    """of: the function. slope: no slope is steeper up to this magnitude of what the function takes."""

    of: Callable[[Arrays, Any], Any]
    slope: Callable[[Any], Any]


def _relu(arrays: Arrays, x: Any) -> Any:
    return arrays.xp.where(x < 0, arrays.xp.zeros_like(x), x)


def _gelu(arrays: Arrays, x: Any) -> Any:
    return 0.5 * x * (1.0 + arrays.erf(x * math.sqrt(0.5)))


def _gelu_tanh(arrays: Arrays, x: Any) -> Any:
    return 0.5 * x * (1.0 + arrays.xp.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


def _silu(arrays: Arrays, x: Any) -> Any:
    return 0.5 * x * (1.0 + arrays.xp.tanh(0.5 * x))


ELEMENTWISE = {
    "none": Elementwise(lambda _, x: x, lambda _: 1.0),
    "relu": Elementwise(_relu, lambda _: 1.0),
    "relu2": Elementwise(lambda arrays, x: _relu(arrays, x) ** 2, lambda magnitude: 2.0 * magnitude),
    "gelu": Elementwise(_gelu, lambda _: 1.13),
    "gelu_tanh": Elementwise(_gelu_tanh, lambda _: 1.13),
    "silu": Elementwise(_silu, lambda _: 1.1),
}


def opened(name: str, x: Any) -> tuple[Any, Any]:
    """The gates among b's columns, and what they open."""
    if name in PAIRED:
        return x[..., 0::2], x[..., 1::2]
    half = x.shape[-1] // 2
    return x[..., :half], x[..., half:]


def activate(arrays: Arrays, name: str, x: Any) -> Any:
    """Takes float64 values, of all of b's columns."""
    if name in GATED:
        gates, ups = opened(name, x)
        return _silu(arrays, gates) * ups
    return ELEMENTWISE[name].of(arrays, x)


def carried(name: str, x: Any, error: Any) -> Any:
    """How far an elementwise activation may be off where x is off by as much as `error`."""
    return ELEMENTWISE[name].slope(abs(x) + error) * error
