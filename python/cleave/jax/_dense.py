"""gemm and scaled_gemm: shapes, jax.vmap's rule, gradients."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from .._epilogue.activations import GATED, keeps_result
from . import _activations
from ._batching import Function, batched, fold
from ._call import Given, Product


def shape_of_d(product: Product, a: Array, b: Array) -> tuple[int, ...]:
    if a.ndim not in (2, 3) or b.ndim not in (2, 3):
        raise ValueError(f"a is {a.shape} and b is {b.shape}; both must be matrices, or batches of them")
    if a.shape[-1] != b.shape[-2]:
        raise ValueError(
            f"a is {a.shape} and b is {b.shape}; a's columns must be as many as b's rows: transpose one of them"
        )
    batch = {*a.shape[:-2], *b.shape[:-2]} - {1} or {*a.shape[:-2], *b.shape[:-2]}
    if len(batch) > 1:
        raise ValueError(f"a is {a.shape} and b is {b.shape}; batches must be of one size, or of 1")
    columns = b.shape[-1] // 2 if product.activation in GATED else b.shape[-1]
    return *batch, a.shape[-2], columns


def multiply(product: Product, a: Array, b: Array, scale_a: Given, scale_b: Given, bias: Given, c: Given) -> Array:
    """One call, or as many as jax.vmap needs; without gradients."""

    def call(a: Array, b: Array, scale_a: Given, scale_b: Given, bias: Given, c: Given) -> Array:
        shape = shape_of_d(product, a, b)
        return product(shape, a=a, b=b, scale_a=scale_a, scale_b=scale_b, bias=bias, c=c)

    return batched(call, partial(_along_a_new_axis, product))(a, b, scale_a, scale_b, bias, c)


def _along_a_new_axis(
    product: Product, function: Function, size: int, along: Sequence[bool], arrays: Sequence[Given]
) -> Array | None:
    a, b, scale_a, scale_b, bias, c = arrays
    of_a, of_b, of_scale_a, of_scale_b, of_bias, of_c = along
    rank_a, rank_b = a.ndim - of_a, b.ndim - of_b
    if rank_a != 2 or rank_b != 2 or of_scale_b or of_bias or not (of_a or of_b):
        return None
    if c is not None and not of_c:
        c = jnp.broadcast_to(c, (size, *c.shape))
    rows = a.shape[-2]
    # Rows of a that share b are more rows of one matrix, if nothing else tells a row's place.
    by_row = scale_a is None or scale_a.size == 1 or (of_scale_a and scale_a.ndim > 1 and scale_a.shape[1] == rows)
    plain_bias = bias is None or bias.ndim == 1 or bias.shape == (1, b.shape[-1])
    if of_a and not of_b and by_row and plain_bias and product.a_major == "k":
        scales = fold(scale_a) if of_scale_a else scale_a
        folded = function(fold(a), b, scales, scale_b, bias, None if c is None else fold(c))
        return folded.reshape(size, rows, folded.shape[-1])
    if scale_a is not None or scale_b is not None:
        return None
    return function(a, b, None, None, bias, c)


# --- gradients ---


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def gemm(product: Product, a: Array, b: Array, bias: Given, c: Given) -> Array:
    return multiply(product, a, b, None, None, bias, c)


def _forward(product: Product, a: Array, b: Array, bias: Given, c: Given) -> tuple[Array, Any]:
    d = gemm(product, a, b, bias, c)
    return d, (a, b, bias, c, d if keeps_result(product.activation) else None)


def _backward(product: Product, kept: Any, grad: Array) -> tuple[Given, ...]:
    a, b, bias, c, d = kept
    if product.activation != "none":
        linear = product.but(activation="none", out_dtype=jnp.dtype("float32"))
        grad = _activations.backward(product.activation, grad, d, lambda: gemm(linear, a, b, bias, c))
    operand = grad.astype(a.dtype)
    return (
        _of_operand(product.gradient_of_a(), operand, b.mT, a),
        _gradient_of_b(product, a, operand, b),
        None if bias is None else _sum_to(grad, bias),
        None if c is None else _sum_to(product.beta * grad.astype(jnp.float32), c),
    )


gemm.defvjp(_forward, _backward)


def _gradient_of_b(product: Product, a: Array, grad: Array, b: Array) -> Array:
    if a.ndim == 3 and b.ndim == 2 and product.a_major == "k":  # one product, with the batch as part of its K
        a, grad = fold(a), fold(grad)
    return _of_operand(product.gradient_of_b(), a.mT, grad, b)


def _of_operand(product: Product, x: Array, y: Array, operand: Array) -> Array:
    """x @ y, summed over the batch that the operand serves."""
    shared = operand.ndim < max(x.ndim, y.ndim) or operand.shape[0] < x.shape[0] == y.shape[0] != operand.shape[0]
    dtype = jnp.dtype("float32") if shared else operand.dtype
    return _sum_to(gemm(product.but(out_dtype=dtype), x, y, None, None), operand)


def _sum_to(x: Array, like: Array) -> Array:
    """Over the dimensions along which `like` was broadcast; in its dtype."""
    x = x if x.ndim == like.ndim and x.shape == like.shape else x.astype(jnp.float32)
    x = x.sum(tuple(range(x.ndim - like.ndim)))
    ones = tuple(i for i, (has, wanted) in enumerate(zip(x.shape, like.shape, strict=True)) if has != wanted)
    return x.sum(ones, keepdims=True).astype(like.dtype)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def scaled_gemm(product: Product, a: Array, b: Array, scale_a: Given, scale_b: Given, bias: Given, c: Given) -> Array:
    return multiply(product, a, b, scale_a, scale_b, bias, c)


def _no_gradients(product: Product, *arrays: Given) -> Any:
    raise TypeError(
        "products of 8-bit operands have no gradients; wrap quantisation and product in one jax.custom_vjp, or pass "
        "jax.lax.stop_gradient of what requires them"
    )


scaled_gemm.defvjp(_no_gradients, _no_gradients)
