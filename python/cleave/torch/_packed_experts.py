"""What the experts of mixtures with packed weights have in common, whatever their activations are."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import cleave

from ._operators.epilogue import named
from ._packed_layer import PackedLayer, check_bias
from .gate import SWIGLU, Gate

_mixed_grouped_gemm = torch.ops.cleave.mixed_grouped_gemm


class ExpertsLayer(PackedLayer):
    """One linear layer of each expert."""

    def __init__(self, num_experts: int, in_features: int, rows: int, **options: Any) -> None:
        super().__init__((num_experts,), in_features, rows, **options)

    @classmethod
    def of(cls, weights: cleave.PackedWeights, bias: Tensor | None) -> ExpertsLayer:
        experts, rows, columns = weights.shape
        layer = cls(experts, columns, rows, **cls._options_of(weights, bias))
        layer._keep(weights, bias)
        return layer

    def multiply(
        self, rows: Tensor, offs: Tensor, scale: Tensor | None = None, dtype: torch.dtype | None = None
    ) -> Tensor:
        """rows: in order of experts, which end at `offs`; of 8 bits with a scale each. dtype: the results'."""
        form = self._shape[1], self.group_size, offs, self.bias, dtype, self.format, self.global_scale
        rows = self._multiplied(rows) if scale is None else rows
        return _mixed_grouped_gemm.default(rows, self.packed, self.scales, self.zeros, *form, scale)

    def multiply_and_gate(
        self, rows: Tensor, offs: Tensor, gate: Gate, scale: Tensor | None = None, dtype: torch.dtype | None = None
    ) -> Tensor:
        """As `multiply`, of gates and ups, which the gate joins: in the product where they are packed so."""
        if not self.gated:
            return gate(self.multiply(rows, offs, scale, dtype))
        function = gate.epilogue()
        (hidden,) = _mixed_grouped_gemm.epilogue(
            self._multiplied(rows) if scale is None else rows,
            self.packed,
            self.scales,
            self.zeros,
            self._shape[1],
            self.group_size,
            offs,
            **named(function.text, function.inputs),
            bias=self.bias,
            format=self.format,
            global_scale=self.global_scale,
            scale_a=scale,
            out_dtype=dtype,
        )
        return hidden


class PackedExperts(nn.Module):
    """gate_up and down, of a class of layers, with a gate between them, in the first product where that is `gated`."""

    _layer: type[ExpertsLayer] = ExpertsLayer

    def __init__(
        self,
        num_experts: int,
        features: int,
        hidden_features: int,
        *,
        group_size: int | None = None,
        format: str = "int4",
        zeros: bool = False,
        bias: bool = False,
        gate: Gate = SWIGLU,
        gated: bool = False,
        dtype: torch.dtype = torch.bfloat16,
        device: Any = None,
    ) -> None:
        """Empty ones, to load a state_dict into, which does not have the gate.

        gated: gate_up is packed so. Other options: as of `W4A16Linear`.
        """
        super().__init__()
        self.num_experts, self.gate = num_experts, gate
        form = {"group_size": group_size, "format": format, "zeros": zeros, "bias": bias, "act_order": False}
        form |= {"dtype": dtype, "device": device}
        self.gate_up = self._layer(num_experts, features, 2 * hidden_features, gated=gated, **form)
        self.down = self._layer(num_experts, hidden_features, features, **form)

    def _keep(
        self,
        gate_up: cleave.PackedWeights,
        down: cleave.PackedWeights,
        gate_up_bias: Tensor | None,
        down_bias: Tensor | None,
        gate: Gate,
    ) -> None:
        """Makes experts of them of what is not initialised. ValueError for shapes that do not fit, naming them."""
        if len(gate_up.shape) != 3 or gate_up.shape != (gate_up.shape[0], 2 * down.shape[-1], down.shape[-2]):
            raise ValueError(
                f"gate_up is {gate_up.shape} and down {down.shape}; they must be (E, 2 H, F) and (E, F, H)"
            )
        if down.gated:
            raise ValueError("down is packed with gated=True, but nothing joins its rows; pack it without")
        check_bias("gate_up_bias", gate_up_bias, gate_up)
        check_bias("down_bias", down_bias, down)
        nn.Module.__init__(self)
        self.num_experts, self.gate = gate_up.shape[0], gate
        self.gate_up = self._layer.of(gate_up, gate_up_bias)
        self.down = self._layer.of(down, down_bias)

    def extra_repr(self) -> str:
        return f"num_experts={self.num_experts}, gate={self.gate}"
