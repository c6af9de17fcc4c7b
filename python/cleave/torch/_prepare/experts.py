"""What `_prepare` knows of the experts of mixtures: their products, and what brings tokens there and back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

import cleave

from ... import _torch_precision
from .. import _dealt
from .._batch_invariant import is_batch_invariant
from .._packed_experts import PackedExperts
from .._packed_layer import HALVES, PackedLayer
from .._scales import ACTIVATIONS
from ..dispatch import MOST_GATHERED_ROWS
from ..experts import W8A8Experts
from ..grouped_linear import GroupedLinear
from ..mixed_bytes_experts import W4A8Experts
from ..mixed_experts import W4A16Experts
from ..moe import MoE
from ..router import Router
from . import float8
from .examples import Product, ends_of, in_8_bits, scales_of, tokens

_ops = torch.ops.cleave

# Experts of a token, where no config of the model says.
_CHOICES = 8


def choices_of(model: nn.Module, experts: int) -> int:
    config = getattr(model, "config", None)
    config = getattr(config, "text_config", config)
    return getattr(config, "num_experts_per_tok", None) or min(_CHOICES, experts)


def grouped(layer: GroupedLinear, first: int, last: int, **options: Any) -> Iterator[Product]:
    weight = _dealt.own(layer.weight.detach())
    options["bias"] = _dealt.own(layer.bias)
    if layer.recipe:
        yield from float8.grouped(weight, layer.recipe, first, last, **options)
    else:
        x = tokens(weight, layer.in_features, weight.dtype)
        yield cleave.plan_grouped_gemm(x, weight.mT, ends_of(weight), **options), first, last


def beside_packed(layer: PackedLayer, dtype: torch.dtype) -> Tensor:
    """Activations, of the dtype that the layer multiplies."""
    own = layer.scales.dtype
    return tokens(layer.packed, layer.in_features, own if own in HALVES else dtype)


def _gate_in(part: PackedLayer, experts: PackedExperts) -> cleave.BoundEpilogue | None:
    """The function of the product of `part`, if it joins gates and ups."""
    return experts.gate.epilogue() if part.gated else None


def w4a16(layer: W4A16Experts, first: int, last: int, dtype: torch.dtype, choices: int) -> Iterator[Product]:
    for part in (layer.gate_up, layer.down):
        rows = beside_packed(part, dtype)
        options = {"offs": ends_of(part.packed), "bias": part.bias, "epilogue": _gate_in(part, layer)}
        yield cleave.plan_mixed_gemm(rows, part.weights(), **options), first, last * choices
    x = beside_packed(layer.gate_up, dtype)
    _move(x, [x], layer.num_experts, choices, last)


def w4a8(layer: W4A8Experts, first: int, last: int, dtype: torch.dtype, choices: int) -> Iterator[Product]:
    rows = first, last * choices  # tokens may have fewer choices
    for part, of_rows in ((layer.gate_up, (first, last)), (layer.down, rows)):
        x = tokens(part.packed, part.in_features, dtype)
        q, scale = in_8_bits(x, layer.activation_dtype), scales_of(x, "row")
        yield cleave.plan_quantize(x, q.dtype), *of_rows
        options = {"offs": ends_of(part.packed), "bias": part.bias, "epilogue": _gate_in(part, layer)}
        yield cleave.plan_mixed_gemm(q, part.weights(), scale_a=scale, out_dtype=dtype, **options), *rows
    x = tokens(layer.gate_up.packed, layer.gate_up.in_features, dtype)
    _move(x, (in_8_bits(x, layer.activation_dtype), scales_of(x, "row")), layer.num_experts, choices, last)


def w8a8(layer: W8A8Experts, first: int, last: int, dtype: torch.dtype, choices: int) -> Iterator[Product]:
    granularity = ACTIVATIONS[layer.granularity]
    x, hidden = (tokens(part, part.shape[2], dtype) for part in (layer.gate_up, layer.down))
    ranks = layer.dispatcher.ranks
    rows = (first if ranks == 1 else 1), last * choices * ranks  # tokens may have fewer choices
    yield cleave.plan_quantize(x, layer.down.dtype, granularity), first, last
    options: dict[str, Any] = {"activation": "swiglu", "out_dtype": x.dtype}
    if layer.first_quantises:
        options |= {"out_dtype": layer.down.dtype, "out_scale": "block_1x128"}
    else:
        yield cleave.plan_quantize(hidden, layer.down.dtype, granularity), *rows
    for of_rows, *range_ in _ways_of(layer, x, choices, *rows):
        yield _w8a8_product(layer, x, layer.gate_up, layer.gate_up_scale, **options, **of_rows), *range_
    yield _w8a8_product(layer, hidden, layer.down, layer.down_scale, out_dtype=x.dtype), *rows
    quantised = in_8_bits(x, layer.down.dtype), scales_of(x, granularity)
    _move(x, quantised, layer.num_experts, choices, last)
    if layer.copies_quantise:
        ids = x.new_zeros((len(x), choices), dtype=torch.int32)
        _ops.moe_permute_quantized(x, ids, layer.num_experts, layer.down.dtype)


def _ways(x: Tensor, experts: int, choices: int, first: int, last: int) -> Iterator[tuple[dict[str, Any], int, int]]:
    """Options of a product that gathers tokens, and of one that reads copies, with the rows that each is for."""
    few = 0 if is_batch_invariant() else min(last, MOST_GATHERED_ROWS * experts)
    if first <= few:
        yield {"gather": x.new_zeros(len(x) * choices, dtype=torch.int32), "top_k": choices}, first, few
    if few < last:
        yield {}, max(first, few + 1), last


def _ways_of(
    layer: MoE | W8A8Experts, x: Tensor, choices: int, first: int, last: int
) -> Iterable[tuple[dict[str, Any], int, int]]:
    """The same of what the layer's dispatcher does."""
    gathers = getattr(layer.dispatcher, "gathers", False)
    return _ways(x, layer.num_experts, choices, first, last) if gathers else [({}, first, last)]


def _w8a8_product(
    layer: W8A8Experts, x: Tensor, weight: Tensor, weight_scale: Tensor, **options: Any
) -> cleave.GemmPlan:
    scale = scales_of(x, ACTIVATIONS[layer.granularity])
    by_row = layer.granularity == "row"
    return cleave.plan_grouped_gemm(
        in_8_bits(x, weight.dtype),
        weight.mT,
        ends_of(weight),
        scale_a=scale.view(-1) if by_row else scale,
        scale_b=weight_scale if by_row else weight_scale.mT,
        **options,
    )


def moe(layer: MoE, first: int, last: int) -> Iterator[Product]:
    x = tokens(layer.gate_up.weight, layer.gate_up.in_features, layer.gate_up.weight.dtype).zero_()
    yield from _router(layer.router, x, first, last)
    ranks = layer.dispatcher.ranks
    rows = (first * layer.top_k if ranks == 1 else 1), last * layer.top_k * ranks
    for of_rows, *range_ in _ways_of(layer, x, layer.top_k, *rows):
        yield from grouped(layer.gate_up, *range_, activation="swiglu", **of_rows)
    yield from grouped(layer.down, *rows)
    if ranks == 1:
        layer(x)
    else:  # others may not be calling
        layer.route(x)
    _move(x, [x], layer.num_experts, layer.top_k, last)  # so few tokens as x need not be copied


def _router(router: Router, x: Tensor, first: int, last: int) -> Iterator[Product]:
    weight = router.weight.detach()
    if weight.dtype == x.dtype:
        yield cleave.plan_gemm(x, weight.t(), out_dtype=torch.float32), first, last
        return
    few = min(last, router.most_tokens)
    for count in range(first, few + 1):  # by calls: the kernel has few forms, which depend on the number of tokens
        router(x.new_zeros((count, x.shape[1])))
    if few < last:
        options = {"precision": _torch_precision.precision()}
        yield cleave.plan_gemm(x.float(), weight.float().t(), **options), max(first, few + 1), last


def _sort(x: Tensor, dtypes: Iterable[torch.dtype], experts: int, choices: int, last: int) -> None:
    """One kernel sorts few choices and many; the many need a workspace."""
    for dtype in dtypes:
        _ops.moe_sort_tokens(x.new_zeros((last, choices), dtype=dtype), experts)


def _move(x: Tensor, moved: Iterable[Tensor], experts: int, choices: int, last: int) -> None:
    """Runs what sorts tokens, copies what of them is `moved`, and brings back rows like x: each is of few forms."""
    ids = x.new_zeros((len(x), choices), dtype=torch.int32)
    _sort(x, [torch.int32, torch.int64], experts, choices, last)
    _, indices = _ops.moe_sort_tokens(ids, experts)
    for each in moved:
        _ops.moe_gather(each, indices)
    rows = x.new_zeros((len(x) * choices, x.shape[1]))
    for dtype in {torch.float32, x.dtype}:
        _ops.moe_unpermute(rows, indices, x.new_zeros(ids.shape, dtype=dtype))
