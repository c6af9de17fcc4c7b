"""The products as users call them: from arguments to arrays and what is static."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from .. import _core
from . import _dense, _grouped
from ._call import Product, alike

# An eager call is traced once for its shapes; within another function's trace nothing is left of this.
_gemm = jax.jit(_dense.gemm, static_argnums=0, inline=True)
_scaled_gemm = jax.jit(_dense.scaled_gemm, static_argnums=0, inline=True)
_grouped_gemm = jax.jit(_grouped.grouped_gemm, static_argnums=0, inline=True)


def gemm(
    a: Array,
    b: Array,
    *,
    bias: Array | None = None,
    c: Array | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    activation: str = "none",
    out_dtype: Any = None,
    a_major: str = "k",
    b_major: str = "n",
    split_k_mode: str = "auto",
    split_k_slices: int | None = None,
    precision: str = "tf32",
) -> Array:
    """D = activation(alpha * a @ b + beta * c + bias), with gradients for all four.

    Args:
        a, b: [M, K] and [K, N], or batches of them.
        bias, c, alpha, beta, activation, split_k_mode, split_k_slices, precision: as in `cleave.gemm`.
        out_dtype: D's dtype; by default a's, of int8 int32.
        a_major, b_major: the dimension along which neighbours lie in memory: "k" or "m" of a, "n" or "k" of b. A weight
            that is passed as w.T is read where it is with b_major="k"; XLA copies an operand that lies otherwise.

    Returns:
        [M, N], or [B, M, N].
    """
    product = Product(
        a_major=a_major,
        b_major=b_major,
        alpha=alpha,
        beta=beta,
        activation=activation,
        out_dtype=_dtype_of_d(out_dtype, a, plain=True),
        split_k_mode=split_k_mode,
        split_k_slices=split_k_slices,
        precision=precision,
    )
    return _gemm(product, *alike(a, b, bias, c))


def scaled_gemm(
    a: Array,
    b: Array,
    scale_a: Array | None,
    scale_b: Array | None,
    *,
    bias: Array | None = None,
    c: Array | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    activation: str = "none",
    out_dtype: Any = None,
    use_fast_accum: bool = False,
    a_major: str = "k",
    b_major: str = "k",
    split_k_mode: str = "auto",
    split_k_slices: int | None = None,
) -> Array:
    """D = activation(alpha * (scale_a * a) @ (scale_b * b) + beta * c + bias), of int8 or 8-bit floats.

    Differentiating it is refused: what was quantised has gradients, which a jax.custom_vjp around both can say.

    Args:
        a, b, scale_a, scale_b, use_fast_accum: as in `cleave.scaled_gemm`.
        out_dtype: D's dtype, by default bfloat16; without scales, of int8, int32.
        a_major, b_major: as in `gemm`; what tensor cores read is "k" of both.

    The other arguments are those of `gemm`.
    """
    plain = scale_a is None and scale_b is None
    product = Product(
        a_major=a_major,
        b_major=b_major,
        alpha=alpha,
        beta=beta,
        activation=activation,
        out_dtype=_dtype_of_d(out_dtype, a, plain),
        use_fast_accum=use_fast_accum,
        split_k_mode=split_k_mode,
        split_k_slices=split_k_slices,
    )
    return _scaled_gemm(product, *alike(a, b, scale_a, scale_b, bias, c))


def grouped_gemm(
    a: Array,
    b: Array,
    offs: Array,
    *,
    scale_a: Array | None = None,
    scale_b: Array | None = None,
    bias: Array | None = None,
    alpha: float = 1.0,
    activation: str = "none",
    out_dtype: Any = None,
    use_fast_accum: bool = False,
    a_major: str = "k",
    b_major: str = "n",
    split_k_mode: str = "auto",
    split_k_slices: int | None = None,
    precision: str = "tf32",
) -> Array:
    """A product for each of G groups, whose ends `offs` [G] has, in one launch; with gradients for a, b and bias.

        a [M, K],    b [G, K, N]: D [M, N],    D[begin:end] = a[begin:end] @ b[g]
        a [M, K],    b [K, N]:    D [G, M, N], D[g] = a[:, begin:end] @ b[begin:end]
        a [G, M, K], b [K, N]:    D [M, N],    D[:, begin:end] = a[g] @ b[:, begin:end]

    What belongs to no group is zero in D. `offs` is int32 (or int64 under jax_enable_x64); nobody waits for what it
    holds.

    Args:
        scale_a, scale_b, bias, activation, use_fast_accum: as in `cleave.grouped_gemm`. Products of 8-bit operands have
            no gradients, and bias has one where rows are grouped.
        out_dtype: D's dtype; by default a's, of 8-bit operands bfloat16.

    The other arguments are those of `gemm`.
    """
    product = Product(
        grouped=True,
        a_major=a_major,
        b_major=b_major,
        alpha=alpha,
        activation=activation,
        out_dtype=_dtype_of_d(out_dtype, a, scale_a is None and scale_b is None),
        use_fast_accum=use_fast_accum,
        split_k_mode=split_k_mode,
        split_k_slices=split_k_slices,
        precision=precision,
    )
    return _grouped_gemm(product, *alike(a, b, offs, scale_a, scale_b, bias))


def _dtype_of_d(wanted: Any, a: Array, plain: bool) -> Any:
    """`plain`: there are no scales."""
    if wanted is not None:
        return jnp.dtype(_core.dtype_name(wanted, "out_dtype"))
    dtype = jnp.result_type(a)
    if dtype.itemsize > 1:
        return dtype
    return jnp.dtype("int32" if dtype == jnp.int8 and plain else "bfloat16")
