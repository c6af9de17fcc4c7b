"""The experts of a mixture, of weights in 4 bits and activations of 16."""

from __future__ import annotations

import torch
from torch import Tensor

import cleave

from ._packed_experts import PackedExperts
from .gate import SWIGLU, Gate

_ops = torch.ops.cleave


class W4A16Experts(PackedExperts):
    """y[t] = sum over t's experts e of weights * down[e](gate(gate_up[e](x))), of weights in 4 bits and an x of 16, for
    inference; gate is SwiGLU, or another `Gate`.

    What transformers calls a model's `experts`, as `W8A8Experts` is in 8 bits: a router says which experts a token goes
    to. Nothing waits for the GPU, so a call may be captured in a CUDA graph once it has run with as many tokens,
    whatever the routing. Repeatable bit by bit.

    x is [tokens, features], float16 or bfloat16, with "int4" of the scales' dtype, and so is y; expert_ids [tokens,
    top_k], int32 or int64, what is no expert's number being left out; weights [tokens, top_k].

    Modules gate_up ([num_experts, 2 * hidden_features, features], the gates first) and down ([num_experts, features,
    hidden_features]) have the buffers of a `cleave.PackedWeights`, and bias, [num_experts, rows] or None.
    """

    @classmethod
    def from_packed(
        cls,
        gate_up: cleave.PackedWeights,
        down: cleave.PackedWeights,
        gate_up_bias: Tensor | None = None,
        down_bias: Tensor | None = None,
        *,
        gate: Gate = SWIGLU,
    ) -> W4A16Experts:
        """The experts of packed weights, [E, 2 * H, F] and [E, F, H], which they keep.

        Where gate_up is packed with gated=True, the first product applies the gate, to its float32 sums. Biases:
        [E, 2 * H], the gates' first, and [E, F], cast as by `W4A16Linear.from_packed`. ValueError for shapes
        that do not fit, naming the argument.
        """
        experts = cls.__new__(cls)
        experts._keep(gate_up, down, gate_up_bias, down_bias, gate)
        return experts

    @torch.no_grad()
    def forward(self, x: Tensor, expert_ids: Tensor, weights: Tensor) -> Tensor:
        offs, indices = _ops.moe_sort_tokens(expert_ids.contiguous(), self.num_experts)
        hidden = self.gate_up.multiply_and_gate(_ops.moe_gather(x.contiguous(), indices), offs, self.gate)
        y = self.down.multiply(hidden, offs)
        return _ops.moe_unpermute(y, indices, weights.contiguous())
