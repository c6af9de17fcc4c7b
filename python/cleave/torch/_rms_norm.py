"""Telling RMS norms by what they do: LayerNorm and Gemma's norm have a weight and an eps, too."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


def has_weight_of_rows(module: nn.Module) -> bool:
    """As a norm has: a value for each column, and no bias."""
    weight = getattr(module, "weight", None)
    return isinstance(weight, Tensor) and weight.dim() == 1 and getattr(module, "bias", None) is None


def eps_of(norm: nn.Module) -> Any:
    eps = getattr(norm, "variance_epsilon", getattr(norm, "eps", None))
    # What torch.nn.RMSNorm adds if it has none, whatever the weight's dtype.
    return torch.finfo(torch.float32).eps if eps is None else eps


@torch.no_grad()
def centrings(norm: nn.Module) -> tuple[bool, ...] | None:
    """For which `zero_centered` rows of large and small elements become what an RMS norm makes of them: none of them
    where it is another norm, both where adding 1 to the weight rounds to nothing. None where it could not be called."""
    weight = norm.weight
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(3, weight.numel(), generator=generator) + 0.5
    x = (x * torch.tensor([[1.0], [30.0], [2e-3]])).to(weight)
    if x.is_meta:
        return None
    try:
        y = norm(x).double()
    except Exception:  # of any module, called as no norm
        return None
    normal = x.double() * (x.double().square().mean(-1, keepdim=True) + eps_of(norm)).rsqrt()
    tolerance = 4 * torch.finfo(weight.dtype).eps
    expected = {centred: normal * (weight.double() + centred) for centred in (False, True)}
    return tuple(
        centred
        for centred, rows in expected.items()
        if y.shape == x.shape and torch.allclose(y, rows, rtol=tolerance, atol=1e-30)
    )


def check(norm: nn.Module, zero_centered: bool) -> None:
    """Refuses what is no RMS norm with a weight, and one whose weight is kept less 1, which nobody has said."""
    name = type(norm).__name__
    if getattr(norm, "weight", None) is None:
        raise ValueError(f"norm is {name}, which has no weight; use RMSNormQuantize(size, eps)")
    if not has_weight_of_rows(norm):
        raise ValueError(f"norm is {name}, which is no RMS norm of rows: it has a bias, or a weight of more dimensions")
    found = centrings(norm)
    if found == () or isinstance(norm, nn.LayerNorm):
        raise ValueError(f"norm is {name}, which makes of rows what no RMS norm with a weight makes; leave it as it is")
    if found == (True,) and not zero_centered:
        raise ValueError(f"norm is {name}, which adds 1 to its weight; pass zero_centered=True")
