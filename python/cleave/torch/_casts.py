"""Modules that are cast, with elements and scales whose types are theirs to keep."""

from __future__ import annotations

from collections.abc import Callable, Container

import torch
from torch import Tensor


def moves_only(
    fn: Callable[[Tensor], Tensor], *cast: Tensor | None, dtypes: Container[torch.dtype] | None = None
) -> Callable[[Tensor], Tensor]:
    """`fn` of nn.Module._apply, which leaves the types of all tensors but `cast` as they are; with `dtypes` also theirs
    where it has another one in mind."""

    def move(tensor: Tensor) -> Tensor:
        moved = fn(tensor)
        follows = any(tensor is each for each in cast) and (dtypes is None or moved.dtype in dtypes)
        return moved if follows or moved.dtype == tensor.dtype else tensor.to(moved.device)

    return move
