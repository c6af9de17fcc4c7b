"""torch's own switch for float32: whether its GPU products and convolutions may round to TF32."""

from __future__ import annotations

import ctypes
from pathlib import Path

import torch


def _read_allow_tf32(_: str, op: str) -> str:
    """The setting of torch before 2.9."""
    switch = torch.backends.cudnn if op == "conv" else torch.backends.cuda.matmul
    return "tf32" if switch.allow_tf32 else "ieee"


# What the public attributes call, in a seventh of their time.
_read = getattr(torch._C, "_get_fp32_precision_getter", _read_allow_tf32)


def allows_tf32(convolution: bool = False) -> bool:
    """What torch.backends.cuda.matmul.fp32_precision, or cudnn.conv's, says at this moment.

    However it was set: torch.set_float32_matmul_precision, allow_tf32 and fp32_precision of all
    backends end there.
    """
    return _read("cuda", "conv" if convolution else "matmul") == "tf32"


_ask = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_bool)(allows_tf32)


def follow_torch(operators: Path) -> None:
    """Has the operators of that library ask at every call with float32 operands."""
    ctypes.CDLL(str(operators)).cleave_torch_follow_precision(_ask)
