"""Layers of several, that `fuse` puts in the places of their parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ._fusion.chains import DecoderLayer
from .linear import W8A8Linear
from .norm import Quantized, RMSNormQuantize


class W8A8SwiGLU(W8A8Linear):
    """silu(gate(x)) * up(x) of two `W8A8Linear` layers, as one product.

    weight is [2 * out_features, in_features], the rows of gate and then those of up, and so are weight_scale and bias.
    Sums are rounded once, to y's dtype, after the gate. Otherwise as `W8A8Linear`.
    """

    activation = "swiglu"  # of the product

    def __init__(self, in_features: int, rows: int, bias: bool = True, **options: Any) -> None:
        """Creates an empty layer, to load a state_dict into. rows: the weight's; options: as in `W8A8Linear`."""
        super().__init__(in_features, rows, bias, **options)
        self.out_features = rows // 2

    @staticmethod
    def _product(*operands: Any, **options: Any) -> Tensor:
        return torch.ops.cleave.scaled_gemm.full(*operands, activation=W8A8SwiGLU.activation, **options)


class GatedMLP(nn.Module):
    """down(silu(gate(x)) * up(x)), where everything before down is one product."""

    def __init__(self, gate_up: nn.Module, down: nn.Module) -> None:
        super().__init__()
        self.gate_up, self.down = gate_up, down

    def forward(self, x: Tensor | tuple[Any, ...]) -> Tensor:
        return self.down(self.gate_up(x))


class _Between:
    """What fused layers pass to each other instead of a tensor; no other module can read it."""

    remedy: str

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"what goes between fused layers was asked for its {name}: {self.remedy}")


class PendingSum(_Between):
    """x + residual, to be added by the next layer's norm, in the kernel that normalises."""

    remedy = "something reads what is between layers; use cleave.torch.fuse(model, across_layers=False)"

    def __init__(self, x: Tensor, residual: Tensor) -> None:
        self.x, self.residual = x, residual


class Projections(_Between):
    """The results of several linear layers of the same rows; passed to each of them in place of the rows."""

    remedy = "something else than linear layers reads the norm; use cleave.torch.fuse(model, skip=...) with the layer"

    def __init__(self, parts: tuple[Tensor, ...], shape: torch.Size) -> None:
        self.parts, self.shape, self.dtype = parts, shape, parts[0].dtype


class NormProjections(nn.Module):
    """A norm and all linear layers that read it: two kernels. In their places are `Projection`."""

    def __init__(self, norm: RMSNormQuantize, linear: W8A8Linear, sizes: Sequence[int]) -> None:
        """linear: the layers' weights, one above the other; sizes: the outputs of each."""
        super().__init__()
        self.norm, self.linear, self.sizes = norm, linear, tuple(sizes)

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Projections | tuple[Projections, Tensor]:
        if residual is None:
            return self._project(self.norm(x))
        normed, total = self.norm(x, residual)
        return self._project(normed), total

    def _project(self, normed: Quantized) -> Projections:
        return Projections(self.linear(normed).split(self.sizes, -1), normed.shape)

    def extra_repr(self) -> str:
        return f"sizes={self.sizes}"


class Projection(nn.Module):
    """Takes its part of what `NormProjections` made."""

    def __init__(self, part: int) -> None:
        super().__init__()
        self.part = part

    def forward(self, x: Projections) -> Tensor:
        return x.parts[self.part]

    def extra_repr(self) -> str:
        return f"part={self.part}"


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
    if residual is not None and adds(norm):
        return norm(x, residual)
    stream = x if residual is None else residual + x
    return norm(stream), stream


def adds(norm: nn.Module) -> bool:
    """Whether a norm takes a residual, too."""
    return isinstance(norm, (RMSNormQuantize, NormProjections))
