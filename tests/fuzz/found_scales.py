"""D in 8 bits with scales that the product finds, one for each row of 128 columns."""

from __future__ import annotations

import random
from typing import Any

import torch

from tests.support.gemm_reference import RANGE

from .bound import Expected, Sums
from .problem import FLOAT8

QUANTIZED = ("int8", *FLOAT8)
FORMS = ("k", "mn", "given")
_BLOCK = 128
_LEAST = 2.0**-126  # of a scale: below it, a group counts as zeros


def draw_found_scales(config: random.Random) -> dict[str, Any]:
    """What a product that finds scales has: D is of 8 bits (and row-major)."""
    return {
        "out_dtype": config.choice(QUANTIZED),
        "found_scales": config.choice(FORMS),
        "ue8m0": config.random() < 0.4,
    }


def scales_shape(d: tuple[int, ...]) -> tuple[int, ...]:
    return (*d[:-1], -(-d[-1] // _BLOCK))


def quantized(sums: Sums, dtype: str, ue8m0: bool) -> tuple[Sums, Expected]:
    """What D stores of `sums`, before it is rounded to `dtype`, and its scales.

    Where sums are exact, scales and quotients are those of float32, bit by bit. Elsewhere a scale lies between those of
    the least and the most that its 128 columns may reach, and a quotient between the sums' by these.
    """
    limit = RANGE[dtype][1]
    columns = sums.value.shape[-1]
    if sums.bound is None:
        value = sums.value.float()
        # By a tensor: on a GPU torch divides by a number as by its reciprocal, rounded before.
        scale = _rounded_up(_reach(value.abs()) / torch.full_like(value[..., :1], limit), ue8m0)
        scale = torch.where(scale < _LEAST, 0, scale)
        inverse = torch.where(scale > 0, 1 / scale, 0)
        return Sums((value * _spread(inverse, columns)).double()), Expected(scale.double())
    magnitude, rounding = sums.value.abs(), 2.0**-22
    high = _rounded_up(_reach(magnitude + sums.bound) * (1 + rounding) / limit, ue8m0)
    low = _rounded_up(_reach((magnitude - sums.bound).clamp_min(0)) * (1 - rounding) / limit, ue8m0)
    scale = Expected((high + low) / 2, (high - low) / 2 + _LEAST)
    most, least = (torch.where(x < 2 * _LEAST, 0, 1 / x) for x in (_spread(low, columns), _spread(high, columns)))
    value = sums.value * (most + least) / 2
    bound = magnitude * (most - least) / 2 + sums.bound * most + rounding * magnitude * most
    # Anything, where the scale may be as small as nothing.
    return Sums(value, torch.where(most > 0, bound, 2 * limit), value.abs()), scale


def _reach(magnitude: torch.Tensor) -> torch.Tensor:
    """The largest of each 128 columns."""
    *lead, columns = magnitude.shape
    padded = torch.nn.functional.pad(magnitude, (0, -columns % _BLOCK))
    return padded.view(*lead, padded.shape[-1] // _BLOCK, _BLOCK).amax(-1)


def _rounded_up(scale: torch.Tensor, ue8m0: bool) -> torch.Tensor:
    """To a power of two, where scales are such."""
    if not ue8m0:
        return scale
    mantissa, exponent = torch.frexp(scale)
    power = torch.ldexp(torch.ones_like(scale), exponent - (mantissa == 0.5).int())
    return torch.where(scale > 0, power, 0)


def _spread(scale: torch.Tensor, columns: int) -> torch.Tensor:
    return scale.repeat_interleave(_BLOCK, -1)[..., :columns]
