"""The gradients of the activations of products."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array


def backward(activation: str, grad: Array, x: Array) -> Array:
    """The gradient before an activation, float32, from the one after it and what the activation was given."""
    _, pull = jax.vjp(_FORWARD[activation], x.astype(jnp.float32))
    return pull(grad.astype(jnp.float32))[0]


def _swiglu(x: Array) -> Array:
    gate, up = jnp.split(x, 2, axis=-1)
    return jax.nn.silu(gate) * up


_FORWARD = {
    "relu": jax.nn.relu,
    "relu2": lambda x: jnp.square(jax.nn.relu(x)),
    "gelu": partial(jax.nn.gelu, approximate=False),
    "gelu_tanh": partial(jax.nn.gelu, approximate=True),
    "silu": jax.nn.silu,
    "swiglu": _swiglu,
    "swiglu_interleaved": lambda x: jax.nn.silu(x[..., 0::2]) * x[..., 1::2],
}
