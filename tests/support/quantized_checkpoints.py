"""Checkpoints in 8 bits by the names of their formats, and the arithmetic that the formats mean, in plain torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor

QMAX = {torch.int8: 127.0, torch.float8_e4m3fn: 448.0}
STATIC_SCALE = 0.05  # of all activations, where a format has one: what is larger saturates

# Elements of rows and columns that share a scale; None: all of them.
Tile = tuple[int | None, int | None]


class Format(NamedTuple):
    """config: as config.json has it. weights, activations: what shares a scale. names: of the scales."""

    config: dict[str, Any]
    dtype: torch.dtype
    weights: Tile
    activations: Tile
    static: bool = False
    names: tuple[str, str] = ("weight_scale", "input_scale")


def _compressed(weights: dict[str, Any], activations: dict[str, Any], kind: str) -> dict[str, Any]:
    common = {"num_bits": 8, "type": kind, "symmetric": True}
    group = {
        "targets": ["Linear"],
        "weights": common | {"dynamic": False} | weights,
        "input_activations": common | {"dynamic": True} | activations,
    }
    return {
        "quant_method": "compressed-tensors",
        "format": f"{kind}-quantized",
        "config_groups": {"group_0": group},
        "ignore": ["lm_head"],
    }


_CHANNEL, _TOKEN = {"strategy": "channel"}, {"strategy": "token"}
_TENSOR, _STATIC = {"strategy": "tensor"}, {"strategy": "tensor", "dynamic": False}
_GROUP, _BLOCK = {"strategy": "group", "group_size": 128}, {"strategy": "block", "block_structure": [128, 128]}
_FP8 = torch.float8_e4m3fn

FORMATS = {
    "int8-channel-token": Format(_compressed(_CHANNEL, _TOKEN, "int"), torch.int8, (1, None), (1, None)),
    "int8-channel-static": Format(_compressed(_CHANNEL, _STATIC, "int"), torch.int8, (1, None), (None, None), True),
    "fp8-channel-token": Format(_compressed(_CHANNEL, _TOKEN, "float"), _FP8, (1, None), (1, None)),
    "fp8-tensor-static": Format(_compressed(_TENSOR, _STATIC, "float"), _FP8, (None, None), (None, None), True),
    "fp8-group": Format(_compressed(_GROUP, _GROUP, "float"), _FP8, (1, 128), (1, 128)),
    "fp8-block": Format(_compressed(_BLOCK, _GROUP, "float"), _FP8, (128, 128), (1, 128)),
    "deepseek": Format(
        {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3", "weight_block_size": [128, 128]},
        _FP8,
        (128, 128),
        (1, 128),
        names=("weight_scale_inv", ""),
    ),
    "fp8-static": Format(
        {"quant_method": "fp8", "activation_scheme": "static"}, _FP8, (None, None), (None, None), True
    ),
    "modelopt": Format({"quant_method": "modelopt", "quant_algo": "FP8"}, _FP8, (None, None), (None, None), True),
}
DYNAMIC = [name for name, made in FORMATS.items() if not made.static]


def quantize(x: Tensor, dtype: torch.dtype, tile: Tile) -> tuple[Tensor, Tensor]:
    """x [rows, cols] in tiles: (elements, scales), x ~ elements * expand(scales)."""
    rows, cols = (size or whole for size, whole in zip(tile, x.shape, strict=True))
    scale = torch.stack([part.abs().amax() for strip in x.split(rows) for part in strip.split(cols, 1)])
    scale = scale.view(-(-x.shape[0] // rows), -(-x.shape[1] // cols)) / QMAX[dtype]
    return quantize_with(x, expand(scale, x.shape, tile), dtype), scale


def quantize_with(x: Tensor, scale: Tensor | float, dtype: torch.dtype) -> Tensor:
    q = (x / scale).nan_to_num(0).clamp(-QMAX[dtype], QMAX[dtype])
    return q.round().to(dtype) if dtype == torch.int8 else q.to(dtype)


def expand(scale: Tensor, shape: tuple[int, ...], tile: Tile) -> Tensor:
    """A scale for each element."""
    rows, cols = (size or whole for size, whole in zip(tile, shape, strict=True))
    return scale.repeat_interleave(rows, 0)[: shape[0]].repeat_interleave(cols, 1)[:, : shape[1]]


def checkpoint(tensors: Mapping[str, Tensor], made: Format, quantized: Callable[[str], bool]) -> dict[str, Tensor]:
    """The weights of which `quantized` says so in 8 bits; the scales are those that files have, a few bits of them."""
    result = dict(tensors)
    for name, weight in tensors.items():
        if not quantized(name):
            continue
        _, scale = quantize(weight.float(), made.dtype, made.weights)
        scale = scale.bfloat16() if made.config["quant_method"] == "compressed-tensors" else scale
        result[name] = quantize_with(weight.float(), expand(scale.float(), weight.shape, made.weights), made.dtype)
        layer = name.removesuffix("weight")
        result[layer + made.names[0]] = scale.view(1) if made.weights == (None, None) else scale
        if made.static:
            result[layer + made.names[1]] = torch.tensor([STATIC_SCALE])
    return result


def dequantized(tensors: Mapping[str, Tensor], made: Format) -> dict[str, Tensor]:
    """The checkpoint's values, without the scales."""
    result = {name: tensor for name, tensor in tensors.items() if not name.endswith(("scale", "scale_inv"))}
    for name, weight in result.items():
        if weight.dtype == made.dtype:
            scale = tensors[name.removesuffix("weight") + made.names[0]].float()
            scale = scale.view(1, 1) if scale.numel() == 1 else scale
            result[name] = weight.float() * expand(scale, weight.shape, made.weights)
    return result


@contextmanager
def activations_in_8_bits(weights: list[Tensor], made: Format) -> Iterator[None]:
    """Inside, torch's linear rounds what it multiplies those weights by to the format's 8 bits."""
    plain = torch.nn.functional.linear
    storages = {weight.untyped_storage().data_ptr() for weight in weights}

    def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        if weight.untyped_storage().data_ptr() in storages:
            rows = x.reshape(-1, x.shape[-1]).float()
            if made.static:
                x = (quantize_with(rows, STATIC_SCALE, made.dtype).float() * STATIC_SCALE).view(x.shape)
            else:
                q, scale = quantize(rows, made.dtype, made.activations)
                x = (q.float() * expand(scale, rows.shape, made.activations)).view(x.shape)
        return plain(x, weight, bias)

    torch.nn.functional.linear = linear
    try:
        yield
    finally:
        torch.nn.functional.linear = plain
