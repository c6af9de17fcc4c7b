"""Layers whose weight is packed in 4 bits: their buffers, how they are cast and loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from numbers import Integral
from typing import Any

import torch
from torch import Tensor, nn

import cleave

from .._weights.formats import INT4, find_format
from .._weights.packed import GATE_ROWS, VERSION, check_gate_rows, check_perm, check_version, packed_shape
from .._weights.packing import check_scales, group_size_of
from ._casts import moves_only
from ._registered import register_buffers
from ._rows import check_features

HALVES = (torch.bfloat16, torch.float16)


def check_bias(name: str, bias: Tensor | None, weights: cleave.PackedWeights) -> None:
    if bias is not None and bias.shape != weights.shape[:-1]:
        raise ValueError(
            f"{name} is {list(bias.shape)}; beside weights {list(weights.shape)} it must be {list(weights.shape[:-1])}"
        )


class PackedLayer(nn.Module):
    """The buffers of a `cleave.PackedWeights`, of one weight or of `experts` of them, the version of its layout, a
    bias, and where it is gated `gate_rows`: so many gates and as many ups take turns in it."""

    int4_scales: torch.dtype | None = None  # the dtype of scales of "int4", if it is not the layer's own

    def __init__(
        self,
        experts: tuple[int, ...],
        in_features: int,
        rows: int,
        bias: bool,
        *,
        group_size: int | None,
        format: str,
        zeros: bool,
        act_order: bool,
        gated: bool = False,
        dtype: torch.dtype,
        device: Any,
    ) -> None:
        """rows: the weight's, of which two are joined to one of out_features where it is gated."""
        super().__init__()
        for name, size in (("in_features", in_features), ("out_features", rows)):
            if not isinstance(size, Integral):
                raise TypeError(f"{name} is {size!r}; it must be an integer")
        if dtype not in HALVES:
            raise ValueError(f"dtype is {dtype}; it must be torch.bfloat16 or torch.float16")
        form = find_format(format)
        if zeros and not form.zero_points:
            raise ValueError(f'zeros is True, but format is "{format}", which has none; leave it out')
        if gated:
            check_gate_rows(rows)
        self.in_features = in_features
        self.out_features = rows // 2 if gated else rows
        self.format = format
        self.group_size = group_size_of(form, group_size, in_features)
        self._shape = (*experts, rows, in_features)
        grouped = (*experts, in_features // self.group_size, rows)

        def empty(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
            return torch.empty(shape, dtype=dtype, device=device)

        scale_dtype = self.int4_scales or dtype if form is INT4 else getattr(torch, form.scale_dtypes[0])
        # In no state_dict of others.
        gates = {"gate_rows": torch.tensor(GATE_ROWS, dtype=torch.int32)} if gated else {}
        register_buffers(
            self,
            packed=empty((*experts, *packed_shape(rows, in_features)), torch.uint8),
            scales=empty(grouped, scale_dtype),
            zeros=empty(grouped, torch.uint8) if zeros else None,
            perm=empty((in_features,), torch.int32) if act_order else None,
            global_scale=empty(experts or (1,), torch.float32) if form.global_scale else None,
            version=torch.tensor(VERSION, dtype=torch.int32),
            bias=empty((*experts, rows), dtype) if bias else None,
            **gates,
        )

    @classmethod
    def _options_of(cls, weights: cleave.PackedWeights, bias: Tensor | None) -> dict[str, Any]:
        """The options of an empty layer that is to keep them: of the dtype of the scales of "int4", if that is the
        layer's, else of the bias's, or bfloat16 if that has not 16 bits."""
        tensors = (weights.scales, bias) if cls.int4_scales is None else (bias,)
        dtypes = [each.dtype for each in tensors if each is not None and each.dtype in HALVES]
        return {
            "bias": bias is not None,
            "group_size": weights.group_size,
            "format": weights.format,
            "zeros": weights.zeros is not None,
            "act_order": weights.perm is not None,
            "gated": weights.gated,
            "dtype": next(iter(dtypes), torch.bfloat16),
            "device": "meta",
        }

    def weights(self) -> cleave.PackedWeights:
        """The weight as `cleave.mixed_gemm` and `cleave.dequantize_weights` take it; nothing is copied."""
        return cleave.PackedWeights(
            self.packed,
            self.scales,
            self.zeros,
            self._shape,
            self.group_size,
            self.format,
            self.perm,
            self.global_scale,
            gated=self.gated,
        )

    @property
    def gated(self) -> bool:
        """Whether products join the weight's rows, a gate's and its up's, to one output."""
        return "gate_rows" in self._buffers

    def _keep(self, weights: cleave.PackedWeights, bias: Tensor | None) -> None:
        """bias: cast to the layer's."""
        if bias is not None:
            self.bias = bias.detach().to(weights.packed.device, self.bias.dtype)
        self.packed, self.scales = weights.packed, weights.scales
        self.zeros, self.perm, self.global_scale = weights.zeros, weights.perm, weights.global_scale

    def _multiplied(self, x: Tensor) -> Tensor:
        """x as it is multiplied. ValueError and TypeError, naming it, for what cannot be."""
        check_features(x, self.in_features)
        own = self._buffers["scales"].dtype
        if x.dtype == own or (own not in HALVES and x.dtype in HALVES):
            return x
        wanted = own if own in HALVES else torch.get_autocast_dtype(x.device.type)
        if not torch.is_autocast_enabled(x.device.type):
            raise TypeError(f"x is {x.dtype}, but the layer multiplies {wanted}; cast the layer, or x")
        return x.to(wanted)

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, format={self.format}, "
            f"group_size={self.group_size}, zeros={self.zeros is not None}, act_order={self.perm is not None}, "
            f"scales={self.scales.dtype}, bias={self.bias is not None}"
        )

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> PackedLayer:
        scales = self.scales if self.int4_scales is None and self.scales.dtype in HALVES else None
        return super()._apply(moves_only(fn, self.bias, scales, dtypes=HALVES), recurse)

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *arguments: Any) -> None:
        version = state_dict.get(f"{prefix}version")
        if version is not None and not version.is_meta:
            check_version(int(version), f"{prefix}version")
        gated = f"{prefix}gate_rows" in state_dict
        if f"{prefix}packed" in state_dict and gated != self.gated:
            raise ValueError(
                f"{prefix}packed is {'' if gated else 'not '}packed with gated=True, but the layer is "
                f"{'' if self.gated else 'not '}of such a weight; make one of the other"
            )
        scales = state_dict.get(f"{prefix}scales")
        own = self.scales.dtype
        served = (*HALVES, torch.float32) if own in HALVES else (own,)
        if scales is not None and scales.dtype not in served:
            raise ValueError(
                f'{prefix}scales is {scales.dtype}, but the layer is of format "{self.format}"; make one of the other'
            )
        if scales is not None and scales.is_floating_point() and scales.is_cpu:
            check_scales(torch, scales.to(own), f"{prefix}scales")
        perm = state_dict.get(f"{prefix}perm")
        if perm is not None and perm.is_cpu:
            check_perm(perm, f"{prefix}perm")
        found = state_dict.get(f"{prefix}global_scale")
        if self.global_scale is not None and found is not None and found.shape == self._shape[:-1]:
            self.global_scale = self.global_scale.new_empty(found.shape)  # one for each row
        super()._load_from_state_dict(state_dict, prefix, *arguments)
