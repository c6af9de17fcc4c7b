"""What linear layers of one packed weight have in common, whatever their activations are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

import cleave

from ._packed_layer import PackedLayer, check_bias
from ._static_weights import StaticWeights

if TYPE_CHECKING:
    from typing import Self


class PackedLinear(StaticWeights, PackedLayer):
    activation: ClassVar[str] = "none"  # of the product

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        group_size: int | None = None,
        format: str = "int4",
        zeros: bool = False,
        act_order: bool = False,
        static_weights: bool = True,
        dtype: torch.dtype = torch.bfloat16,
        device: Any = None,
    ) -> None:
        """An empty one, to load a state_dict into: `from_linear` makes one of a layer.

        group_size, format: as of `cleave.pack_weights`. zeros: groups have zero points. act_order: columns are
        permuted. dtype: of the scales of "int4", and of the bias.
        """
        super().__init__(
            (),
            in_features,
            out_features,
            bias,
            group_size=group_size,
            format=format,
            zeros=zeros,
            act_order=act_order,
            gated=self.joins(),
            dtype=dtype,
            device=device,
        )
        self.static_weights = static_weights

    @classmethod
    def _of(cls, weights: cleave.PackedWeights, bias: Tensor | None, **options: Any) -> Self:
        """The layer of a packed weight, which it keeps. options: beside those that follow from weights and bias."""
        if len(weights.shape) != 2:
            raise ValueError(f"weights is {weights.shape}, of experts; it must be of one layer, (N, K)")
        if weights.gated != cls.joins():
            raise ValueError(
                f"weights is packed with gated=True, but {cls.__name__} joins no gates and ups; pass it to "
                "W4A16SwiGLU or W4A8SwiGLU, or pack it without"
                if weights.gated
                else f"{cls.__name__} joins gates and ups, but weights is packed without gated=True, which puts them "
                "beside each other; pack it with"
            )
        rows, columns = weights.shape
        check_bias("bias", bias, weights)
        form = cls._options_of(weights, bias)
        del form["gated"]
        layer = cls(columns, rows, **form | options)
        layer._keep(weights, bias)
        layer.wait_for_weights()
        return layer

    @classmethod
    def _pack(
        cls, linear: nn.Linear, group_size: int | None, format: str
    ) -> tuple[cleave.PackedWeights, Tensor | None]:
        """The layer's weight, rounded to nearest, and a copy of its bias."""
        scale_dtype = cls.int4_scales if format == "int4" else None
        weight, gated = linear.weight.detach(), cls.joins()
        weights = cleave.pack_weights(weight, group_size, format, scale_dtype=scale_dtype, gated=gated)
        return weights, None if linear.bias is None else linear.bias.detach().clone()

    @classmethod
    def joins(cls) -> bool:
        """Whether the activation joins gates and ups, for which a weight is packed with gated=True."""
        return cls.activation != "none"

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
