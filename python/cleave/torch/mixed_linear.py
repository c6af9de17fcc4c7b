"""Linear layers that multiply 4-bit weights by activations of 16 bits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

import cleave

from .._weights.formats import int4_values
from .._weights.layout import codes_at, places_in_block
from .._weights.packed import VERSION, check_version, packed_shape
from ._casts import moves_only

_mixed_gemm = torch.ops.cleave.mixed_gemm.default

HALVES = (torch.bfloat16, torch.float16)

_PLACES = torch.tensor(places_in_block())


class _Product(torch.autograd.Function):
    """mixed_gemm, with a gradient for its activations."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, packed: Tensor, scales: Tensor, zeros: Tensor | None, *form: Any) -> Tensor:
        ctx.save_for_backward(packed, scales, zeros)
        ctx.columns = x.shape[1]
        return _mixed_gemm(x, packed, scales, zeros, *form)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        packed, scales, zeros = ctx.saved_tensors
        codes = codes_at(torch, packed, _PLACES.to(packed.device), scales.shape[1], ctx.columns)
        weight = int4_values(codes.float(), scales.float(), None if zeros is None else zeros.float())
        return torch.ops.cleave.gemm(grad.contiguous(), weight.to(scales.dtype)), *[None] * 6


class W4A16Linear(nn.Module):
    """y = x @ weight.T + bias, of a weight in 4 bits and an x of 16: for inference, and with gradients for x alone.

    The weight is packed once, and is dequantised in the product's kernel, just before it is multiplied: a call reads a
    quarter of the bytes. It is one kernel, legal in CUDA graphs once it has run on the same device with the same number
    of tokens, which `prepare` does. Results are repeatable bit by bit.

    x is [..., in_features], of the scales' dtype, float16 or bfloat16, to which torch.autocast has it cast; y is
    [..., out_features], of the same. For a gradient the weight is dequantised as a whole.

    Buffers, so that a state_dict has everything:
        packed, scales, zeros, perm: as in `cleave.PackedWeights`; zeros and perm may be None.
        version: [], int32, of the layout of `packed`.
        bias: [out_features], or None.
    Casting the module (`.half()`) casts the bias, and the scales, which are then rounded, to either type of 16 bits.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        group_size: int = 128,
        zeros: bool = False,
        act_order: bool = False,
        dtype: torch.dtype = torch.bfloat16,
        device: Any = None,
    ) -> None:
        """An empty one, to load a state_dict into: `from_linear` makes one of a layer.

        group_size: columns of a row that share a scale, -1 for all of them. zeros: groups have zero points. act_order:
        columns are permuted. dtype: of scales and bias.
        """
        super().__init__()
        if dtype not in HALVES:
            raise ValueError(f"dtype is {dtype}; scales are torch.bfloat16 or torch.float16")
        self.in_features = in_features
        self.out_features = out_features
        self.group_size = in_features if group_size == -1 else group_size
        if self.group_size <= 0 or in_features % self.group_size:
            raise ValueError(f"group_size is {group_size}, which does not divide in_features = {in_features}")
        grouped = in_features // self.group_size, out_features

        def empty(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
            return torch.empty(shape, dtype=dtype, device=device)

        self.register_buffer("packed", empty(packed_shape(out_features, in_features), torch.uint8))
        self.register_buffer("scales", empty(grouped, dtype))
        self.register_buffer("zeros", empty(grouped, torch.uint8) if zeros else None)
        self.register_buffer("perm", empty((in_features,), torch.int32) if act_order else None)
        self.register_buffer("version", torch.tensor(VERSION, dtype=torch.int32))
        self.register_buffer("bias", empty((out_features,), dtype) if bias else None)

    @classmethod
    def from_linear(cls, linear: nn.Linear, group_size: int | None = None) -> W4A16Linear:
        """The layer in 4 bits, rounded to nearest as by `cleave.pack_weights`, on its device.

        group_size: as there. Scales are of the layer's dtype, bfloat16 for a float32 one, whose bias is cast to it.
        """
        weights = cleave.pack_weights(linear.weight.detach(), group_size)
        return cls.from_packed(weights, None if linear.bias is None else linear.bias.detach().clone())

    @classmethod
    def from_packed(cls, weights: cleave.PackedWeights, bias: Tensor | None = None) -> W4A16Linear:
        """The layer of a packed weight of "int4", which it keeps, on its device.

        bias: [out_features], cast to the scales' dtype.
        """
        if weights.format != "int4":
            raise ValueError(f'weights are of format "{weights.format}"; layers are of "int4"')
        rows, columns = weights.shape
        layer = cls(
            columns,
            rows,
            bias is not None,
            group_size=weights.group_size,
            zeros=weights.zeros is not None,
            act_order=weights.perm is not None,
            dtype=weights.scales.dtype,
            device="meta",
        )
        layer.packed, layer.scales = weights.packed, weights.scales
        layer.zeros, layer.perm = weights.zeros, weights.perm
        layer.bias = None if bias is None else bias.detach().to(weights.packed.device, weights.scales.dtype)
        return layer

    def weights(self) -> cleave.PackedWeights:
        """The weight as `cleave.mixed_gemm` and `cleave.dequantize_weights` take it; nothing is copied."""
        return cleave.PackedWeights(
            self.packed, self.scales, self.zeros, (self.out_features, self.in_features), self.group_size, perm=self.perm
        )

    def forward(self, x: Tensor) -> Tensor:
        buffers = self._buffers  # as attributes, they cost half a microsecond each
        packed, scales, zeros, perm = buffers["packed"], buffers["scales"], buffers["zeros"], buffers["perm"]
        if x.shape[-1] != self.in_features:
            raise ValueError(f"x is {list(x.shape)}; its last dimension must be in_features, {self.in_features}")
        if x.dtype != scales.dtype:
            if not torch.is_autocast_enabled(x.device.type):
                raise TypeError(f"x is {x.dtype}, but the layer multiplies {scales.dtype}; cast the layer, or x")
            x = x.to(scales.dtype)
        rows = x.reshape(-1, self.in_features)
        rows = rows.contiguous() if perm is None else rows.index_select(1, perm)
        form = packed, scales, zeros, self.out_features, self.group_size, buffers["bias"]
        y = _Product.apply(rows, *form) if torch.is_grad_enabled() and x.requires_grad else _mixed_gemm(rows, *form)
        return y.view(*x.shape[:-1], self.out_features)

    def prepare(self, example: Tensor | int) -> None:
        """Compiles what a call needs, so that it may be captured: by making that call.

        example: an input, or a number of tokens. How a product is best split depends on the number of tokens, so each
        number that is captured has a kernel of its own.
        """
        if isinstance(example, int):
            example = self.scales.new_zeros((example, self.in_features))
        with torch.no_grad():
            self(example)

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}, "
            f"group_size={self.group_size}, zeros={self.zeros is not None}, act_order={self.perm is not None}, "
            f"dtype={self.scales.dtype}"
        )

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> W4A16Linear:
        return super()._apply(moves_only(fn, self.bias, self.scales, dtypes=HALVES), recurse)

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *arguments: Any) -> None:
        version = state_dict.get(f"{prefix}version")
        if version is not None and not version.is_meta:
            check_version(int(version), f"{prefix}version")
        super()._load_from_state_dict(state_dict, prefix, *arguments)
