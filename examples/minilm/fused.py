"""A Product of W8A8Linear layers that leaves residual and gelu to the kernel that multiplies."""

from __future__ import annotations

import torch
from torch import Tensor

from cleave.torch import W8A8Linear


def fused(linear: W8A8Linear, x: Tensor, *, gelu: bool = False, residual: Tensor | None = None) -> Tensor:
    """Two launches: one quantises x, the other multiplies and has the rest in its epilogue."""
    q, scale = torch.ops.cleave.quantize(x.flatten(0, -2), linear.weight.dtype, "row")
    y = torch.ops.cleave.scaled_gemm.full(
        q,
        linear.weight.t(),
        scale,
        linear.weight_scale,
        linear.bias,
        c=None if residual is None else residual.flatten(0, -2),
        activation="gelu" if gelu else "none",
        out_dtype=x.dtype,
    )
    return y.unflatten(0, x.shape[:-1])
