"""grouped_gemm: forms, jax.vmap's rule, gradients."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from .._epilogue.activations import GATED, keeps_result
from . import _activations
from ._batching import batched
from ._call import Given, Product


def shape_of_d(product: Product, a: Array, b: Array, offs: Array) -> tuple[int, ...]:
    ranks = a.ndim, b.ndim
    if ranks not in ((2, 3), (2, 2), (3, 2)) or offs.ndim != 1:
        raise ValueError(
            f"a is {a.shape}, b is {b.shape} and offs is {offs.shape}; groups of rows take [M, K] and [G, K, N], of K "
            "[M, K] and [K, N], of columns [G, M, K] and [K, N], and offs is [G]"
        )
    groups = [x.shape[0] for x in (a, b) if x.ndim == 3]
    if a.shape[-1] != b.shape[-2] or groups not in ([], [offs.shape[0]]):
        raise ValueError(
            f"a is {a.shape}, b is {b.shape} and offs is {offs.shape}; a's columns must be as many as b's rows, and "
            "groups as many as offs has ends"
        )
    columns = b.shape[-1] // 2 if product.activation in GATED else b.shape[-1]
    lead = offs.shape if ranks == (2, 2) else ()
    return *lead, a.shape[-2], columns


def multiply(product: Product, a: Array, b: Array, offs: Array, scale_a: Given, scale_b: Given, bias: Given) -> Array:
    """One call, or as many as jax.vmap needs; without gradients."""

    def call(a: Array, b: Array, offs: Array, scale_a: Given, scale_b: Given, bias: Given) -> Array:
        shape = shape_of_d(product, a, b, offs)
        return product(shape, a=a, b=b, offs=offs, scale_a=scale_a, scale_b=scale_b, bias=bias)

    return batched(call, lambda *_: None)(a, b, offs, scale_a, scale_b, bias)


# --- gradients: the ranks of the operands say each time what is grouped ---


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def grouped_gemm(
    product: Product, a: Array, b: Array, offs: Array, scale_a: Given, scale_b: Given, bias: Given
) -> Array:
    return multiply(product, a, b, offs, scale_a, scale_b, bias)


def _forward(
    product: Product, a: Array, b: Array, offs: Array, scale_a: Given, scale_b: Given, bias: Given
) -> tuple[Array, Any]:
    if a.dtype.itemsize == 1:
        raise TypeError(f"a and b are {a.dtype} and {b.dtype}; products of 8-bit operands have no gradients")
    if bias is not None and (a.ndim, b.ndim) != (2, 3):
        raise TypeError(f"a is {a.shape} and b is {b.shape}; a bias has a gradient where rows are grouped alone")
    d = grouped_gemm(product, a, b, offs, scale_a, scale_b, bias)
    return d, (a, b, offs, bias, d if keeps_result(product.activation) else None)


def _backward(product: Product, kept: Any, grad: Array) -> tuple[Given, ...]:
    a, b, offs, bias, d = kept
    if product.activation != "none":
        linear = product.but(activation="none", out_dtype=jnp.dtype("float32"))
        sums = partial(grouped_gemm, linear, a, b, offs, None, None, bias)
        grad = _activations.backward(product.activation, grad, d, sums)
    operand = grad.astype(a.dtype)
    return (
        _plain(product.gradient_of_a(), operand, b.mT, offs, a.dtype),
        _plain(product.gradient_of_b(), a.mT, operand, offs, b.dtype),
        None,
        None,
        None,
        None if bias is None else _gradient_of_bias(bias, operand, offs),
    )


grouped_gemm.defvjp(_forward, _backward)


def _plain(product: Product, x: Array, y: Array, offs: Array, dtype: Any) -> Array:
    return grouped_gemm(product.but(out_dtype=jnp.dtype(dtype)), x, y, offs, None, None, None)


def _gradient_of_bias(bias: Array, grad: Array, offs: Array) -> Array:
    """Its sums, as a product with ones: they leave out what is no group's."""
    if bias.shape not in ((grad.shape[1],), (1, grad.shape[1]), (offs.shape[0], grad.shape[1])):  # a value for each row
        owned = jnp.arange(grad.shape[0]) < offs[-1]
        return jnp.where(owned, grad.astype("float32").sum(1), 0)[:, None].astype(bias.dtype)
    ones = jnp.ones_like(grad, shape=(1, grad.shape[0]))
    sums = _plain(Product(grouped=True), ones, grad, offs, "float32")[:, 0]
    return (sums if bias.ndim == 2 and bias.shape[0] == offs.shape[0] else sums.sum(0).reshape(bias.shape)).astype(
        bias.dtype
    )
