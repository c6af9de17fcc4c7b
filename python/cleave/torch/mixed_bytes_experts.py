"""The experts of a mixture, of weights in 4 bits and activations of 8."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import cleave

from ._eight_bits import Dtype, parse_dtype
from ._packed_bytes import INT4_SCALES, with_float16
from ._packed_experts import ExpertsLayer, PackedExperts
from .gate import SWIGLU, Gate

_ops = torch.ops.cleave


class _Layer(ExpertsLayer):
    int4_scales = INT4_SCALES


class W4A8Experts(PackedExperts):
    """y[t] = sum over t's experts e of weights * down[e](gate(gate_up[e](x))), of weights in 4 bits and activations of
    8, for inference; gate is SwiGLU, or another `Gate`.

    `W4A16Experts` whose activations are quantised in each call, once for each token and once between the two products,
    with a scale per row. Legal in CUDA graphs and repeatable as those are.

    x is [tokens, features], float16, bfloat16 or float32, and so is y, of its dtype; expert_ids and weights as there.

    Modules gate_up and down have the same buffers; scales of "int4" are float16 here, whatever the experts are cast to.
    """

    _layer = _Layer

    def __init__(
        self,
        num_experts: int,
        features: int,
        hidden_features: int,
        *,
        activation_dtype: Dtype = "float8_e4m3fn",
        **options: Any,
    ) -> None:
        """Empty ones, to load a state_dict into, which does not have the gate.

        activation_dtype: as of `W4A8Linear`. Others: as of `W4A16Experts`.
        """
        eight = parse_dtype(activation_dtype, "activation_dtype")
        super().__init__(num_experts, features, hidden_features, **options)
        self.activation_dtype = eight

    @classmethod
    def from_packed(
        cls,
        gate_up: cleave.PackedWeights,
        down: cleave.PackedWeights,
        gate_up_bias: Tensor | None = None,
        down_bias: Tensor | None = None,
        activation_dtype: Dtype = "float8_e4m3fn",
        *,
        gate: Gate = SWIGLU,
    ) -> W4A8Experts:
        """The experts of packed weights, as `W4A16Experts.from_packed` has them; scales of bfloat16 become float16.

        Biases are cast to bfloat16 if they have not 16 bits. ValueError for scales that float16 has not, too.
        """
        eight = parse_dtype(activation_dtype, "activation_dtype")
        packed = with_float16(gate_up, "gate_up"), with_float16(down, "down")
        experts = cls.__new__(cls)
        experts._keep(*packed, gate_up_bias, down_bias, gate)
        experts.activation_dtype = eight
        return experts

    @torch.no_grad()
    def forward(self, x: Tensor, expert_ids: Tensor, weights: Tensor) -> Tensor:
        offs, indices = _ops.moe_sort_tokens(expert_ids.contiguous(), self.num_experts)
        of_tokens = _ops.quantize(x.contiguous(), self.activation_dtype)
        q, scale = (_ops.moe_gather(each, indices) for each in of_tokens)
        hidden = self.gate_up.multiply_and_gate(q, offs, self.gate, scale, x.dtype)
        q, scale = _ops.quantize(hidden, self.activation_dtype)
        y = self.down.multiply(q, offs, scale, x.dtype)
        return _ops.moe_unpermute(y, indices, weights.contiguous())

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, activation_dtype={self.activation_dtype}"
