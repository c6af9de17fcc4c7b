"""What packed weights stand for, by operations that torch.compile traces: for gradients of what they multiply."""

from __future__ import annotations

import torch
from torch import Tensor

from ..._weights.formats import E2M1, int4_values, scaled
from ..._weights.layout import codes_at, places_in_block

_PLACES = places_in_block()  # no tensor: a graph that is being traced takes none from outside


def dense(
    packed: Tensor, scales: Tensor, zeros: Tensor | None, global_scale: Tensor | None, format: str, columns: int
) -> Tensor:
    """[N, columns], or [E, N, columns] of E experts, in float32; not of weights that are packed as gates and ups."""
    if packed.dim() == 4:
        parts = (packed, scales, zeros, global_scale)
        each = zip(*([None] * len(packed) if x is None else x for x in parts), strict=True)
        return torch.stack([dense(*of_expert, format, columns) for of_expert in each])
    codes = codes_at(torch, packed, torch.tensor(_PLACES, device=packed.device), scales.shape[1], columns)
    if format == "int4":
        return int4_values(codes.float(), scales.float(), None if zeros is None else zeros.float())
    floats = (scales.float() - 127).exp2() if global_scale is None else scales.float() * global_scale
    return scaled(torch.tensor(E2M1, device=packed.device)[codes.int()], floats)
