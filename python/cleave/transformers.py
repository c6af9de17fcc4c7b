"""transformers' mixtures of experts by Cleave's grouped products: experts_implementation="cleave".

    import cleave.transformers
    model = AutoModelForCausalLM.from_pretrained(name, experts_implementation="cleave")

The import registers it; `model.set_experts_implementation("cleave")` changes a model that is there. Tokens are sorted
by expert, all gates and ups are one product, all downs another: nothing is padded, nothing waits for the GPU, so a
step may be captured in a CUDA graph, of any routing. It has gradients; without them silu(gate) * up is a part of the
first product. Needs transformers 5 or newer. For checkpoints in 8 bits see `cleave.torch.load_quantized`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

from cleave.torch._expert_modules import is_swiglu

_ops = torch.ops.cleave

__all__ = ["experts_forward"]


def experts_forward(self: Any, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
    """What an experts module of transformers returns, [tokens, features], of hidden_states' dtype.

    self: the module, with parameters gate_up_proj (or up_proj) and down_proj [experts, out, in], and biases [experts,
    out] where it has them; transposed ones, too. hidden_states: [tokens, features]. top_k_index, top_k_weights:
    [tokens, top_k]; what is no expert's number, as other ranks' experts have, adds nothing.
    """
    first = "gate_up_proj" if self.has_gate else "up_proj"
    rows, offs, indices = _ops.moe_permute(hidden_states, top_k_index.contiguous(), self.num_experts)
    if self.has_gate and is_swiglu(self) and not torch.is_grad_enabled():
        weight, bias = _operands(self, first)
        rows = _ops.grouped_gemm.full(rows, weight, offs, bias, activation="swiglu")
    else:
        rows = _ops.grouped_gemm.default(rows, *_with_offs(self, first, offs))
        rows = self._apply_gate(rows) if self.has_gate else self.act_fn(rows)
    rows = _ops.grouped_gemm.default(rows, *_with_offs(self, "down_proj", offs))
    if self.has_post_expert_norm:
        rows = self.post_expert_norm(rows)
    return _ops.moe_unpermute(rows, indices, top_k_weights.contiguous())


def _operands(experts: Any, name: str) -> tuple[Tensor, Tensor | None]:
    weight = getattr(experts, name)
    return weight if experts.is_transposed else weight.mT, getattr(
        experts, f"{name}_bias"
    ) if experts.has_bias else None


def _with_offs(experts: Any, name: str, offs: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    weight, bias = _operands(experts, name)
    return weight, offs, bias


ALL_EXPERTS_FUNCTIONS.register("cleave", experts_forward)
