"""Modules that are cast, with elements and scales whose types are theirs to keep."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor


def moves_only(fn: Callable[[Tensor], Tensor], cast: Tensor | None = None) -> Callable[[Tensor], Tensor]:
    """`fn` of nn.Module._apply, which leaves the types of all tensors but `cast` as they are."""

    def move(tensor: Tensor) -> Tensor:
        moved = fn(tensor)
        if tensor is cast or moved.dtype == tensor.dtype:
            return moved
        return tensor.to(moved.device)

    return move
