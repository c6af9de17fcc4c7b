"""Linear layers that multiply 4-bit weights by activations of 8 bits."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import cleave

from ._eight_bits import Dtype, parse_dtype
from ._packed_bytes import INT4_SCALES, with_float16
from ._packed_linear import PackedLinear
from ._rows import check_features

_mixed_gemm = torch.ops.cleave.mixed_gemm.full
_quantize = torch.ops.cleave.quantize.default


class W4A8Linear(PackedLinear):
    """y = x @ weight.T + bias, of a weight in 4 bits and activations of 8: for inference, without gradients.

    The weight is packed once. Activations are quantised in each call, with a scale per token; codes become 8-bit
    elements in the product's kernel, exactly, and sums of a group are scaled as float32. A call is two kernels, legal
    in CUDA graphs once they have run on the same device with the same number of tokens, which `prepare` does. Results
    are repeatable bit by bit.

    x is [..., in_features], float16, bfloat16 or float32; y is [..., out_features], of x's dtype.

    Buffers, so that a state_dict has everything: those of `W4A16Linear`; scales of "int4" are float16 here, whatever
    the layer is cast to. Casting the module (`.half()`) casts the bias.

    static_weights: as of `W8A8Linear`.
    """

    int4_scales = INT4_SCALES

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        activation_dtype: Dtype = "float8_e4m3fn",
        **options: Any,
    ) -> None:
        """An empty one, to load a state_dict into: `from_linear` makes one of a layer.

        activation_dtype: "float8_e4m3fn" or "int8". Others: as of `W4A16Linear`; dtype is the bias's.
        """
        eight = parse_dtype(activation_dtype, "activation_dtype")
        super().__init__(in_features, out_features, bias, **options)
        self.activation_dtype = eight

    @classmethod
    def from_linear(
        cls,
        linear: nn.Linear,
        group_size: int | None = None,
        format: str = "int4",
        activation_dtype: Dtype = "float8_e4m3fn",
        *,
        static_weights: bool = True,
    ) -> W4A8Linear:
        """The layer in 4 bits, rounded to nearest as by `cleave.pack_weights`, on its device."""
        packed = cls._pack(linear, group_size, format)
        return cls.from_packed(*packed, activation_dtype, static_weights=static_weights)

    @classmethod
    def from_packed(
        cls,
        weights: cleave.PackedWeights,
        bias: Tensor | None = None,
        activation_dtype: Dtype = "float8_e4m3fn",
        *,
        static_weights: bool = True,
    ) -> W4A8Linear:
        """The layer of a packed weight, which it keeps, on its device; scales of bfloat16 become float16.

        bias: [out_features], cast to bfloat16 if it has not 16 bits. ValueError for scales that float16 has not.
        """
        options = {"activation_dtype": activation_dtype, "static_weights": static_weights}
        return cls._of(with_float16(weights), bias, **options)

    def forward(self, x: Tensor) -> Tensor:
        check_features(x, self.in_features)
        buffers = self._buffers  # as attributes, they cost half a microsecond each
        perm = buffers["perm"]
        rows = x.reshape(-1, self.in_features)
        rows = rows.contiguous() if perm is None else rows.index_select(1, perm)
        q, scale = _quantize(rows, self.activation_dtype)
        y = _mixed_gemm(
            q,
            buffers["packed"],
            buffers["scales"],
            buffers["zeros"],
            self._shape[0],
            self.group_size,
            buffers["bias"],
            x.dtype,
            self.format,
            buffers["global_scale"],
            scale,
            activation=self.activation,
            static_b=self.static_weights,
        )
        return y.view(*x.shape[:-1], self.out_features)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, activation_dtype={self.activation_dtype}"
