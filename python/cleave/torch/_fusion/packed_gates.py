"""Gates and ups of packed weights as one weight, in which they take turns, and back; codes stay what they are."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch

import cleave

from ..._weights.experts import experts_of, stacked
from ..._weights.layout import gate_rows, inverse
from ..._weights.packed import GATE_ROWS
from .._checkpoints.four_bits import Codes, one_above_other
from .._packed_experts import PackedExperts
from .._packed_linear import PackedLinear
from ..mixed_bytes_linear import W4A8Linear
from ..mixed_linear import W4A16Linear
from ..mixed_swiglu import W4A8SwiGLU, W4A16SwiGLU
from .stack import same

_JOINED = {W4A16Linear: W4A16SwiGLU, W4A8Linear: W4A8SwiGLU}
_OWN = ("packed", "scales", "zeros", "perm", "global_scale", "bias")  # buffers that a layer has while it is apart


def why_apart(linears: Sequence[PackedLinear]) -> str:
    """What keeps a gate and an up, or one layer of both, from being one product; "" if nothing does."""
    if len(linears) == 1:
        return why_not_gated(linears[0].out_features // 2)
    gate, up = linears
    equal = {name: getattr(gate, name) == getattr(up, name) for name in ("in_features", "out_features", "format")}
    equal |= {name: getattr(gate, name) == getattr(up, name) for name in ("group_size", "static_weights")}
    equal["activation_dtype"] = getattr(gate, "activation_dtype", None) == getattr(up, "activation_dtype", None)
    equal["scales"] = gate.scales.dtype == up.scales.dtype
    equal |= {name: (getattr(gate, name) is None) == (getattr(up, name) is None) for name in ("zeros", "bias")}
    equal["perm"] = same(gate.perm, up.perm)
    differ = [name for name, is_equal in equal.items() if not is_equal]
    if differ:
        return f"they differ in {', '.join(differ)}"
    return why_not_gated(gate.out_features)


def why_not_gated(hidden_features: int) -> str:
    """What keeps so many gates and ups from taking turns; "" if nothing does."""
    return f"their outputs are no multiple of {GATE_ROWS}" if hidden_features % GATE_ROWS else ""


def stack(linears: Sequence[PackedLinear]) -> PackedLinear:
    """One layer in the place of what nothing keeps apart, whose buffers it takes."""
    first = linears[0]
    weights = [each.weights() for each in linears]
    together = _packed(one_above_other([_codes(each) for each in weights]), weights[0], gated=True)
    bias = None if first.bias is None else torch.cat([each.bias for each in linears])
    options = {"static_weights": first.static_weights}
    if isinstance(first, W4A8Linear):
        options["activation_dtype"] = first.activation_dtype
    made = _JOINED[type(first)].from_packed(together, bias, **options)
    for each in linears:
        for name in _OWN:
            setattr(each, name, None)
    return made


def unstack(whole: PackedLinear, linears: Sequence[PackedLinear]) -> None:
    """Gives them their buffers back, where the whole is now."""
    weights = whole.weights()
    count = len(linears)
    biases = [None] * count if whole.bias is None else whole.bias.chunk(count)
    for each, part, bias in zip(linears, _parts(_codes(weights), count), biases, strict=True):
        each.bias, each.version = bias, whole.version
        each._keep(_packed(part, weights, gated=False), None)
        each.wait_for_weights()


def join_experts(experts: PackedExperts, gated: bool) -> None:
    """Packs the experts' gates and ups anew, in turns or not."""
    layer = experts.gate_up
    packed = [_packed(_codes(each), each, gated) for each in experts_of(layer.weights())]
    experts.gate_up = type(layer).of(stacked(packed), layer.bias).train(layer.training)


def _codes(weights: cleave.PackedWeights) -> Codes:
    """Columns are in the order in which they are packed, rows in the order that was given."""
    codes = cleave.unpack_weights(dataclasses.replace(weights, perm=None))
    scales, zeros = weights.scales, weights.zeros
    if weights.gated:
        order = torch.tensor(inverse(gate_rows(len(codes))), device=scales.device)
        scales = scales[:, order]
        zeros = None if zeros is None else zeros[:, order]
    return Codes(codes, scales, zeros, None, weights.global_scale)


def _parts(whole: Codes, count: int) -> list[Codes]:
    """As many of as many rows."""
    one = whole.global_scale is None or len(whole.global_scale) == 1
    zeros = [None] * count if whole.zeros is None else whole.zeros.chunk(count, 1)
    factors = [whole.global_scale] * count if one else whole.global_scale.chunk(count)
    factors = [each[:1] if each is not None and bool((each == each[0]).all()) else each for each in factors]
    parts = zip(whole.codes.chunk(count), whole.scales.chunk(count, 1), zeros, factors, strict=True)
    return [Codes(*part, None, factor) for *part, factor in parts]


def _packed(codes: Codes, like: cleave.PackedWeights, gated: bool) -> cleave.PackedWeights:
    made = cleave.pack_weights(
        codes.codes,
        like.group_size,
        like.format,
        scales=codes.scales,
        zeros=codes.zeros,
        global_scale=codes.global_scale,
        gated=gated,
    )
    return dataclasses.replace(made, perm=like.perm)
