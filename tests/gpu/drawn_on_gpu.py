"""Drawn operations, with operands on the GPU."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import torch
from epilogue_operations import Draw

MODES = ("none", "serial", "parallel", "cluster", "stream_k")


def to_gpu(x: np.ndarray) -> torch.Tensor:
    """As it lies in memory."""
    if x.dtype.name.startswith("float8"):  # which torch does not take from NumPy
        return torch.from_numpy(x.view(np.uint8)).cuda().view(getattr(torch, x.dtype.name))
    return torch.from_numpy(x).cuda()


def in_half(x: np.ndarray) -> torch.Tensor:
    return to_gpu(x).half()


def drawn_operation(operation: Any, random: Random, seed: int, widest: int = 200, line: int = 8) -> Any:
    """Two of three seeds have operands as TMA wants them, as a rule: of `widest` at most, and of `line` at least."""
    aligned = seed % 3 != 2
    sizes, channels = ((line, 64, widest), (line, 2 * line, 64)) if aligned else ((1, 7, 33, 130), (1, 3, 6, 8))
    return operation(Draw(random, np.random.default_rng(seed), sizes, channels, in_half, to_gpu, whole=True))
