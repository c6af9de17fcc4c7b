"""vLLM's mixtures of experts in 8 bits: two grouped products of the tokens in the order of their experts."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
import vllm.model_executor.layers.fused_moe.modular_kernel as mk
from torch import Tensor
from vllm import envs
from vllm.model_executor.layers.fused_moe.activation import MoEActivation, apply_moe_activation_supported
from vllm.model_executor.layers.fused_moe.topk_weight_and_reduce import TopKWeightAndReduceNoOP
from vllm.model_executor.layers.quantization.utils.quant_utils import (
    kFp8Dynamic128Sym,
    kFp8DynamicTokenSym,
    kFp8Static128BlockSym,
    kFp8StaticChannelSym,
    kFp8StaticTensorSym,
    kInt8DynamicTokenSym,
    kInt8StaticChannelSym,
)
from vllm.platforms import current_platform

from .answer import Answer

_ops = torch.ops.cleave

# What weights and activations have.
_SCHEMES = (
    (kFp8Static128BlockSym, kFp8Dynamic128Sym),
    (kFp8StaticChannelSym, kFp8DynamicTokenSym),
    (kFp8StaticTensorSym, kFp8DynamicTokenSym),
    (kFp8StaticTensorSym, kFp8StaticTensorSym),
    (kInt8StaticChannelSym, kInt8DynamicTokenSym),
)


def _has_capability(least: int) -> bool:
    return current_platform.is_cpu() or (current_platform.is_cuda() and current_platform.has_device_capability(least))


class CleaveExperts(mk.FusedMoEExpertsModular):
    """Experts whose weights and activations have 8 bits; SwiGLU is a part of the first product.

    Weights are [experts, out, in], the gates before the ups, as vLLM has them for its own Triton kernels.
    """

    @staticmethod
    def is_supported_config(
        cls: type[mk.FusedMoEExperts],
        moe_config: Any,
        weight_key: Any,
        activation_key: Any,
        activation_format: mk.FusedMoEActivationFormat,
    ) -> Answer:
        if moe_config.moe_backend != "auto":
            return False, f"--moe-backend asks for {moe_config.moe_backend}"
        if cls.__name__ in envs.VLLM_DISABLED_KERNELS:
            return False, f"{cls.__name__} is disabled by environment variable"
        return mk.FusedMoEExpertsModular.is_supported_config(
            cls, moe_config, weight_key, activation_key, activation_format
        )

    @staticmethod
    def activation_format() -> mk.FusedMoEActivationFormat:
        return mk.FusedMoEActivationFormat.Standard

    @staticmethod
    def _supports_current_device() -> bool:
        return _has_capability(80)

    @staticmethod
    def _supports_no_act_and_mul() -> bool:
        return True

    @staticmethod
    def _supports_quant_scheme(weight_key: Any, activation_key: Any) -> bool:
        return (weight_key, activation_key) in _SCHEMES and (weight_key.dtype == torch.int8 or _has_capability(89))

    @staticmethod
    def _supports_activation(activation: MoEActivation) -> bool:
        return apply_moe_activation_supported(activation)

    @staticmethod
    def _supports_parallel_config(moe_parallel_config: Any) -> bool:
        c = moe_parallel_config
        return not (c.use_fi_nvl_two_sided_kernels or c.use_fi_nvl_one_sided_kernels)

    def workspace_shapes(
        self,
        M: int,
        N: int,
        K: int,
        topk: int,
        global_num_experts: int,
        local_num_experts: int,
        expert_tokens_meta: mk.ExpertTokensMetadata | None,
        activation: MoEActivation,
    ) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        return (0,), (0,), (M, K)  # operators allocate their results

    def finalize_weight_and_reduce_impl(self) -> mk.TopKWeightAndReduce:
        return TopKWeightAndReduceNoOP()

    def apply(
        self,
        output: Tensor,
        hidden_states: Tensor,
        w1: Tensor,
        w2: Tensor,
        topk_weights: Tensor,
        topk_ids: Tensor,
        activation: MoEActivation,
        global_num_experts: int,
        expert_map: Tensor | None,
        a1q_scale: Tensor | None,
        a2_scale: Tensor | None,
        workspace13: Tensor,
        workspace2: Tensor,
        expert_tokens_meta: mk.ExpertTokensMetadata | None,
        apply_router_weight_on_input: bool,
    ) -> None:
        # Another rank's expert is -1 then, whose slots add nothing.
        ids = topk_ids if expert_map is None else expert_map[topk_ids]
        offs, indices = _ops.moe_sort_tokens(ids.contiguous(), w1.shape[0])
        rows = _ops.moe_gather(hidden_states, indices)
        scale = a1q_scale if a1q_scale.numel() == 1 else _ops.moe_gather(a1q_scale.contiguous(), indices)
        if activation == MoEActivation.SILU and self.activation_config.clamp_limit is None:
            h = self._multiply(rows, scale, w1, self.w1_scale, offs, self.w1_bias, output.dtype, "swiglu")
        else:
            gate_up = self._multiply(rows, scale, w1, self.w1_scale, offs, self.w1_bias, output.dtype, "none")
            h = gate_up.new_empty(len(gate_up), self.adjust_N_for_activation(w1.shape[1], activation))
            self.activation(activation, h, gate_up)
        if a2_scale is not None:
            q, scale = _ops.quantize_static(h, a2_scale.reshape(-1), w2.dtype, "tensor"), a2_scale
        else:
            q, scale = _ops.quantize(h, w2.dtype, "row" if self.block_shape is None else "block_1x128")
        y = self._multiply(q, scale, w2, self.w2_scale, offs, self.w2_bias, output.dtype, "none")
        weights = torch.ones_like(topk_weights) if apply_router_weight_on_input else topk_weights
        output.copy_(_ops.moe_unpermute(y, indices, weights.contiguous()))

    def _multiply(
        self,
        rows: Tensor,
        scale: Tensor,
        weight: Tensor,
        weight_scale: Tensor,
        offs: Tensor,
        bias: Tensor | None,
        dtype: torch.dtype,
        activation: str,
    ) -> Tensor:
        if self.block_shape is not None:
            weight_scale = weight_scale.mT
        else:
            experts, outputs, _ = weight.shape
            scale = scale.reshape(-1).expand(len(rows)).contiguous()
            weight_scale = weight_scale.reshape(experts, -1).expand(experts, outputs).contiguous()
        return _ops.grouped_gemm.full(rows, weight.mT, offs, bias, dtype, scale, weight_scale, activation=activation)


def offer(oracle: ModuleType) -> None:
    """Has one of vLLM's modules that choose kernels for experts try these first; once, whatever the number of calls.

    There is no list that a plugin could add to: the module's own functions are wrapped, by which it asks for the order
    of backends, and for the kernels of one. These are listed as another kernel of Triton's, since its backend keeps
    weights as they are, and that backend comes first where they serve the layer.
    """
    theirs, order = oracle.backend_to_kernel_cls, oracle._get_priority_backends
    if hasattr(theirs, "__wrapped__"):
        return

    def backend_to_kernel_cls(backend: Any) -> list[type[mk.FusedMoEExperts]]:
        return [*([CleaveExperts] if backend.name == "TRITON" else []), *theirs(backend)]

    def _get_priority_backends(moe_config: Any, *keys: Any) -> list[Any]:
        backends = order(moe_config, *keys)
        standard = mk.FusedMoEActivationFormat.Standard
        if keys and CleaveExperts.is_supported_config(CleaveExperts, moe_config, *keys, standard)[0]:
            backends.sort(key=lambda backend: backend.name != "TRITON")
        return backends

    for wrapper, function in ((backend_to_kernel_cls, theirs), (_get_priority_backends, order)):
        _wrap(oracle, wrapper, function)


def _wrap(oracle: ModuleType, wrapper: Callable[..., Any], function: Callable[..., Any]) -> None:
    wrapper.__wrapped__ = function
    setattr(oracle, function.__name__, wrapper)
