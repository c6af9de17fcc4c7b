"""vLLM's linear layers with weights of 4 bits beside activations of 16."""

from __future__ import annotations

import torch
from torch import Tensor
from vllm.model_executor.kernels.linear.mixed_precision.MPLinearKernel import MPLinearKernel
from vllm.model_executor.layers.quantization.utils.quant_utils import unpack_quantized_values_into_int32
from vllm.model_executor.parameter import permute_param_layout_
from vllm.platforms import current_platform
from vllm.scalar_type import scalar_types

import cleave

from .answer import YES, Answer

_GROUPS = (-1, 32, 64)  # and multiples of 128


class CleaveMixedLinearKernel(MPLinearKernel):
    """int4, with or without zero points, whose scales rows or groups of their columns share."""

    @classmethod
    def get_min_capability(cls) -> int:
        return 80

    @classmethod
    def can_implement(cls, c) -> Answer:
        if not (current_platform.is_cuda() or current_platform.is_cpu()):
            return False, "requires CUDA"
        wanted = scalar_types.uint4 if c.zero_points else scalar_types.uint4b8
        if c.weight_type != wanted:
            return False, f"has weights of {c.weight_type}; {wanted} are served"
        if c.act_type not in (torch.float16, torch.bfloat16):
            return False, f"has activations of {c.act_type}; float16 and bfloat16 are served"
        if c.group_size not in _GROUPS and c.group_size % 128:
            return False, f"has groups of {c.group_size}; 32, 64, multiples of 128 and whole rows are served"
        columns, all_columns = c.partition_weight_shape[0], c.full_weight_shape[0]
        if c.group_size == -1 and columns != all_columns:
            return False, f"has {columns} of {all_columns} columns, which share a scale"
        if c.group_size != -1 and columns % c.group_size:
            return False, f"has {columns} columns, which groups of {c.group_size} do not divide"
        return YES

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        c = self.config

        def zeros(words: Tensor) -> Tensor:
            permute_param_layout_(words, input_dim=0, output_dim=1, packed_dim=1)
            return self._codes(words, 1)

        def scales(scale: Tensor) -> Tensor:
            permute_param_layout_(scale, input_dim=0, output_dim=1)
            return scale.data.to(c.act_type).contiguous()

        def packed(words: Tensor) -> Tensor:
            permute_param_layout_(words, input_dim=0, output_dim=1, packed_dim=0)
            _, of_groups, zero = self._get_weight_params(layer)
            zero = zero if c.zero_points else None
            weights = cleave.pack_weights(self._codes(words, 0).t(), c.group_size, scales=of_groups.data, zeros=zero)
            self._group = weights.group_size
            return weights.packed

        if c.zero_points:
            self._transform_param(layer, self.w_zp_name, zeros)
        self._transform_param(layer, self.w_s_name, scales)
        self._transform_param(layer, self.w_q_name, packed)

    def _codes(self, words: Tensor, packed_dim: int) -> Tensor:
        codes = unpack_quantized_values_into_int32(words.data, self.config.weight_type, packed_dim)
        return codes.to(torch.uint8).contiguous()

    def apply_weights(self, layer: torch.nn.Module, x: Tensor, bias: Tensor | None = None) -> Tensor:
        outputs = self.config.partition_weight_shape[1]
        packed, scales, zeros = self._get_weight_params(layer)
        zeros = zeros if self.config.zero_points else None
        rows = x.reshape(-1, x.shape[-1]).contiguous()
        y = torch.ops.cleave.mixed_gemm.default(rows, packed, scales, zeros, outputs, self._group, bias)
        return y.view(*x.shape[:-1], outputs)
