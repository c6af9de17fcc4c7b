"""The gradients of the activations of products, which are epilogue functions: those of functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from .._core import activations
from .._epilogue.activations import GRAPHS
from .._epilogue.derivative import derivative
from .._epilogue.graph import INTERLEAVED, needed


def backward(activation: str, grad: Array, result: Array | None, multiply: Callable[[], Array]) -> Array:
    """The gradient of the sums, float32, of b's columns, from that of the result.

    result: if `keeps_result`, as it says enough of the sums. multiply: makes the sums again, in float32; called if
    there is no result.
    """
    forward, derived = GRAPHS[activation], derivative(activations[activation], ("d",))
    known = {"grad_d": grad.astype(jnp.float32)}
    if result is None:
        known |= _split(multiply(), forward.sums)
    else:
        known[forward.outputs["d"][1]] = result.astype(jnp.float32)

    def read(value: str) -> Array:
        return known[value] if value in known else jnp.float32(value)

    wanted = [derived.outputs[name][1] for name in forward.sums]
    used = needed(derived, wanted, known) - known.keys()
    for name, (operation, *operands) in derived.values.items():
        if name in used:
            known[name] = _function(operation)(*map(read, operands))
    return _join([read(value) for value in wanted], forward.sums)


def _function(operation: str) -> Callable[..., Any]:
    """jax has it by this name, in one of its modules."""
    return next(getattr(module, operation) for module in (jnp, jax.nn, jax.lax) if hasattr(module, operation))


def _split(sums: Array, names: tuple[str, ...]) -> dict[str, Array]:
    count = len(names)
    parts = [sums[..., i::count] for i in range(count)] if names == INTERLEAVED else jnp.split(sums, count, -1)
    return dict(zip(names, parts, strict=True))


def _join(parts: list[Array], names: tuple[str, ...]) -> Array:
    if names == INTERLEAVED:
        return jnp.stack(parts, -1).reshape(*parts[0].shape[:-1], -1)
    return jnp.concatenate(parts, -1)
