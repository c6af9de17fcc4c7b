"""How float32 is multiplied by what follows torch: as its own switch says, or as asked here."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from . import _core

_PRECISIONS = _core.choices["precision"]
_asked: str | None = None


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


@contextmanager
def float32_precision(precision: str | None) -> Iterator[None]:
    """float32 products and convolutions of torch.ops.cleave, of the layers of cleave.torch and of
    cleave.compat.torch are made with this precision of `cleave.gemm`, forward and backward, whatever
    torch's switch says.

        with cleave.torch.float32_precision("bf16x3"):
            loss = model(x).sum()
            loss.backward()

    It is read when a product is made, also under torch.compile; CUDA graphs keep what they were
    captured with. Process-wide; may be nested.

    Args:
        precision: "tf32", "ieee", "tf32x3" or "bf16x3" (docs/precision.md); None for a stretch within
            that follows torch.
    """
    global _asked
    if precision is not None and precision not in _PRECISIONS:
        raise ValueError(f'precision is "{precision}"; it must be one of {", ".join(_PRECISIONS)}, or None')
    before, _asked = _asked, precision
    try:
        yield
    finally:
        _asked = before


def precision(convolution: bool = False) -> str:
    """What products, or convolutions, of float32 are to be made with at this moment."""
    if _asked is not None:
        return _asked
    return "tf32" if allows_tf32(convolution) else "ieee"


def _number(convolution: bool) -> int:
    return _PRECISIONS.index(precision(convolution))


_ask = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_bool)(_number)


def follow_torch(operators: Path) -> None:
    """Has the operators of that library ask at every call with float32 operands."""
    ctypes.CDLL(str(operators)).cleave_torch_follow_precision(_ask)
