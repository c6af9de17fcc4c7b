"""Products of 8-bit floats for training: how each recipe quantises, and the product of what is quantised.

Tensor cores multiply rows of 8 bits by rows, so each of a layer's three products is `multiply(a, b)`, a @ b.T:

    y = multiply(x, w)         dx = multiply(dy, w transposed)         dw = multiply(dy transposed, x transposed)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

_ops = torch.ops.cleave
_scaled_gemm = _ops.scaled_gemm.default

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


class Rows(NamedTuple):
    """A matrix in 8 bits, x ~ q * scale, that products sum along the rows of; or nothing."""

    q: Tensor | None
    scale: Tensor | None


@dataclass(frozen=True)
class Recipe:
    """What shares a scale, and which product is not of 8 bits.

    tokens: of x and dy. weight: of w. grad_dtype: of dy. fast_accum: in y's sums, as torch._scaled_mm means it.
    wide_weight_gradient: dw is a product of x and dy as they come.
    """

    tokens: str
    weight: str
    grad_dtype: torch.dtype
    fast_accum: bool
    wide_weight_gradient: bool = False


RECIPES = {
    "blockwise": Recipe("block_1x128", "block_128x128", E4M3, False),
    "rowwise": Recipe("row", "row", E4M3, True),
    "rowwise_with_gw_hp": Recipe("row", "row", E4M3, True, True),
    "tensorwise": Recipe("tensor", "tensor", E5M2, True),
}


def recipe_of(name: str) -> Recipe:
    if name not in RECIPES:
        raise ValueError(f"recipe is {name!r}; it must be {' or '.join(map(repr, RECIPES))}")
    return RECIPES[name]


def grad_dtype_of(dtype: str | torch.dtype | None, recipe: Recipe) -> torch.dtype:
    """The recipe's own without one."""
    for known in (E4M3, E5M2):
        if dtype in (known, str(known).removeprefix("torch.")):
            return known
    if dtype is None:
        return recipe.grad_dtype
    raise ValueError(f"grad_dtype is {dtype!r}; it must be 'float8_e4m3fn' or 'float8_e5m2', or torch's dtype")


def major_of(granularity: str) -> str:
    """The order of scales in memory, in which kernels read them."""
    return "mn" if granularity == "block_1x128" else "k"


def quantize(x: Tensor, dtype: torch.dtype, granularity: str, transpose: bool) -> tuple[Rows, Rows]:
    """[M, K] to be summed over K, and, with `transpose`, over M: in blocks from one read."""
    major = major_of(granularity)
    if transpose and granularity.startswith("block"):
        q, scale, q_t, scale_t = _ops.quantize_transposed(x, dtype, granularity, scale_major=major)
        return Rows(q, scale), Rows(q_t, scale_t)
    rows = Rows(*_ops.quantize(x, dtype, granularity, scale_major=major))
    if not transpose:
        return rows, Rows(None, None)
    if granularity == "tensor":
        return rows, Rows(rows.q.t().contiguous(), rows.scale)
    return rows, Rows(*_ops.quantize(x.t().contiguous(), dtype, granularity))


def transposed(rows: Rows) -> Rows:
    """The same 8 bits to be summed over the other dimension, where scales are of squares or of all."""
    return Rows(rows.q.t().contiguous(), rows.scale.t().contiguous() if rows.scale.dim() == 2 else rows.scale)


def multiply(
    a: Rows, b: Rows, bias: Tensor | None = None, *, out_dtype: torch.dtype, use_fast_accum: bool = False
) -> Tensor:
    """a @ b.T + bias: [M, K] by [N, K] is [M, N]."""
    return _scaled_gemm(a.q, b.q.t(), a.scale, b.scale.t(), bias, out_dtype, use_fast_accum)


def add(a: Rows, b: Rows, *, c: Tensor | None, out: Tensor) -> None:
    """out = c + a @ b.T; c may be out."""
    _ops.scaled_gemm.out(a.q, b.q.t(), a.scale, b.scale.t(), c=c, out=out)
