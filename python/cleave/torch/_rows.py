"""What layers ask of their input before products see it."""

from __future__ import annotations

from typing import Any

from torch import Tensor


def check_features(x: Any, features: int, name: str = "in_features") -> None:
    """That x's rows have so many elements: products would name operands that the caller has not, and a shape that
    other rows fit into would have them read across each other's ends."""
    if not isinstance(x, Tensor):
        raise TypeError(f"x is a {type(x).__name__}; it must be a torch tensor: torch.as_tensor makes one")
    if x.shape[-1:] != (features,):
        raise ValueError(f"x is {tuple(x.shape)}; its last dimension must be {name}, {features}")


def as_rows(x: Tensor) -> Tensor:
    """A matrix as kernels read its rows: itself, or a copy where they are not contiguous or share memory (`expand`)."""
    return x if x.stride(1) == 1 and x.stride(0) >= x.shape[1] else x.contiguous()
