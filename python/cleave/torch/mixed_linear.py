"""Linear layers that multiply 4-bit weights by activations of 16 bits."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import cleave

from ._operators.packed_weight import dense
from ._packed_linear import PackedLinear

_mixed_gemm = torch.ops.cleave.mixed_gemm.full


class _Product(torch.autograd.Function):
    """mixed_gemm, with a gradient for its activations."""

    @staticmethod
    def forward(
        ctx: Any, static: bool, x: Tensor, packed: Tensor, scales: Tensor, zeros: Tensor | None, *form: Any
    ) -> Tensor:
        *_, ctx.format, global_scale = form
        ctx.save_for_backward(packed, scales, zeros, global_scale)
        ctx.columns = x.shape[1]
        return _mixed_gemm(x, packed, scales, zeros, *form, static_b=static)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        packed, scales, zeros, global_scale = ctx.saved_tensors
        weight = dense(packed, scales, zeros, global_scale, ctx.format, ctx.columns)
        return None, torch.ops.cleave.gemm(grad.contiguous(), weight.to(grad.dtype)), *[None] * 9


class W4A16Linear(PackedLinear):
    """y = x @ weight.T + bias, of a weight in 4 bits and an x of 16: for inference, and with gradients for x alone.

    The weight is packed once, and is dequantised in the product's kernel, just before it is multiplied: a call reads a
    quarter of the bytes. It is one kernel, legal in CUDA graphs once it has run on the same device with the same number
    of tokens, which `prepare` does. Results are repeatable bit by bit.

    x is [..., in_features], float16 or bfloat16; with "int4" of the scales' dtype, to which torch.autocast has it cast.
    y is [..., out_features], of x's dtype. For a gradient the weight is dequantised as a whole.

    Buffers, so that a state_dict has everything:
        packed, scales, zeros, perm, global_scale: as in `cleave.PackedWeights`; the last three may be None.
        version: [], int32, of the layout of `packed`.
        bias: [out_features], or None.
    Casting the module (`.half()`) casts the bias, and the scales, which are then rounded, to either type of 16 bits.

    static_weights: as of `W8A8Linear`.
    """

    @classmethod
    def from_linear(
        cls,
        linear: nn.Linear,
        group_size: int | None = None,
        format: str = "int4",
        *,
        static_weights: bool = True,
    ) -> W4A16Linear:
        """The layer in 4 bits, rounded to nearest as by `cleave.pack_weights`, on its device.

        group_size, format: as there. Scales and bias are of the layer's dtype, bfloat16 for a float32 one.
        """
        return cls.from_packed(*cls._pack(linear, group_size, format), static_weights=static_weights)

    @classmethod
    def from_packed(
        cls, weights: cleave.PackedWeights, bias: Tensor | None = None, *, static_weights: bool = True
    ) -> W4A16Linear:
        """The layer of a packed weight, which it keeps, on its device.

        bias: [out_features], cast to the dtype of the scales of "int4", else to bfloat16 if it has not 16 bits.
        """
        return cls._of(weights, bias, static_weights=static_weights)

    def forward(self, x: Tensor) -> Tensor:
        buffers = self._buffers  # as attributes, they cost half a microsecond each
        packed, scales, zeros, perm = buffers["packed"], buffers["scales"], buffers["zeros"], buffers["perm"]
        x = self._multiplied(x)
        rows = x.reshape(-1, self.in_features)
        rows = rows.contiguous() if perm is None else rows.index_select(1, perm)
        sizes, more = (self._shape[0], self.group_size), (self.format, buffers["global_scale"])
        form = packed, scales, zeros, *sizes, buffers["bias"], None, *more
        static = self.static_weights
        if torch.is_grad_enabled() and x.requires_grad and not self.joins():
            y = _Product.apply(static, rows, *form)
        else:
            y = _mixed_gemm(rows, *form, activation=self.activation, static_b=static)
        return y.view(*x.shape[:-1], self.out_features)
