"""What chooses a token's experts in a mixture."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import cleave

from ._batch_invariant import is_batch_invariant

_ops = torch.ops.cleave

# The most that moe_route takes; beyond them torch's own operators choose, by softmax over the chosen alone.
_MOST_ROUTED, _MOST_CHOICES = 512, 32

# By the operator's own schema.
_DEFAULTS = {
    each.name: each.default_value for each in _ops.moe_route.default._schema.arguments if each.has_default_value()
}

# Up to how many tokens moe_router_logits is ahead of a float32 product, with few experts and with more, as
# docs/notes/2026-11-router.md has it measured.
_FEW_EXPERTS, _MOST_TOKENS_OF_FEW, _MOST_TOKENS = 8, 512, 63


class Router(nn.Linear):
    """From tokens to the top_k experts of each, best first, and their weights (`cleave.moe.route` has the options).

    forward gives the logits, float32 [tokens, num_experts]: sums of float32 of the elements as they are. A weight of
    x's dtype is multiplied by `gemm`; one of another, float32 beside 16 bits, by `moe_router_logits` where tokens are
    few, and else as float32, of the precision that torch's switch, or `float32_precision`, says. Under
    `cleave.batch_invariant` the number of tokens changes nothing: few or many, the operator is the same.

    weight: [num_experts, features], a parameter. e_score_correction_bias: float32 [num_experts], a buffer, or None; it
    stays float32 where the module is cast, and has no gradient: whoever balances experts writes it.

    Its class keeps it in its dtype where others are quantised.
    """

    def __init__(
        self,
        features: int,
        num_experts: int,
        top_k: int,
        *,
        correction_bias: bool = False,
        device: Any = None,
        dtype: torch.dtype | None = None,
        **options: Any,
    ) -> None:
        """options: of `cleave.moe.route`, which are its defaults where they are left out. ValueError, in its words, for
        what it does not take."""
        if not 1 <= top_k <= num_experts:
            raise ValueError(f"top_k is {top_k}; it must be from 1 to num_experts, {num_experts}")
        options = {name: value for name, value in options.items() if value != _DEFAULTS.get(name, ...)}
        by_torch = num_experts > _MOST_ROUTED or top_k > _MOST_CHOICES
        if options or correction_bias or not by_torch:
            bias = np.zeros(num_experts, np.float32) if correction_bias else None
            cleave.moe.route(np.zeros((1, num_experts), np.float32), top_k, bias=bias, **options)
        super().__init__(features, num_experts, bias=False, device=device, dtype=dtype)
        self.top_k = top_k
        self.options = options
        self._by_torch = by_torch
        made = torch.zeros(num_experts, device=device, dtype=torch.float32) if correction_bias else None
        self.register_buffer("e_score_correction_bias", made)

    def forward(self, tokens: Tensor) -> Tensor:
        weight = self.weight
        if tokens.dtype == weight.dtype or torch.is_autocast_enabled(tokens.device.type):
            return _ops.gemm(tokens, weight.t(), out_dtype=torch.float32)
        if len(tokens) <= self.most_tokens or is_batch_invariant():
            return _ops.moe_router_logits(tokens, weight)
        return _ops.gemm(tokens.float(), weight.float().t())

    @property
    def most_tokens(self) -> int:
        """Up to which moe_router_logits multiplies a weight of another dtype."""
        return _MOST_TOKENS_OF_FEW if self.out_features <= _FEW_EXPERTS else _MOST_TOKENS

    def route(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """The weights, float32, and the experts' numbers, both [tokens, top_k]."""
        logits = self(tokens)
        if self._by_torch:
            best, experts = logits.topk(self.top_k, dim=-1)
            return best.softmax(dim=-1), experts
        return _ops.moe_route(logits, self.top_k, self.e_score_correction_bias, **self.options)

    def extra_repr(self) -> str:
        options = "".join(f", {name}={value!r}" for name, value in self.options.items())
        corrected = ", correction_bias=True" if self.e_score_correction_bias is not None else ""
        return f"{self.in_features}, {self.out_features}, top_k={self.top_k}{options}{corrected}"

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Router:
        bias = self.e_score_correction_bias

        def move(tensor: Tensor) -> Tensor:
            moved = fn(tensor)
            return tensor.to(moved.device) if tensor is bias and moved.dtype != tensor.dtype else moved

        return super()._apply(move, recurse)
