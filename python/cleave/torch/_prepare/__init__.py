"""The products of a model's layers, for `cleave.prepare`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn

import cleave

from ..experts import W8A8Experts
from ..float8 import Float8Linear
from ..fused import W8A8SwiGLU
from ..grouped_linear import GroupedLinear
from ..linear import W8A8Linear
from ..mixed_bytes_experts import W4A8Experts
from ..mixed_bytes_linear import W4A8Linear
from ..mixed_experts import W4A16Experts
from ..mixed_linear import W4A16Linear
from ..moe import MoE
from ..norm import RMSNormQuantize
from . import experts, float8
from .examples import Product, in_8_bits, scales_of, tokens

# Experts, with what knows their products.
_EXPERTS = {W8A8Experts: experts.w8a8, W4A16Experts: experts.w4a16, W4A8Experts: experts.w4a8}
_LAYERS = (W8A8Linear, *_EXPERTS, W4A16Linear, W4A8Linear, RMSNormQuantize, Float8Linear, GroupedLinear, MoE)


@torch.no_grad()
def products(model: nn.Module, first: int, last: int, dtype: torch.dtype | None) -> Iterator[Product]:
    """Each kind once; layers that are not on a GPU have none."""
    dtype = dtype or torch.bfloat16
    of_experts: set[nn.Module] = set()
    for layer in model.modules():
        if layer in of_experts or not isinstance(layer, _LAYERS) or not _on_gpu(layer):
            continue
        if isinstance(layer, MoE):
            of_experts |= {layer.gate_up, layer.down}
            yield from experts.moe(layer, first, last)
        elif isinstance(layer, GroupedLinear):
            yield from experts.grouped(layer, first, last)
        elif kind := next((kind for kind in _EXPERTS if isinstance(layer, kind)), None):
            yield from _EXPERTS[kind](layer, first, last, dtype, experts.choices_of(model, layer.num_experts))
        elif isinstance(layer, Float8Linear):
            yield from float8.linear(layer, first, last, dtype)
        elif isinstance(layer, RMSNormQuantize):
            yield from _normed(layer, first, last, dtype)
        elif isinstance(layer, W4A16Linear):
            yield _w4a16(layer, dtype), first, last
        elif isinstance(layer, W4A8Linear):
            for plan in _w4a8(layer, dtype):
                yield plan, first, last
        else:
            yield from _w8a8(layer, first, last, dtype)


def device_of(model: nn.Module) -> AbstractContextManager:
    """Makes the model's GPU torch's current one. TypeError for what is no model."""
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"what is {type(model).__name__}; it must be a torch module, or plans: a cleave.GemmPlan or a list of such"
        )
    return torch.cuda.device_of(next((x for x in _tensors(model) if x.is_cuda), torch.empty(0)))


def current_stream(model: nn.Module) -> Any:
    return torch.cuda.current_stream() if any(x.is_cuda for x in _tensors(model)) else None


def _tensors(model: nn.Module) -> Iterator[Tensor]:
    yield from model.parameters()
    yield from model.buffers()


def _on_gpu(layer: nn.Module) -> bool:
    return next(_tensors(layer)).is_cuda


def _w4a16(layer: W4A16Linear, dtype: torch.dtype) -> cleave.GemmPlan:
    x = experts.beside_packed(layer, dtype)
    options = {"activation": layer.activation, "static_b": layer.static_weights}
    return cleave.plan_mixed_gemm(x, layer.weights(), bias=layer.bias, **options)


def _w4a8(layer: W4A8Linear, dtype: torch.dtype) -> tuple[cleave.GemmPlan, ...]:
    x = tokens(layer.packed, layer.in_features, dtype)
    q, scale = in_8_bits(x, layer.activation_dtype), scales_of(x, "row")
    return cleave.plan_quantize(x, q.dtype), cleave.plan_mixed_gemm(
        q,
        layer.weights(),
        scale_a=scale,
        bias=layer.bias,
        out_dtype=dtype,
        activation=layer.activation,
        static_b=layer.static_weights,
    )


def _w8a8(layer: W8A8Linear, first: int, last: int, dtype: torch.dtype) -> Iterator[Product]:
    x = tokens(layer.weight, layer.in_features, dtype)
    scale, granularity = layer.activation_scale, layer.activation_granularity
    if scale is None:
        scale = scales_of(x, granularity)
        yield cleave.plan_quantize(x, layer.weight.dtype, granularity, smooth=layer.smooth), first, last
    else:
        yield cleave.plan_quantize(x, layer.weight.dtype, "tensor", scale=scale, smooth=layer.smooth), first, last
    plan = cleave.plan_scaled_gemm(
        in_8_bits(x, layer.weight.dtype),
        layer.weight.t(),
        scale,
        layer.weight_scale.t(),
        bias=layer.bias,
        out_dtype=dtype,
        use_fast_accum=layer.use_fast_accum,
        activation=layer.activation if isinstance(layer, W8A8SwiGLU) else "none",
        static_b=layer.static_weights,
    )
    yield plan, first, last


def _normed(layer: RMSNormQuantize, first: int, last: int, dtype: torch.dtype) -> Iterator[Product]:
    x = tokens(layer.weight, layer.hidden_size, dtype)
    norm = cleave.rms_norm(layer.weight, layer.eps, zero_centered=layer.zero_centered)
    scale = layer.activation_scale
    granularity = layer.granularity if scale is None else "tensor"
    for residual in (None, x):
        plan = cleave.plan_quantize(x, layer.dtype, granularity, scale=scale, norm=norm, residual=residual)
        yield plan, first, last
