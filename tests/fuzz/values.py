"""What operands hold. This file goes into the scripts that show a failure, as it stands."""

from __future__ import annotations

from typing import Any

import torch


def values(shape: tuple[int, ...], dtype: torch.dtype, kind: str, limit: float, seed: int, device: Any) -> torch.Tensor:
    """integers: from -limit to limit. special: some of them NaN or infinite. powers: of two, the
    exponents from -limit to limit. normal: of standard deviation limit. wide: normal, times 2 to
    powers from -limit to limit. codes: bytes from 0 to limit; exponents: bytes from 127 - limit to 127."""
    drawn = {"generator": torch.Generator(device).manual_seed(seed), "device": device}
    if kind in ("codes", "exponents"):
        first = 0 if kind == "codes" else 127 - int(limit)
        return torch.randint(first, first + int(limit) + 1, shape, **drawn).to(torch.uint8).view(dtype)
    if kind in ("integers", "powers", "special"):
        whole = torch.randint(-int(limit), int(limit) + 1, shape, dtype=torch.float32, **drawn)
        if kind == "special":
            for value in (float("nan"), float("inf"), -float("inf")):
                whole = whole.masked_fill(torch.rand(shape, **drawn) < 1 / 512, value)
        return (whole.exp2() if kind == "powers" else whole).to(dtype)
    x = torch.randn(shape, **drawn)
    spread = (torch.rand(shape, **drawn) * (2 * limit) - limit).exp2() if kind == "wide" else limit
    x = x * spread
    if dtype.is_floating_point:
        return x.clamp(torch.finfo(dtype).min, torch.finfo(dtype).max).to(dtype)
    return x.round().clamp(torch.iinfo(dtype).min, torch.iinfo(dtype).max).to(dtype)


def only(x: torch.Tensor, dim: int, ranges: tuple[tuple[int, int], ...]) -> torch.Tensor:
    """With NaNs outside of the ranges, of integers 101."""
    poisoned = torch.full_like(x, float("nan") if x.dtype.is_floating_point else 101)
    for begin, end in ranges:
        poisoned.narrow(dim, begin, end - begin).copy_(x.narrow(dim, begin, end - begin))
    return poisoned


def buffer_of(
    length: int,
    offset: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    dtype: torch.dtype,
    guard: float,
    contents: torch.Tensor | None,
    device: Any,
) -> torch.Tensor:
    """One-dimensional and full of guards, but for `contents` at those strides from the offset.

    Without contents it has NaNs there, of integers -112.
    """
    buffer = torch.full((length,), guard, dtype=dtype, device=device)
    view = buffer.as_strided(shape, strides, offset)
    if contents is None:
        view.fill_(float("nan") if dtype.is_floating_point else -112)
    else:
        view.copy_(contents)
    return buffer
