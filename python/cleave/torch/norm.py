"""Norms whose results are 8-bit numbers, for the linear layers that read them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from . import _rms_norm
from ._casts import moves_only
from ._eight_bits import Dtype, parse_dtype
from ._given_scales import check_smooth, static_scale
from ._rows import as_rows, check_features
from .linear import Activation

_normed = torch.ops.cleave.quantize_normed.default
_normed_sum = torch.ops.cleave.quantize_normed_sum.default
_normed_static = torch.ops.cleave.quantize_normed_static.default
_normed_sum_static = torch.ops.cleave.quantize_normed_sum_static.default


class Quantized(NamedTuple):
    """Rows in 8 bits, x ~ q * scale, which several `W8A8Linear` layers can take in place of x, quantised once.

    q: [..., K], int8 or float8_e4m3fn. scale: float32, [rows, 1], [rows, ceil(K / 128)],
    or [1] for all. dtype: that of x, and of the layers' results.
    """

    q: Tensor
    scale: Tensor
    dtype: torch.dtype = torch.bfloat16

    @property
    def shape(self) -> torch.Size:
        """The shape of the rows that were quantised."""
        return self.q.shape


class RMSNormQuantize(nn.Module):
    """The RMS norm of x, or of x + residual, quantised to 8 bits by the same kernel; for inference.

        norm = cleave.torch.RMSNormQuantize.from_norm(layer.input_layernorm, "float8_e4m3fn")
        x, residual = norm(x, residual)
        q, k, v = q_proj(x), k_proj(x), v_proj(x)  # W8A8Linear of that dtype

    x is [..., hidden_size], float16, bfloat16 or float32, and residual of the same shape, of any of these. The sum is
    rounded to the residual's dtype before it is normalised; the norm is not rounded before it is quantised. A row's
    result has the same bits whatever the other rows are. Legal in CUDA graphs once it has run on the same device, or
    was prepared by `cleave.prepare`.

    weight: [hidden_size], a parameter. granularity: "row" for a scale per row, or "block_1x128" for layers whose
    weights have block scales. activation_scale: [1], float32, for all rows of all calls, or None if scales are computed
    in each call. zero_centered: the stored weight is 1 less, as in Gemma.
    """

    def __init__(
        self,
        hidden_size: int,
        eps: float = 1e-6,
        *,
        dtype: Dtype = "int8",
        granularity: str = "row",
        activation: str = "dynamic",
        zero_centered: bool = False,
        device: Any = None,
        weight_dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.eps = eps
        self.dtype = parse_dtype(dtype)
        if granularity not in ("row", "block_1x128"):
            raise ValueError(f"granularity is {granularity!r}; norms find scales by 'row' or 'block_1x128'")
        if activation not in ("dynamic", "static"):
            raise ValueError(f'activation is {activation!r}; it must be "dynamic" or "static"')
        if granularity != "row" and activation == "static":
            raise ValueError(f'activation is static, but granularity is {granularity!r}; pass "dynamic", or "row"')
        self.granularity = granularity
        self.zero_centered = zero_centered
        weight = torch.full((hidden_size,), float(not zero_centered), device=device, dtype=weight_dtype)
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.register_buffer("activation_scale", torch.empty(1, device=device) if activation == "static" else None)

    @classmethod
    def from_norm(
        cls,
        norm: nn.Module,
        dtype: Dtype = "int8",
        *,
        granularity: str = "row",
        activation: Activation = "dynamic",
        zero_centered: bool = False,
        smooth: Tensor | None = None,
    ) -> RMSNormQuantize:
        """Converts an RMS norm with a `weight` and an `eps` (in transformers `variance_epsilon`), on its device.

        Other norms are refused, and Gemma's without zero_centered, by what they make of a few rows.

        activation: "dynamic", or one scale for all rows, as in `W8A8Linear.from_linear`.
        smooth: positive, one per channel: the result is divided by it, as `W8A8Linear.from_linear(..., smooth=smooth)`
        expects. It is folded into a float32 copy of the weight.
        """
        _rms_norm.check(norm, zero_centered)
        eps, weight = _rms_norm.eps_of(norm), norm.weight.detach()
        if smooth is not None:
            check_smooth(smooth, weight.numel())
            weight = (weight.float() + float(zero_centered)) / smooth - float(zero_centered)
        options = {"dtype": dtype, "granularity": granularity, "zero_centered": zero_centered}
        found = isinstance(activation, str)
        layer = cls(weight.numel(), eps, **options, activation=activation if found else "static", device="meta")
        if not found:
            layer.activation_scale = static_scale(activation).to(weight.device, torch.float32)
        layer.weight = nn.Parameter(weight, requires_grad=False)
        return layer

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Quantized | tuple[Quantized, Tensor]:
        """With a residual also x + residual, a new tensor, which the next layer adds to."""
        check_features(x, self.hidden_size, "hidden_size")
        rows = as_rows(x if x.dim() == 2 else x.reshape(-1, self.hidden_size))
        scale = self._buffers["activation_scale"]  # an attribute would cost half a microsecond
        if scale is not None:
            return self._with_given_scale(x, rows, residual, scale)
        options = ("rms_norm", self.eps, self.granularity, None, self.zero_centered)
        if residual is None:
            q, scale = _normed(rows, self.weight, self.dtype, *options)
            return Quantized(q.view(x.shape), scale, x.dtype)
        added = _as_summand(residual, x)
        q, scale, total = _normed_sum(rows, added, self.weight, self.dtype, *options)
        return Quantized(q.view(x.shape), scale, x.dtype), total.view(x.shape)

    def _with_given_scale(
        self, x: Tensor, rows: Tensor, residual: Tensor | None, scale: Tensor
    ) -> Quantized | tuple[Quantized, Tensor]:
        options = ("rms_norm", self.eps, "tensor", None, self.zero_centered)
        if residual is None:
            return Quantized(
                _normed_static(rows, scale, self.weight, self.dtype, *options).view(x.shape), scale, x.dtype
            )
        added = _as_summand(residual, x)
        q, total = _normed_sum_static(rows, added, scale, self.weight, self.dtype, *options)
        return Quantized(q.view(x.shape), scale, x.dtype), total.view(x.shape)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> RMSNormQuantize:
        return super()._apply(moves_only(fn, self.weight), recurse)

    def extra_repr(self) -> str:
        return (
            f"{self.hidden_size}, eps={self.eps}, dtype={self.dtype}, granularity={self.granularity}, "
            f"activation={'dynamic' if self.activation_scale is None else 'static'}, "
            f"zero_centered={self.zero_centered}"
        )


def _as_summand(residual: Tensor, x: Tensor) -> Tensor:
    if residual.shape != x.shape:
        raise ValueError(f"residual is {tuple(residual.shape)}; it must be {tuple(x.shape)}, as x is")
    return as_rows(residual.reshape(-1, x.shape[-1]))
