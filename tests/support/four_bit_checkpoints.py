"""Checkpoints in 4 bits by the names of their formats, and what their codes stand for, in plain NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor


class Format(NamedTuple):
    """config: as config.json has it. group: columns that share a scale, None for all. act_order: columns belong to
    groups in any order. write: the tensors of a layer, by what follows the layer's name. nvfp4: codes are e2m1."""

    config: dict[str, Any]
    group: int | None
    zeros: bool
    act_order: bool
    write: Callable[[Any], dict[str, Tensor]]
    nvfp4: bool = False


class Quantized(NamedTuple):
    """codes: [N, K]. scales: [N, groups], float16. zeros: [N, groups]. g_idx: [K]."""

    codes: np.ndarray
    scales: np.ndarray
    zeros: np.ndarray
    g_idx: np.ndarray

    def values(self) -> np.ndarray:
        zeros, scales = self.zeros[:, self.g_idx], self.scales.astype(np.float64)[:, self.g_idx]
        return (self.codes.astype(np.float64) - zeros) * scales


def quantize(weight: Tensor, made: Format, seed: int) -> Quantized:
    w = weight.double().numpy()
    rows, columns = w.shape
    g_idx = np.arange(columns) // (made.group or columns)
    if made.act_order:
        g_idx = np.random.default_rng(seed).permutation(g_idx)
    groups = g_idx.max() + 1
    scales, zeros = np.zeros((rows, groups), np.float16), np.full((rows, groups), 8)
    for group in range(groups):
        part = w[:, g_idx == group]
        if made.zeros:
            low, high = np.minimum(part.min(1), 0), np.maximum(part.max(1), 0)
            scales[:, group] = np.maximum((high - low) / 15, 1e-4)
            zeros[:, group] = np.clip(np.round(-low / scales[:, group]), 1, 15)  # GPTQ cannot say 0
        else:
            scales[:, group] = np.maximum(abs(part).max(1) / 7, 1e-4)
    codes = np.round(w / scales.astype(np.float64)[:, g_idx]) + zeros[:, g_idx]
    return Quantized(np.clip(codes, 0, 15).astype(np.uint32), scales, zeros, g_idx)


class QuantizedNvfp4(NamedTuple):
    """codes: [N, K], of e2m1. scales: [N, K / 16], e4m3. global_scale: what values are multiplied by besides."""

    codes: np.ndarray
    scales: Tensor
    global_scale: float

    def values(self) -> np.ndarray:
        magnitudes = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
        e2m1 = np.concatenate([magnitudes, -magnitudes])
        return e2m1[self.codes] * self.scales.double().numpy().repeat(16, 1) * self.global_scale


def quantize_nvfp4(weight: Tensor) -> QuantizedNvfp4:
    w = weight.double().numpy()
    rows, columns = w.shape
    # A power of two, whose inverse is as exact.
    global_scale = 2.0 ** np.ceil(np.log2(abs(w).max() / 2688))
    groups = w.reshape(rows, columns // 16, 16)
    scales = torch.from_numpy(abs(groups).max(2) / 6 / global_scale).to(torch.float8_e4m3fn)
    steps = np.maximum(scales.double().numpy() * global_scale, 1e-9)
    magnitudes = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    nearest = abs(abs(groups / steps[:, :, None])[..., None] - magnitudes).argmin(-1) + 8 * (groups < 0)
    return QuantizedNvfp4(nearest.reshape(rows, columns), scales, global_scale)


def bytes_of(codes: np.ndarray) -> Tensor:
    """Two neighbours of a row in a byte, the first one in its lower half."""
    return torch.from_numpy((codes[:, 0::2] | codes[:, 1::2] << 4).astype(np.uint8))


def compressed_nvfp4(q: QuantizedNvfp4) -> dict[str, Tensor]:
    divisor = torch.tensor([1 / q.global_scale], dtype=torch.float32)
    return {"weight_packed": bytes_of(q.codes), "weight_scale": q.scales, "weight_global_scale": divisor}


def modelopt_nvfp4(q: QuantizedNvfp4) -> dict[str, Tensor]:
    factor = torch.tensor(q.global_scale, dtype=torch.float32)
    return {"weight": bytes_of(q.codes), "weight_scale": q.scales, "weight_scale_2": factor}


def words(codes: np.ndarray, order: tuple[int, ...] = tuple(range(8))) -> Tensor:
    """Eight neighbours of the last dimension in 32 bits: from the lowest on those of these numbers."""
    eights = codes.astype(np.uint32).reshape(*codes.shape[:-1], -1, 8)
    word = np.zeros(eights.shape[:-1], np.uint32)
    for place, number in enumerate(order):
        word |= eights[..., number] << np.uint32(4 * place)
    return torch.from_numpy(word.view(np.int32).copy())


def compressed(q: Quantized, zeros: bool, act_order: bool) -> dict[str, Tensor]:
    rows, columns = q.codes.shape
    padded = np.zeros((rows, -(-columns // 8) * 8), np.uint32)
    padded[:, :columns] = q.codes
    tensors = {
        "weight_packed": words(padded),
        "weight_scale": torch.from_numpy(q.scales),
        "weight_shape": torch.tensor([rows, columns]),
    }
    if zeros:
        tensors["weight_zero_point"] = words(q.zeros.T).T.contiguous()
    if act_order:
        tensors["weight_g_idx"] = torch.from_numpy(q.g_idx.astype(np.int32))
    return tensors


def awq(q: Quantized) -> dict[str, Tensor]:
    order = (0, 2, 4, 6, 1, 3, 5, 7)
    return {
        "qweight": words(q.codes.T, order),
        "qzeros": words(q.zeros.T, order),
        "scales": torch.from_numpy(q.scales.T.copy()),
    }


def gptq(q: Quantized, less: int) -> dict[str, Tensor]:
    return {
        "qweight": words(q.codes).T.contiguous(),
        "qzeros": words(q.zeros.T - less),
        "scales": torch.from_numpy(q.scales.T.copy()),
        "g_idx": torch.from_numpy(q.g_idx.astype(np.int32)),
    }


def compressed_format(strategy: str, group: int | None, zeros: bool = False, actorder: str | None = None) -> Format:
    weights = {"num_bits": 4, "type": "int", "symmetric": not zeros, "strategy": strategy, "group_size": group}
    config = {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "weights": weights | {"actorder": actorder, "dynamic": False},
                "input_activations": None,
            }
        },
        "ignore": ["lm_head"],
    }
    act_order = actorder == "group"
    return Format(config, group, zeros, act_order, lambda q: compressed(q, zeros, act_order))


def gptq_format(group: int, desc_act: bool, sym: bool, form: str) -> Format:
    config = {"quant_method": "gptq", "bits": 4, "group_size": group, "desc_act": desc_act, "sym": sym}
    less = 1 if form == "gptq" else 0
    config["checkpoint_format"] = form
    return Format(config, None if group == -1 else group, not sym, desc_act, lambda q: gptq(q, less))


NVFP4 = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}
NVFP4_A16 = {
    "quant_method": "compressed-tensors",
    "format": "nvfp4-pack-quantized",
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": NVFP4 | {"dynamic": False, "symmetric": True},
            "input_activations": None,
        }
    },
    "ignore": ["lm_head"],
}
MODELOPT = {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16, "ignore": ["lm_head"]}

AWQ = {"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm", "zero_point": True}

FORMATS = {
    "packed-group": compressed_format("group", 32),
    "packed-channel": compressed_format("channel", None),
    "packed-zeros": compressed_format("group", 32, zeros=True),
    "packed-actorder": compressed_format("group", 32, actorder="group"),
    "packed-actorder-zeros": compressed_format("group", 32, zeros=True, actorder="group"),
    "packed-actorder-weight": compressed_format("group", 32, actorder="weight"),
    "awq": Format(AWQ, 32, True, False, awq),
    "gptq": gptq_format(32, desc_act=False, sym=True, form="gptq"),
    "gptq-rows": gptq_format(-1, desc_act=False, sym=True, form="gptq"),
    "gptq-zeros": gptq_format(32, desc_act=False, sym=False, form="gptq"),
    "gptq-actorder": gptq_format(32, desc_act=True, sym=False, form="gptq"),
    "gptq-v2": gptq_format(32, desc_act=True, sym=False, form="gptq_v2"),
    "nvfp4": Format(NVFP4_A16, 16, False, False, compressed_nvfp4, nvfp4=True),
    "modelopt-nvfp4": Format(MODELOPT, 16, False, False, modelopt_nvfp4, nvfp4=True),
}


def checkpoint(
    tensors: Mapping[str, Tensor], made: Format, quantized: Callable[[str], bool]
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The weights of which `quantized` says so in 4 bits, as files have them; and the tensors that it stands for, in
    float32."""
    files, values = dict(tensors), dict(tensors)
    for seed, (name, weight) in enumerate(tensors.items()):
        if quantized(name):
            q = quantize_nvfp4(weight) if made.nvfp4 else quantize(weight, made, seed)
            del files[name]
            files |= {name.removesuffix("weight") + part: tensor for part, tensor in made.write(q).items()}
            values[name] = torch.from_numpy(q.values()).float()
    return files, values
