"""What `_prepare` knows of layers with a recipe, without gradients: each call quantises its weights, too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

import cleave

from .. import _dealt, _float8
from .._float8 import E4M3
from .._scales import scale_shape
from ..float8 import Float8Linear
from .examples import Product, ends_of, in_8_bits, scales_of, tokens


def linear(layer: Float8Linear, first: int, last: int, dtype: torch.dtype) -> Iterator[Product]:
    recipe, weight = _float8.RECIPES[layer.recipe], _dealt.own(layer.weight.detach())
    x = tokens(weight, layer.in_features, dtype)
    yield _quantised(x, recipe.tokens, first, last)
    yield _quantised(weight, recipe.weight, len(weight), len(weight))
    scales = scales_of(x, recipe.tokens), scales_of(weight, recipe.weight).t()
    plan = cleave.plan_scaled_gemm(
        in_8_bits(x, E4M3),
        in_8_bits(weight, E4M3).t(),
        *scales,
        bias=_dealt.own(layer.bias),
        out_dtype=dtype,
        use_fast_accum=recipe.fast_accum,
    )
    yield plan, first, last


def grouped(weight: Tensor, name: str, first: int, last: int, **options: Any) -> Iterator[Product]:
    """Those of experts, whose weights are [E, N, K]. name: of the recipe; options: of the product."""
    recipe = _float8.RECIPES[name]
    x, rows = tokens(weight, weight.shape[2], weight.dtype), weight.flatten(0, 1)
    yield _quantised(x, recipe.tokens, first, last)
    yield _quantised(rows, recipe.weight, len(rows), len(rows))
    scales = {
        "scale_a": scales_of(x, recipe.tokens),
        "scale_b": torch.empty((len(weight), *scale_shape(recipe.weight, *weight.shape[1:])), device=x.device).mT,
    }
    operands = in_8_bits(x, E4M3), in_8_bits(weight, E4M3).mT, ends_of(weight)
    yield cleave.plan_grouped_gemm(*operands, **scales, out_dtype=x.dtype, **options), first, last


def _quantised(x: Tensor, granularity: str, first: int, last: int) -> Product:
    major = _float8.major_of(granularity)
    return cleave.plan_quantize(x, E4M3, granularity, scale_major=major), first, last
