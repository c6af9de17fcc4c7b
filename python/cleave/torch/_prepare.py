"""The products of a model's layers, for `cleave.prepare`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn

import cleave

from . import _dealt
from ._packed_layer import HALVES, PackedLayer
from ._scales import scale_shape
from .fused import W8A8SwiGLU
from .grouped_linear import GroupedLinear
from .linear import W8A8Linear
from .mixed_experts import W4A16Experts
from .mixed_linear import W4A16Linear
from .moe import MoE
from .norm import RMSNormQuantize

# A plan, and the fewest and the most rows.
Product = tuple[Any, int, int]

_LAYERS = (W8A8Linear, W4A16Linear, W4A16Experts, RMSNormQuantize, GroupedLinear, MoE)

_ops = torch.ops.cleave

# Tokens of the examples that plans are made from: more than one, whose stride means something.
_EXAMPLE = 16

# Experts of a token, where no config of the model says.
_CHOICES = 8


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
            if layer.gate_up.recipe is None:
                yield from _moe(layer, first, last)
        elif isinstance(layer, GroupedLinear):
            if layer.recipe is None:
                yield _grouped(layer, first, last)
        elif isinstance(layer, W4A16Linear):
            yield cleave.plan_mixed_gemm(_beside(layer, dtype), layer.weights(), bias=layer.bias), first, last
        elif isinstance(layer, W4A16Experts):
            yield from _w4a16_experts(layer, first, last, dtype, _choices(model, layer.num_experts))
        elif isinstance(layer, RMSNormQuantize):
            yield from _normed(layer, first, last, dtype)
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


def _w8a8(layer: W8A8Linear, first: int, last: int, dtype: torch.dtype) -> Iterator[Product]:
    x = layer.weight.new_empty((_EXAMPLE, layer.in_features), dtype=dtype)
    q, scale = torch.empty_like(x, dtype=layer.weight.dtype), layer.activation_scale
    if scale is None:
        granularity = layer.activation_granularity
        scale = layer.weight_scale.new_empty(scale_shape(granularity, _EXAMPLE, layer.in_features)).view(_EXAMPLE, -1)
        yield cleave.plan_quantize(x, layer.weight.dtype, granularity, smooth=layer.smooth), first, last
    else:
        yield cleave.plan_quantize(x, layer.weight.dtype, "tensor", scale=scale, smooth=layer.smooth), first, last
    plan = cleave.plan_scaled_gemm(
        q,
        layer.weight.t(),
        scale,
        layer.weight_scale.t(),
        bias=layer.bias,
        out_dtype=dtype,
        use_fast_accum=layer.use_fast_accum,
        activation=layer.activation if isinstance(layer, W8A8SwiGLU) else "none",
    )
    yield plan, first, last


def _normed(layer: RMSNormQuantize, first: int, last: int, dtype: torch.dtype) -> Iterator[Product]:
    x = layer.weight.new_empty((_EXAMPLE, layer.hidden_size), dtype=dtype)
    norm = cleave.rms_norm(layer.weight, layer.eps, zero_centered=layer.zero_centered)
    scale = layer.activation_scale
    granularity = layer.granularity if scale is None else "tensor"
    for residual in (None, x):
        plan = cleave.plan_quantize(x, layer.dtype, granularity, scale=scale, norm=norm, residual=residual)
        yield plan, first, last


def _grouped(layer: GroupedLinear, first: int, last: int, activation: str = "none") -> Product:
    weight = _dealt.own(layer.weight.detach())
    x = weight.new_empty((_EXAMPLE, layer.in_features))
    offs = torch.zeros(weight.shape[0], dtype=torch.int32, device=x.device)
    plan = cleave.plan_grouped_gemm(x, weight.mT, offs, bias=_dealt.own(layer.bias), activation=activation)
    return plan, first, last


def _beside(layer: PackedLayer, dtype: torch.dtype) -> Tensor:
    """Activations, of the dtype that the layer multiplies."""
    own = layer.scales.dtype
    return layer.packed.new_empty((_EXAMPLE, layer.in_features), dtype=own if own in HALVES else dtype)


def _choices(model: nn.Module, experts: int) -> int:
    config = getattr(model, "config", None)
    config = getattr(config, "text_config", config)
    return getattr(config, "num_experts_per_tok", None) or min(_CHOICES, experts)


def _w4a16_experts(layer: W4A16Experts, first: int, last: int, dtype: torch.dtype, choices: int) -> Iterator[Product]:
    for part in (layer.gate_up, layer.down):
        rows = _beside(part, dtype)
        offs = torch.zeros(layer.num_experts, dtype=torch.int32, device=rows.device)
        yield cleave.plan_mixed_gemm(rows, part.weights(), offs=offs, bias=part.bias), first, last * choices
    # What sorts tokens, and brings them back, is of few forms: by calls.
    x = _beside(layer.gate_up, dtype).zero_()
    for ids_dtype in (torch.int32, torch.int64):
        for tokens in (_EXAMPLE, last):
            _ops.moe_sort_tokens(x.new_zeros((tokens, choices), dtype=ids_dtype), layer.num_experts)
        for weights_dtype in {torch.float32, x.dtype}:
            ids = x.new_zeros((_EXAMPLE, choices), dtype=ids_dtype)
            layer(x, ids, x.new_zeros(ids.shape, dtype=weights_dtype))


def _moe(layer: MoE, first: int, last: int) -> Iterator[Product]:
    weight = layer.router.weight.detach()
    x = weight.new_zeros((_EXAMPLE, weight.shape[1]))
    yield cleave.plan_gemm(x, weight.t(), out_dtype=torch.float32), first, last
    ranks = layer.dispatcher.ranks
    rows = (first * layer.top_k if ranks == 1 else 1), last * layer.top_k * ranks
    yield _grouped(layer.gate_up, *rows, activation="swiglu")
    yield _grouped(layer.down, *rows)
    if ranks == 1:
        layer(x)
    else:  # others may not be calling
        layer.route(x)
    # Few choices are counted and sorted by one kernel, many by two.
    _ops.moe_sort_tokens(torch.zeros((last, layer.top_k), dtype=torch.int32, device=x.device), layer.num_experts)
