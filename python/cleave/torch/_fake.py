"""What the operators return, without computing it: for torch.compile, meta tensors and export."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_BLOCK = 128  # elements that share a scale, along each dimension that has blocks


def register() -> None:
    results = {
        "gemm": _gemm,
        "scaled_gemm": _scaled_gemm,
        "scaled_gemm.full": _scaled_gemm,
        "quantize": _quantize,
        "quantize_asymmetric": _quantize_asymmetric,
        "quantize_static": _quantize_static,
    }
    for name, result in results.items():
        torch.library.register_fake(f"cleave::{name}", result)
    for name in dict.fromkeys(name.partition(".")[0] for name in results):
        torch.library.register_fake(f"cleave::{name}.out", _nothing)


def _nothing(*_: Any, **__: Any) -> None:
    """All that an `out` form does is write."""


def _gemm(a: Tensor, b: Tensor, *_: Any, out_dtype: torch.dtype | None = None, **__: Any) -> Tensor:
    default = torch.bfloat16 if a.itemsize == 1 else a.dtype
    return _product(a, b, out_dtype or (torch.int32 if a.dtype == torch.int8 else default))


def _scaled_gemm(
    a: Tensor,
    b: Tensor,
    scale_a: Tensor | None,
    scale_b: Tensor | None,
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    *_: Any,
    **__: Any,
) -> Tensor:
    if scale_a is None:
        return _gemm(a, b, out_dtype=out_dtype)
    return _product(a, b, out_dtype or torch.bfloat16)


def _product(a: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
    def refusal() -> str:
        return f"a is {tuple(a.shape)} and b is {tuple(b.shape)}; they cannot be multiplied"

    torch._check(a.dim() in (2, 3) and b.dim() in (2, 3), refusal)
    torch._check(a.shape[-1] == b.shape[-2], refusal)
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return a.new_empty((*batch, a.shape[-2], b.shape[-1]), dtype=dtype)


def _quantize(
    x: Tensor,
    dtype: torch.dtype,
    granularity: str = "row",
    smooth: Tensor | None = None,
    *,
    scale_major: str = "k",
) -> tuple[Tensor, Tensor]:
    rows, cols = _scale_shape(x, granularity)
    if scale_major == "mn":
        scale = x.new_empty((cols, rows), dtype=torch.float32).t()
    else:
        scale = x.new_empty((rows, cols), dtype=torch.float32)
    return _packed(x, dtype), scale


def _quantize_asymmetric(
    x: Tensor, granularity: str = "row", smooth: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    q, scale = _quantize(x, torch.int8, granularity)
    return q, scale, torch.empty_like(scale, dtype=torch.int32)


def _quantize_static(x: Tensor, scale: Tensor, dtype: torch.dtype, *_: Any, **__: Any) -> Tensor:
    return _packed(x, dtype)


def _packed(x: Tensor, dtype: torch.dtype) -> Tensor:
    torch._check(x.dim() == 2, lambda: f"x has {x.dim()} dimensions; it must have 2")
    return x.new_empty(x.shape, dtype=dtype)


def _scale_shape(x: Tensor, granularity: str) -> tuple[Any, Any]:
    rows, cols = x.shape
    if granularity == "tensor":
        return 1, 1
    if granularity == "row":
        return rows, 1
    blocks = (cols + _BLOCK - 1) // _BLOCK
    return (rows if granularity == "block_1x128" else (rows + _BLOCK - 1) // _BLOCK), blocks
