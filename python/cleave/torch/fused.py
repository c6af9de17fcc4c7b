"""Layers of several, that `fuse` puts in the places of their parts."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ._chains import DecoderLayer
from .linear import W8A8Linear
from .norm import RMSNormQuantize


class W8A8SwiGLU(W8A8Linear):
    """silu(gate(x)) * up(x) of two `W8A8Linear` layers, as one product.

    weight is [2 * out_features, in_features], the gates' rows and then the ups', and so are weight_scale and bias.
    Sums are rounded once, to y's dtype, after the gate. Else as `W8A8Linear`.
    """

    activation = "swiglu"  # of the product

    def __init__(self, in_features: int, rows: int, bias: bool = True, **options: Any) -> None:
        """An empty one, to load a state_dict into. rows: of the weight; options as of `W8A8Linear`."""
        super().__init__(in_features, rows, bias, **options)
        self.out_features = rows // 2

    @classmethod
    def from_linears(cls, gate: W8A8Linear, up: W8A8Linear) -> W8A8SwiGLU:
        """Of layers with equal settings (`why_apart`), which become halves of its memory."""
        made = cls.from_quantized(
            torch.cat([gate.weight, up.weight]),
            torch.cat([gate.weight_scale, up.weight_scale]),
            None if gate.bias is None else torch.cat([gate.bias, up.bias]),
            gate.activation_scale,
            granularity=gate.granularity,
            smooth=gate.smooth,
            use_fast_accum=gate.use_fast_accum,
        )
        made.put_into(gate, up)
        return made

    @staticmethod
    def why_apart(gate: W8A8Linear, up: W8A8Linear) -> str:
        """What keeps two layers from being one product; "" if nothing does."""
        equal = {
            "shape": gate.weight.shape == up.weight.shape,
            "granularity": gate.granularity == up.granularity,
            "dtype": gate.weight.dtype == up.weight.dtype,
            "bias": (gate.bias is None) == (up.bias is None),
            "use_fast_accum": gate.use_fast_accum == up.use_fast_accum,
            "smooth": same(gate.smooth, up.smooth),
            "activation_scale": same(gate.activation_scale, up.activation_scale),
        }
        differ = [name for name, is_equal in equal.items() if not is_equal]
        if differ:
            return f"gate and up differ in {', '.join(differ)}"
        if gate.granularity == "block_128x128" and gate.out_features % 128:
            return f"gate has {gate.out_features} outputs, so that a block of 128 would be of gates and of ups"
        return ""

    def put_into(self, gate: W8A8Linear, up: W8A8Linear) -> None:
        """Makes them halves of this layer, where it is now."""
        for name in ("weight", "weight_scale", "bias"):
            whole = getattr(self, name)
            for layer, half in zip((gate, up), (None, None) if whole is None else whole.chunk(2), strict=True):
                setattr(layer, name, half)
        for layer in (gate, up):
            layer.activation_scale, layer.smooth = self.activation_scale, self.smooth

    @staticmethod
    def _product(*operands: Any) -> Tensor:
        return torch.ops.cleave.scaled_gemm.full(*operands, activation=W8A8SwiGLU.activation)


class GatedMLP(nn.Module):
    """down(silu(gate(x)) * up(x)), of which all but down is one product."""

    def __init__(self, gate_up: W8A8SwiGLU, down: nn.Module) -> None:
        super().__init__()
        self.gate_up, self.down = gate_up, down

    def forward(self, x: Tensor | tuple[Any, ...]) -> Tensor:
        return self.down(self.gate_up(x))


class PendingSum:
    """x + residual, which the norm of the layer that gets it adds, in the kernel that normalises."""

    def __init__(self, x: Tensor, residual: Tensor) -> None:
        self.x, self.residual = x, residual

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"a sum that the next layer is to make was asked for its {name}; something reads what is between layers: "
            "use cleave.torch.fuse(model, across_layers=False)"
        )


class FusedDecoderLayer:
    """What `fuse` has a decoder layer do instead of its class's forward: norms add, and quantise where 8 bits are read.

    chain: of the layer. hands_on: the last sum is left to the next layer.
    """

    chain: DecoderLayer
    hands_on: bool

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        chain = self.chain
        given = {**chain.defaults, **dict(zip(chain.parameters, args, strict=False)), **kwargs}
        x, residual = given[chain.parameters[0]], None
        if isinstance(x, PendingSum):
            x, residual = x.x, x.residual
        normed, stream = _add_and_norm(getattr(self, chain.attention_norm), x, residual)
        given[""] = normed
        others = {name: value for name, value in kwargs.items() if name not in chain.parameters}
        x = getattr(self, chain.attention)(
            *[given[name] for name in chain.args],
            **{name: given[parameter] for name, parameter in chain.kwargs.items()},
            **others,
        )
        x = x[0] if chain.first_of_attention else x
        normed, stream = _add_and_norm(getattr(self, chain.mlp_norm), x, stream)
        x = getattr(self, chain.mlp)(normed)
        x = x[0] if chain.first_of_mlp else x
        return PendingSum(x, stream) if self.hands_on else stream + x


def _add_and_norm(norm: nn.Module, x: Tensor, residual: Tensor | None) -> tuple[Any, Tensor]:
    if residual is not None and isinstance(norm, RMSNormQuantize):
        return norm(x, residual)
    stream = x if residual is None else residual + x
    return norm(stream), stream


def same(one: Tensor | None, other: Tensor | None) -> bool:
    return one is other or (one is not None and other is not None and torch.equal(one, other))
