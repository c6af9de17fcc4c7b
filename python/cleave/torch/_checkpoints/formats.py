"""How a checkpoint's layers are quantised, as its `quantization_config` says: a table of formats.

Names are those of the formats: compressed-tensors (LLM Compressor's), "fp8" (DeepSeek's and Qwen's blocks, and weights
with one scale), NVIDIA's ModelOpt, AWQ, GPTQ and "mxfp4" (gpt-oss's).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import nn

from .._scales import BLOCK
from .config import Config, refusal
from .four_bit_formats import awq, gptq, modelopt_nvfp4, mxfp4, nvfp4_pack_quantized, pack_quantized
from .four_bits import FourBits


class Scheme(NamedTuple):
    """dtype: of weight and activations. granularity: of the weight's scales. static: activations have one scale."""

    dtype: torch.dtype
    granularity: str
    static: bool


# A layer's scheme by its name and itself; ValueError for one that the format does not quantise.
SchemeOf = Callable[[str, nn.Module], Scheme | FourBits]


def read(config: Config) -> SchemeOf:
    """The schemes of a `quantization_config`; ValueError for a format that is not served, naming it."""
    method = str(config.get("quant_method", config.get("quant_algo") and "modelopt"))
    if method in _FORMATS:
        return _FORMATS[method](config)
    why = f"weights of {_BITS[method]}" if method in _BITS else "a format that is not known here"
    served = ", ".join(f'"{name}"' for name in _FORMATS)
    raise refusal(f'quant_method is "{method}": {why}; {served} are served')


# What else is common, and what keeps it from being served.
_BITS = {
    "auto-round": "4 bits",
    "bitsandbytes": "4 bits, or 8 without 8-bit activations",
    "nvfp4": "4 bits",
    "fbgemm_fp8": "8 bits, beside activations whose scales have an upper bound",
    "torchao": "tensor subclasses, which torchao itself loads",
}

_DTYPES = {"int": torch.int8, "float": torch.float8_e4m3fn}

# compressed-tensors' strategies of weights, and of activations, and whether the latter's scales are found in each
# call. A scale found for all tokens is served by one for each, which is finer.
_STRATEGIES = {
    ("tensor", "tensor", False): ("row", True),
    ("channel", "tensor", False): ("row", True),
    ("tensor", "tensor", True): ("row", False),
    ("tensor", "token", True): ("row", False),
    ("channel", "token", True): ("row", False),
    ("group", "group", True): ("block_1x128", False),
    ("block", "group", True): ("block_128x128", False),
}

_DENSE_FORMATS = ("int-quantized", "float-quantized", "naive-quantized", None)


def _compressed_tensors(config: Config) -> SchemeOf:
    groups = [
        (group["targets"], _scheme_of_group(name, group, group.get("format") or config.get("format")))
        for name, group in config["config_groups"].items()
    ]

    def scheme(name: str, layer: nn.Module) -> Scheme:
        classes = {kind.__name__ for kind in type(layer).__mro__}
        for targets, found in groups:
            if any(_matches(target, name) or target in classes for target in targets):
                return found
        raise refusal(f"no group of config_groups targets {name}, whose weight has scales")

    return scheme


def _matches(target: str, name: str) -> bool:
    return re.match(target[3:], name) is not None if target.startswith("re:") else target == name


def _scheme_of_group(name: str, group: Config, storage: str | None) -> Scheme | FourBits:
    weights, activations = group["weights"], group.get("input_activations")
    bits = weights["num_bits"]
    if storage == "pack-quantized":
        return pack_quantized(name, weights, activations)
    if storage == "nvfp4-pack-quantized":
        return nvfp4_pack_quantized(name, weights)
    if bits != 8:
        raise refusal(
            f"{name} has weights of {bits} bits; those of 8 are served, and of 4 in formats "
            '"pack-quantized" and "nvfp4-pack-quantized"'
        )
    if storage not in _DENSE_FORMATS:
        raise refusal(f'{name} has format "{storage}"; {", ".join(map(str, _DENSE_FORMATS[:-1]))} are served')
    if activations is None:
        raise refusal(f"{name} has weights of 8 bits alone; with input_activations of 8 bits they are served")
    if (activations["num_bits"], activations["type"]) != (8, weights["type"]):
        raise refusal(f"{name} has activations of {activations['num_bits']} bits, not the weights' 8 of their type")
    if not (weights.get("symmetric", True) and activations.get("symmetric", True)):
        raise refusal(f"{name} has zero points; symmetric quantisation is served")
    key = weights["strategy"], activations["strategy"], activations.get("dynamic", False)
    if key not in _STRATEGIES:
        raise refusal(
            f'{name} has weights by "{key[0]}" and {"dynamic" if key[2] else "static"} activations by "{key[1]}"; '
            "served are tensor and channel with tensor or token, and block and group with group, dynamic"
        )
    _check_block(f"{name}: block_structure", weights.get("block_structure") or [BLOCK, BLOCK])
    for part in (weights, activations):
        if part["strategy"] == "group":
            _check_block(f"{name}: group_size", [part["group_size"]])
    return Scheme(_DTYPES[weights["type"]], *_STRATEGIES[key])


def _fp8(config: Config) -> SchemeOf:
    """Blocks of 128 x 128, or one scale for a weight."""
    if config.get("expert_dtype", "fp8") != "fp8":
        raise refusal(f'expert_dtype is "{config["expert_dtype"]}": experts of 4 bits; those of 8 are served')
    block = config.get("weight_block_size")
    static = config.get("activation_scheme", "dynamic") == "static"
    if block is not None:
        _check_block("weight_block_size", block)
        if static:
            raise refusal('activation_scheme is "static", with weight_block_size; "dynamic" is served')
    scheme = Scheme(torch.float8_e4m3fn, "row" if block is None else "block_128x128", static)
    return lambda name, layer: scheme


def _modelopt(config: Config) -> SchemeOf:
    algorithm = config.get("quant_algo")
    if algorithm == "NVFP4":
        return modelopt_nvfp4(config)
    if algorithm != "FP8":
        raise refusal(f'quant_algo is "{algorithm}"; of ModelOpt\'s "FP8" and "NVFP4" are served')
    scheme = Scheme(torch.float8_e4m3fn, "row", static=True)
    return lambda name, layer: scheme


def _check_block(name: str, sizes: list[int]) -> None:
    if any(size != BLOCK for size in sizes):
        raise refusal(f"{name} is {list(sizes)}; blocks of {BLOCK} are served")


_FORMATS: dict[str, Callable[[Config], SchemeOf]] = {
    "compressed-tensors": _compressed_tensors,
    "fp8": _fp8,
    "modelopt": _modelopt,
    "awq": awq,
    "gptq": gptq,
    "mxfp4": mxfp4,
}
