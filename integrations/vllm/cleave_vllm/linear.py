"""The kernels of vLLM's linear layers in 8 bits: how each multiplies what vLLM has loaded and quantised."""

from __future__ import annotations

import torch
from torch import Tensor
from vllm.model_executor.kernels.linear.scaled_mm.BlockScaledMMLinearKernel import Fp8BlockScaledMMLinearKernel
from vllm.model_executor.kernels.linear.scaled_mm.cutlass import CutlassInt8ScaledMMLinearKernel
from vllm.model_executor.kernels.linear.scaled_mm.ScaledMMLinearKernel import FP8ScaledMMLinearKernel
from vllm.platforms import current_platform

from .answer import YES, Answer

_ops = torch.ops.cleave


def _is_supported(compute_capability: int | None, oldest: int) -> Answer:
    if current_platform.is_cpu():
        return YES
    if not current_platform.is_cuda():
        return False, "requires CUDA"
    if compute_capability is not None and compute_capability < oldest:
        return False, f"requires compute capability {oldest / 10}"
    return YES


class CleaveFp8LinearKernel(FP8ScaledMMLinearKernel):
    """float8_e4m3fn with a scale of the tensor or of each channel, activations as vLLM quantises them."""

    @classmethod
    def is_supported(cls, compute_capability: int | None = None) -> Answer:
        return _is_supported(compute_capability, 89)

    @classmethod
    def can_implement(cls, c) -> Answer:
        for name, key in (("weights", c.weight_quant_key), ("activations", c.activation_quant_key)):
            shape = key.scale.group_shape
            if not (shape.is_per_tensor() or shape.is_per_token() or shape.is_per_channel()):
                return (
                    False,
                    f"has {name} in groups of {tuple(shape)}; scales of tensors, tokens and channels are served",
                )
        return YES

    def apply_scaled_mm(
        self,
        *,
        A: Tensor,
        B: Tensor,
        out_dtype: torch.dtype,
        As: Tensor,
        Bs: Tensor,
        bias: Tensor | None,
        output_shape: list,
    ) -> Tensor:
        """A [M, K], B [K, N] column by column; As one value or M, Bs one or N."""
        y = _ops.scaled_gemm.default(A, B, As.reshape(-1), Bs.reshape(-1), bias, out_dtype)
        return y.view(*output_shape)


class CleaveFp8BlockLinearKernel(Fp8BlockScaledMMLinearKernel):
    """float8_e4m3fn in blocks of 128 x 128, activations in groups of 128."""

    @classmethod
    def is_supported(cls, compute_capability: int | None = None) -> Answer:
        return _is_supported(compute_capability, 89)

    @classmethod
    def can_implement(cls, config) -> Answer:
        served, reason = super().can_implement(config)
        if not served:
            return served, reason
        weights = tuple(config.weight_quant_key.scale.group_shape)
        activations = tuple(config.activation_quant_key.scale.group_shape)
        if (weights, activations) != ((128, 128), (1, 128)):
            return False, f"has blocks of {weights} and groups of {activations}; (128, 128) and (1, 128) are served"
        return YES

    def apply_block_scaled_mm(self, A: Tensor, B: Tensor, As: Tensor, Bs: Tensor) -> Tensor:
        """A [M, K], B [N, K], As [M, K / 128], Bs [N / 128, K / 128], quotients rounded up."""
        return _ops.scaled_gemm.default(A, B.t(), As, Bs.t(), None, self.config.out_dtype)


class CleaveInt8LinearKernel(CutlassInt8ScaledMMLinearKernel):
    """int8, with weights and zero points as vLLM lays them out for its own kernel; activations by token, or static."""

    @classmethod
    def is_supported(cls, compute_capability: int | None = None) -> Answer:
        return _is_supported(compute_capability, 80)

    def apply_weights(self, layer: torch.nn.Module, x: Tensor, bias: Tensor | None = None) -> Tensor:
        weight, weight_scale, scale, zero, azp_adj = self._get_layer_params(layer)
        rows = x.reshape(-1, x.shape[-1]).contiguous()
        azp = None
        if scale is not None:
            zero = None if azp_adj is None else zero.reshape(-1)  # which azp_adj has in it
            q = _ops.quantize_static(rows, scale.reshape(-1), torch.int8, "tensor", None, zero)
        elif azp_adj is None:
            q, scale = _ops.quantize(rows, torch.int8, "row")
        else:
            q, scale, azp = _ops.quantize_asymmetric(rows, "row")
        scales = scale.reshape(-1), weight_scale.reshape(-1)
        if azp_adj is None:
            y = _ops.scaled_gemm.default(q, weight, *scales, bias, x.dtype)
        else:
            azp = None if azp is None else azp.reshape(-1)
            y = _ops.scaled_gemm.full(q, weight, *scales, bias, x.dtype, azp=azp, azp_adj=azp_adj.reshape(-1))
        return y.view(*x.shape[:-1], weight.shape[1])


# By vLLM's kinds of layers.
KERNELS = {
    "fp8": CleaveFp8LinearKernel,
    "fp8_block": CleaveFp8BlockLinearKernel,
    "int8": CleaveInt8LinearKernel,
}
