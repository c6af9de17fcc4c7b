"""Tensors that are dealt to ranks, and their gradients."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def own(x: Tensor | None) -> Tensor | None:
    """A rank's part of a DTensor; another tensor as it is. torch.distributed.tensor takes long to import, so that
    nothing asks for its class."""
    return x.to_local() if is_dealt(x) else x


def is_dealt(x: Tensor | None) -> bool:
    return hasattr(type(x), "to_local")


def map_own(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """The DTensor of what the function, which keeps shapes, makes of a rank's part."""
    options = {"run_check": False, "shape": x.shape, "stride": x.stride()}
    return type(x).from_local(function(x.to_local()), x.device_mesh, x.placements, **options)


def like(part: Tensor, whole: Tensor) -> Tensor:
    """A gradient of a rank's part of `whole`: a DTensor if that is one."""
    if not is_dealt(whole):
        return part
    options = {"run_check": False, "shape": whole.shape, "stride": whole.stride()}
    return type(whole).from_local(part, whole.device_mesh, whole.placements, **options)


def shaped(made: Tensor, *shape: int) -> Tensor:
    """A layer's result that nobody else has, of another shape, and no view: FSDP gathers a layer's weights for backward
    when it sees the gradient of its output, which in-place operations on a view would hide from it."""
    return torch.ops.aten._unsafe_view.default(made, shape)


def gradient_dtype(weight: Tensor) -> torch.dtype:
    """What a weight's owner asks for by weight.grad_dtype, where torch has that, or the weight's own."""
    if torch.compiler.is_compiling():  # which does not see it
        return weight.dtype
    return (weight.is_leaf and getattr(weight, "grad_dtype", None)) or weight.dtype
