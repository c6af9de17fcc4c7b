"""A checkpoint's experts in MXFP4 as gpt-oss's files have them: those of a layer in one tensor."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import cleave

from ..._weights.experts import stacked
from ..._weights.formats import MXFP4
from .._packed_layer import HALVES
from ..mixed_experts import W4A16Experts
from .expert_modules import STACKED, gate_of, has_bias, is_interleaved, sizes_of
from .formats import Scheme
from .four_bits import Codes, FourBits, Place, nibbles
from .tensors import Tensors

_GROUP = MXFP4.usual_group
_CODES, _EXPONENTS = (torch.uint8,), (torch.uint8, torch.float8_e8m0fnu)
_FLOATS = (*HALVES, torch.float32)


class BlockExperts:
    """What the checkpoint has of `experts`, a module of that name: of each of its weights, [E, N, K],

        {weight}_blocks: uint8 [E, N, K / 32, 16], codes of e2m1, two a byte, the first in the lower half.
        {weight}_scales: uint8 [E, N, K / 32], E8M0.
        {weight}_bias: [E, N], where the module has biases.

    Where the module has a gate's row followed by its up's, so have the tensors.
    """

    def __init__(self, name: str, experts: nn.Module, tensors: Tensors) -> None:
        self._name = name
        self._experts: Any = experts
        self._tensors = tensors
        count, features, hidden = sizes_of(experts)
        self._shapes = dict(zip(STACKED, ((count, 2 * hidden, features), (count, features, hidden)), strict=True))
        self._parts = ("blocks", "scales", "bias") if has_bias(experts) else ("blocks", "scales")

    @staticmethod
    def are_in(tensors: Tensors, name: str) -> bool:
        return any(f"{name}.{weight}_{part}" in tensors for weight in STACKED for part in ("blocks", "scales"))

    def is_quantized(self) -> bool:
        return True

    def example(self) -> tuple[str, nn.Module]:
        """A layer, for formats that name layers and classes."""
        return self._name, self._experts

    def required(self, scheme: Scheme | FourBits) -> list[str]:
        return [f"{self._name}.{weight}_{part}" for weight in STACKED for part in self._parts]

    def check(self, scheme: Scheme | FourBits) -> None:
        """ValueError, naming the experts, for what is not served."""
        if not isinstance(scheme, FourBits) or scheme.format != MXFP4.name:
            raise ValueError(
                f"{self._name} has blocks of MXFP4, but quantization_config says otherwise; pass one whose "
                'quant_method is "mxfp4"'
            )

    def made(self, scheme: FourBits, place: Place, dtype: torch.dtype | None) -> W4A16Experts:
        """The experts, where `place` brings tensors; biases of `dtype`, or of their own."""
        weights = [self._packed(scheme, weight, place) for weight in STACKED]
        biases = [self._bias(weight, place, dtype) if "bias" in self._parts else None for weight in STACKED]
        return W4A16Experts.from_packed(*weights, *biases, gate=gate_of(self._experts))

    def _packed(self, scheme: FourBits, weight: str, place: Place) -> cleave.PackedWeights:
        layer, (count, rows, columns) = f"{self._name}.{weight}", self._shapes[weight]
        grouped = count, rows, columns // _GROUP
        blocks = self._take(weight, "blocks", (*grouped, _GROUP // 2), _CODES, place)
        scales = self._take(weight, "scales", grouped, _EXPONENTS, place).view(torch.uint8)
        order = self._order(weight).to(blocks.device)
        # One expert after the other: a byte for each code of all of them would be gigabytes.
        experts = [
            scheme.pack(
                f"{layer}, expert {expert}",
                Codes(nibbles(blocks[expert]).flatten(1)[order], scales[expert][order].T),
                torch.Size((rows, columns)),
                None,
            )
            for expert in range(count)
        ]
        return stacked(experts)

    def _bias(self, weight: str, place: Place, dtype: torch.dtype | None) -> Tensor:
        bias = self._take(weight, "bias", self._shapes[weight][:2], _FLOATS, place)
        return bias.to(dtype or bias.dtype)[:, self._order(weight).to(bias.device)]

    def _order(self, weight: str) -> Tensor:
        """The rows of a weight, or bias, the gates before the ups."""
        rows = torch.arange(self._shapes[weight][1])
        if weight == "gate_up_proj" and is_interleaved(self._experts):
            return torch.cat((rows[0::2], rows[1::2]))
        return rows

    def _take(
        self, weight: str, part: str, shape: tuple[int, ...], dtypes: tuple[torch.dtype, ...], place: Place
    ) -> Tensor:
        name = f"{self._name}.{weight}_{part}"
        found = self._tensors.take(name)
        if tuple(found.shape) != shape or found.dtype not in dtypes:
            raise ValueError(
                f"{name} is {found.dtype} {list(found.shape)}; of the model's weight {list(self._shapes[weight])} "
                f"(experts, outputs, inputs), in blocks of {_GROUP} inputs, it must be "
                f"{' or '.join(map(str, dtypes))} {list(shape)}; quantise the model anew"
            )
        return place(found)
