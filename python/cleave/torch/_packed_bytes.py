"""What layers of packed weights that quantise their activations to 8 bits have in common."""

from __future__ import annotations

import dataclasses

import torch

import cleave

INT4_SCALES = torch.float16


def with_float16(weights: cleave.PackedWeights, name: str = "weights") -> cleave.PackedWeights:
    """Those with scales of bfloat16 in `INT4_SCALES`; ValueError where that is not exact."""
    if weights.scales.dtype != torch.bfloat16:
        return weights
    scales = weights.scales.to(INT4_SCALES)
    if not torch.equal(scales.to(torch.bfloat16), weights.scales):
        raise ValueError(
            f"{name} has scales that float16 has not, of less than 2^-17 or more than 65504; scale the weight, or pack "
            'it with scale_dtype="float16"'
        )
    return dataclasses.replace(weights, scales=scales)
