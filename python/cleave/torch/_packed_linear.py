"""What linear layers of one packed weight have in common, whatever their activations are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

import cleave

from ._packed_layer import PackedLayer, check_bias
from ._static_weights import StaticWeights

if TYPE_CHECKING:
    from typing import Self


class PackedLinear(StaticWeights, PackedLayer):
    @classmethod
    def _of(cls, weights: cleave.PackedWeights, bias: Tensor | None, **options: Any) -> Self:
        """The layer of a packed weight, which it keeps. options: beside those that follow from weights and bias."""
        if len(weights.shape) != 2:
            raise ValueError(f"weights is {weights.shape}, of experts; it must be of one layer, (N, K)")
        rows, columns = weights.shape
        check_bias("bias", bias, weights)
        layer = cls(columns, rows, **cls._options_of(weights, bias) | options)
        layer._keep(weights, bias)
        layer.wait_for_weights()
        return layer

    def prepare(self, example: Tensor | int, dtype: torch.dtype = torch.bfloat16) -> None:
        """Compiles what a call needs, so that it may be captured: by making that call.

        example: an input, or a number of tokens, of `dtype`, or of the dtype of the scales of "int4" where x has to be
        of that. How a product is best split depends on the number of tokens, so each number that is captured has a
        kernel of its own.
        """
        if isinstance(example, int):
            bound = self.format == "int4" and self.int4_scales is None
            dtype = self.scales.dtype if bound else dtype
            example = self.packed.new_zeros((example, self.in_features), dtype=dtype)
        with torch.no_grad():
            self(example)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, static_weights={self.static_weights}"
