"""gpt-oss's experts in MXFP4, by the names of its files' tensors, and what they stand for, in plain NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

CONFIG: dict[str, Any] = {
    "quant_method": "mxfp4",
    "modules_to_not_convert": [
        "model.layers.*.self_attn",
        "model.layers.*.mlp.router",
        "model.embed_tokens",
        "lm_head",
    ],
}

_MAGNITUDES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def blocks_of(weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Blocks uint8 [E, N, K / 32, 16], scales uint8 [E, N, K / 32] and values [E, N, K], of a weight of that shape."""
    w = weight.double().numpy()
    groups = w.reshape(*w.shape[:-1], -1, 32)
    exponents = np.floor(np.log2(np.maximum(abs(groups).max(-1), 1e-30))) - 2
    steps = 2.0 ** exponents[..., None]
    codes = abs(abs(groups / steps)[..., None] - _MAGNITUDES).argmin(-1) + 8 * (groups < 0)
    values = np.concatenate([_MAGNITUDES, -_MAGNITUDES])[codes] * steps
    blocks = torch.from_numpy((codes[..., 0::2] | codes[..., 1::2] << 4).astype(np.uint8))
    return blocks, torch.from_numpy((exponents + 127).astype(np.uint8)), torch.from_numpy(values.reshape(w.shape))


def checkpoint(tensors: Mapping[str, Tensor], quantized: Callable[[str], bool] = lambda _: True) -> dict[str, Tensor]:
    """As gpt-oss's files have them: of a model's tensors, those of the experts' weights, [E, K, N], that `quantized`
    says, in MXFP4."""
    files = dict(tensors)
    for name, tensor in tensors.items():
        if name.endswith(("experts.gate_up_proj", "experts.down_proj")) and quantized(name):
            del files[name]
            files[f"{name}_blocks"], files[f"{name}_scales"], _ = blocks_of(tensor.mT.contiguous())
    return files
