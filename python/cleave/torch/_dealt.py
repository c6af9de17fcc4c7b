"""Tensors that are dealt to ranks."""

from __future__ import annotations

from collections.abc import Callable

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
