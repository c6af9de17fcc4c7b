"""The experts of a mixture, in 8 bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ._casts import moves_only
from ._eight_bits import Dtype, parse_dtype
from ._scales import ACTIVATIONS, check_granularity, scale_shape
from .dispatch import Arrived, Dispatcher, OneRank, check_dealt, permuted_in_8_bits
from .gate import SWIGLU, Gate

_ops = torch.ops.cleave


class W8A8Experts(nn.Module):
    """y[t] = sum over t's experts e of weights * down[e](gate(gate_up[e](x))), of 8-bit numbers, for inference; gate is
    SwiGLU, which is a part of the first product, or another `Gate`, after it.

    What transformers calls a model's `experts`: a router says which experts a token goes to. Activations are quantised
    in each call: once for each token, on the way to its experts' rows where scales are of blocks, and once between the
    two products, by the first of them where scales are of float8's blocks of 128x128. Where experts have few rows, the
    first product gathers them. Nothing waits for the GPU, so a call may be captured in a CUDA graph once it has run
    with as many tokens, whatever the routing. Repeatable bit by bit.

    dispatcher: what takes tokens to their experts, and back, with `num_experts` of all ranks, of which this one has its
    part: `cleave.distributed.AllGather()` or `AllToAll()` where experts are dealt to ranks. Tokens go in 8 bits, their
    scales beside them. None: all experts are here.

    x is [tokens, features], float16, bfloat16 or float32, and so is y, of its dtype; expert_ids [tokens, top_k], int32
    or int64, what is no expert's number being left out; weights [tokens, top_k].

    Buffers; scales are float32, of granularity "row", "block_1x128" or "block_128x128", as in `W8A8Linear`:
        gate_up: [experts, 2 * hidden_features, features], int8 or float8_e4m3fn, the gates first; of this rank's.
        gate_up_scale: a weight's scales for each expert, [experts, 2 * hidden_features] by row.
        down: [experts, features, hidden_features]; down_scale: [experts, features] by row.
    """

    def __init__(
        self,
        num_experts: int,
        features: int,
        hidden_features: int,
        *,
        dtype: Dtype = "float8_e4m3fn",
        granularity: str = "row",
        gate: Gate = SWIGLU,
        dispatcher: Dispatcher | None = None,
        device: Any = None,
    ) -> None:
        """Empty ones, to load a state_dict into, which does not have the gate."""
        super().__init__()
        check_granularity(granularity)
        self.num_experts, self.gate = num_experts, gate
        self.dispatcher = OneRank(gathers=True) if dispatcher is None else dispatcher
        experts = num_experts // check_dealt(num_experts, self.dispatcher)
        self.granularity = granularity
        made = {"dtype": parse_dtype(dtype), "device": device}
        for name, shape in (("gate_up", (2 * hidden_features, features)), ("down", (features, hidden_features))):
            scales = (experts, *scale_shape(granularity, *shape))
            self.register_buffer(name, torch.empty((experts, *shape), **made))
            self.register_buffer(f"{name}_scale", torch.empty(scales, dtype=torch.float32, device=device))

    @classmethod
    def from_quantized(
        cls,
        gate_up: Tensor,
        gate_up_scale: Tensor,
        down: Tensor,
        down_scale: Tensor,
        *,
        granularity: str = "row",
        gate: Gate = SWIGLU,
        dispatcher: Dispatcher | None = None,
    ) -> W8A8Experts:
        """The experts of weights that are in 8 bits already, which they keep: the buffers, of their shapes; with a
        dispatcher, this rank's."""
        experts, features, hidden = down.shape
        options = {"granularity": granularity, "gate": gate, "dispatcher": dispatcher}
        ranks = 1 if dispatcher is None else dispatcher.ranks
        layer = cls(experts * ranks, features, hidden, dtype=down.dtype, device="meta", **options)
        given = {"gate_up": gate_up, "gate_up_scale": gate_up_scale, "down": down, "down_scale": down_scale}
        for name, tensor in given.items():
            expected = getattr(layer, name)
            if tensor.shape != expected.shape or tensor.dtype != expected.dtype:
                raise ValueError(
                    f"{name} is {tensor.dtype} {list(tensor.shape)}; beside down {list(down.shape)} and granularity "
                    f"{granularity!r} it must be {expected.dtype} {list(expected.shape)}"
                )
            setattr(layer, name, tensor)
        return layer

    def forward(self, x: Tensor, expert_ids: Tensor, weights: Tensor) -> Tensor:
        arrived = self._dispatch(x, expert_ids.contiguous(), weights.contiguous())
        return self.dispatcher.combine(self.run_experts(arrived, x.dtype), arrived)

    def _dispatch(self, x: Tensor, expert_ids: Tensor, weights: Tensor) -> Arrived:
        """In 8 bits; the bits are the same either way."""
        dtype, routed = self.down.dtype, (expert_ids, weights, self.num_experts)
        if self.copies_quantise and self.dispatcher.copies(expert_ids, self.num_experts):
            return permuted_in_8_bits(x, *routed, dtype)
        q, scale = _ops.quantize(x, dtype, ACTIVATIONS[self.granularity])
        return self.dispatcher.dispatch(q, *routed, scale=scale)

    def run_experts(self, arrived: Arrived, out_dtype: torch.dtype) -> Tensor:
        """What they make of rows in 8 bits, sorted by expert and without gaps, or of those that `gather` names."""
        dtype, offs, q, scale = self.down.dtype, arrived.offs, arrived.rows, arrived.scale
        first: dict[str, Any] = {} if arrived.gather is None else {"gather": arrived.gather, "top_k": arrived.top_k}
        if self.gate == SWIGLU:
            first["activation"] = "swiglu"
        if self.first_quantises:
            q, scale = self._multiply(q, scale, self.gate_up, self.gate_up_scale, offs, dtype, **first)
        else:
            h = self._multiply(q, scale, self.gate_up, self.gate_up_scale, offs, out_dtype, **first)
            q, scale = _ops.quantize(h if self.gate == SWIGLU else self.gate(h), dtype, ACTIVATIONS[self.granularity])
        return self._multiply(q, scale, self.down, self.down_scale, offs, out_dtype)

    def _multiply(
        self,
        q: Tensor,
        scale: Tensor,
        weight: Tensor,
        weight_scale: Tensor,
        offs: Tensor,
        dtype: torch.dtype,
        **options: Any,
    ) -> Any:
        if self.granularity == "row":
            scale = scale.view(-1)
        else:
            weight_scale = weight_scale.mT
        product = _ops.grouped_gemm.full if dtype.itemsize > 1 else _ops.grouped_gemm.quantized
        return product(q, weight.mT, offs, None, dtype, scale, weight_scale, **options)

    @property
    def copies_quantise(self) -> bool:
        """Whether tokens are quantised on their way to their experts' rows, where they are copied at all. Not where a
        dispatcher of another class wants them in 8 bits."""
        return type(self.dispatcher) is OneRank and self.granularity != "row"

    @property
    def first_quantises(self) -> bool:
        """Whether the first product finds the scales of what the second one reads."""
        return self.gate == SWIGLU and self.granularity == "block_128x128" and self.down.dtype.is_floating_point

    def extra_repr(self) -> str:
        experts, features, hidden = self.down.shape
        return (
            f"num_experts={experts}, features={features}, hidden_features={hidden}, dtype={self.down.dtype}, "
            f"granularity={self.granularity}, gate={self.gate}"
        )

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> W8A8Experts:
        return super()._apply(moves_only(fn), recurse)
