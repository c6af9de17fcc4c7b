"""Formats of 4 bits, as their `quantization_config` describes them."""

from __future__ import annotations

import re
from collections.abc import Callable

import torch
from torch import nn

from ..._weights.formats import INT4, MXFP4, NVFP4
from .config import Config, refusal
from .four_bits import FourBits

FourBitsOf = Callable[[str, nn.Module], FourBits]


def pack_quantized(name: str, weights: Config, activations: Config | None) -> FourBits:
    """Weights of 4 bits, eight of them in a word."""
    if (weights["num_bits"], weights["type"]) != (4, "int"):
        raise refusal(f"{name} has packed weights of {weights['num_bits']} bits, {weights['type']}; int of 4 is served")
    if weights["strategy"] not in ("tensor", "channel", "group"):
        raise refusal(f'{name} has weights by "{weights["strategy"]}"; tensor, channel and group are served')
    if weights["strategy"] == "tensor" and not weights.get("symmetric", True):
        raise refusal(f"{name} has one zero point for a whole weight; those of channels and groups are served")
    group = weights["group_size"] if weights["strategy"] == "group" else -1
    _check_group(name, group)
    # "weight" sorts columns before they are cut into groups, and back: no group is torn.
    act_order = weights.get("actorder") in (True, "group", "dynamic")
    return FourBits("compressed-tensors", group, act_order, activation_dtype=_activation_dtype(name, activations))


def _activation_dtype(name: str, activations: Config | None) -> torch.dtype | None:
    if activations is None:
        return None
    dtypes = {(8, "int"): torch.int8, (8, "float"): torch.float8_e4m3fn}
    dtype = dtypes.get((activations["num_bits"], activations["type"]))
    found = activations["strategy"] == "token" and bool(activations.get("dynamic"))
    if dtype is None or not found or not activations.get("symmetric", True):
        kind = "dynamic" if activations.get("dynamic") else "static"
        raise refusal(
            f"{name} has {kind} activations of {activations['num_bits']} bits, {activations['type']}, by "
            f'"{activations["strategy"]}"; beside 4 bits symmetric ones of 8 are served whose scales are found for '
            "each token, or those that stay as they are"
        )
    return dtype


def nvfp4_pack_quantized(name: str, weights: Config) -> FourBits:
    """Codes of e2m1, two a byte. Activations stay as they are, whatever input_activations says."""
    kind = weights["num_bits"], weights["type"], weights["strategy"], weights.get("group_size", NVFP4.usual_group)
    if kind != (4, "float", "tensor_group", NVFP4.usual_group):
        raise refusal(
            f'{name} has weights of {kind[0]} bits, {kind[1]}, by "{kind[2]}" of {kind[3]}, in format '
            f'"nvfp4-pack-quantized"; float of 4 by "tensor_group" of {NVFP4.usual_group} is served'
        )
    return FourBits("nvfp4-pack-quantized", NVFP4.usual_group, format="nvfp4")


def modelopt_nvfp4(config: Config) -> FourBitsOf:
    group = config.get("group_size", NVFP4.usual_group)
    if group != NVFP4.usual_group:
        raise refusal(f"NVFP4 has groups of {group}; {NVFP4.usual_group} are served")
    scheme = FourBits("modelopt", group, format="nvfp4")
    return lambda name, layer: scheme


def _check_group(name: str, group: int) -> None:
    if group != -1 and not INT4.serves(group):
        raise refusal(f"{name} has groups of {group}; 32, 64, multiples of 128 and whole rows are served, with 4 bits")


def _check_four(method: str, config: Config) -> None:
    bits = config.get("bits", config.get("w_bit"))
    if bits != 4:
        raise refusal(f'quant_method is "{method}" with {bits} bits; 4 are served')


def awq(config: Config) -> FourBitsOf:
    _check_four("awq", config)
    version = str(config.get("version", "gemm")).lower()
    if version != "gemm":
        raise refusal(f'version is "{version}"; AWQ\'s "gemm" is served')
    group = config.get("group_size", config.get("q_group_size", 128))
    _check_group("awq", group)
    scheme = FourBits("awq", group)
    return lambda name, layer: scheme


def gptq(config: Config) -> FourBitsOf:
    _check_four("gptq", config)
    form = config.get("checkpoint_format") or config.get("format") or "gptq"
    if form not in ("gptq", "gptq_v2"):
        raise refusal(f'checkpoint_format is "{form}"; "gptq" and "gptq_v2" are served')
    if config.get("dynamic"):
        raise refusal("dynamic gives some layers other settings; one for all is served")
    group = config.get("group_size", 128)
    _check_group("gptq", group)
    # With static groups columns are quantised in another order, but groups are neighbours.
    torn = config.get("desc_act", False) and not config.get("static_groups", False)
    scheme = FourBits("gptq", group, act_order=torn, zero_less=1 if form == "gptq" else 0)
    return lambda name, layer: scheme


def mxfp4(config: Config) -> FourBitsOf:
    """gpt-oss's: experts, all but those that modules_to_not_convert has."""
    scheme = FourBits("blocks", MXFP4.usual_group, format=MXFP4.name)
    patterns = config.get("modules_to_not_convert") or ()

    def scheme_of(name: str, layer: nn.Module) -> FourBits:
        if isinstance(layer, nn.Linear):
            raise refusal(f'quant_method is "mxfp4", but {name} is a linear layer; experts in blocks are served')
        for pattern in patterns:
            # A name to the end of one of its parts, as an expression, or its last letters.
            if re.match(rf"(?:{pattern})(\.|$)", name) or name.endswith(pattern):
                raise ValueError(
                    f'modules_to_not_convert has "{pattern}", but the checkpoint has blocks of {name}; take it out'
                )
        return scheme

    return scheme_of
