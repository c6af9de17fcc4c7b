"""vLLM's experts by the plugin in integrations/vllm, of random tokens, beside plain torch."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from vllm_stand_ins import MoEActivation

FP8 = torch.float8_e4m3fn
TOKENS, TOP_K, COUNT, FEATURES = 9, 2, 4, 160


def moe_config(**others: Any) -> SimpleNamespace:
    settings = {"moe_backend": "auto", "activation": MoEActivation.SILU, "swiglu_limit": None}
    return SimpleNamespace(**settings | others)


def quantized_experts(weight: Any, dtype: Any, granularity: str) -> tuple[Any, Any]:
    parts = [torch.ops.cleave.quantize(w, dtype, granularity) for w in weight]
    return torch.stack([q for q, _ in parts]), torch.stack([scale for _, scale in parts])


def expanded(scale: Any, shape: Any) -> Any:
    """A scale for each element; of blocks of 128 where it has several each way."""
    *_, rows, cols = shape
    tall, wide = -(-rows // scale.shape[-2]), -(-cols // scale.shape[-1])
    tall, wide = (128 if 1 < size < whole else size for size, whole in ((tall, rows), (wide, cols)))
    return scale.repeat_interleave(tall, -2)[..., :rows, :].repeat_interleave(wide, -1)[..., :cols]


def values(q: Any, scale: Any) -> Any:
    scale = scale.reshape(-1, 1, 1) if q.ndim == 3 and scale.ndim == 1 else scale
    return q.float() * expanded(scale.reshape(1, 1) if scale.numel() == 1 else scale, q.shape)


def check_quantised(rows: Any, h: Any, dtype: Any, scale: Any) -> None:
    """That it is h to half a step, for a GPU's 8-bit products sum less exactly than float32, and h near the middle of
    two values rounds to either: to the other one in nine tokens moves the result by up to 2 %."""
    half_step = scale / 2 if dtype == torch.int8 else torch.maximum(h.abs() / 16, scale / 1024)
    most = scale * torch.iinfo(dtype).max if dtype == torch.int8 else scale * torch.finfo(dtype).max
    near = half_step + h.abs() / 128 + h.square().mean().sqrt() / 100  # h had 16 bits on the way
    assert ((rows - h.clamp(-most, most)).abs() <= near).all()


def swiglu(h: Any, limit: float = torch.inf) -> Any:
    gate, up = h.chunk(2, 1)
    return torch.nn.functional.silu(gate.clamp(max=limit)) * up.clamp(-limit, limit)


SCHEMES = {
    "block": (FP8, "block_128x128", "block_1x128", False),
    "channel": (FP8, "row", "row", False),
    "tensor-token": (FP8, "tensor", "row", False),
    "tensor-static": (FP8, "tensor", "tensor", True),
    "int8": (torch.int8, "row", "row", False),
}


def recording(experts: ModuleType) -> Any:
    """Experts that keep what they multiply: of the second product, in the end."""

    class Recording(experts.CleaveExperts):
        def _multiply(self, rows: Any, scale: Any, *others: Any) -> Any:
            self.rows, self.scale = rows, scale
            return super()._multiply(rows, scale, *others)

    return Recording


def run(experts: ModuleType, scheme: str, **how: Any) -> tuple[Any, Any]:
    """What the kernel makes of random tokens, and plain torch of what the kernel quantised between its products, which
    must be what torch has there."""
    dtype, of_weights, of_rows, static = SCHEMES[scheme]
    hidden = 128 if of_weights == "block_128x128" else 96  # vLLM has no block that gates and ups share
    activation, limit = how.get("activation", MoEActivation.SILU), how.get("limit")
    x = torch.randn(TOKENS, FEATURES)
    w1, s1 = quantized_experts(torch.randn(COUNT, 2 * hidden, FEATURES) / 8, dtype, of_weights)
    w2, s2 = quantized_experts(torch.randn(COUNT, FEATURES, hidden) / 8, dtype, of_weights)
    if of_weights == "tensor":
        s1, s2 = s1.reshape(COUNT), s2.reshape(COUNT)
    a1, a2 = (torch.tensor([0.01]), torch.tensor([0.02])) if static else (None, None)
    if static:
        q, scale = torch.ops.cleave.quantize_static(x, a1, dtype, "tensor"), a1
    else:
        q, scale = torch.ops.cleave.quantize(x, dtype, of_rows)
    ids = torch.stack([torch.randperm(2 * COUNT)[:TOP_K] for _ in range(TOKENS)]).int()
    weights = torch.rand(TOKENS, TOP_K)
    ours = range(2, 2 + COUNT)  # of all experts, this rank's
    expert_map = torch.full((2 * COUNT,), -1, dtype=torch.int32)
    expert_map[ours.start : ours.stop] = torch.arange(COUNT, dtype=torch.int32)
    if not how.get("ranks"):
        ids, expert_map, ours = ids % COUNT, None, range(COUNT)
    settings = {"w1_scale": s1, "w2_scale": s2, "w1_bias": None, "w2_bias": None}
    settings["block_shape"] = [128, 128] if of_weights == "block_128x128" else None
    kernel = recording(experts)(moe_config(swiglu_limit=limit), SimpleNamespace(**settings))
    output = torch.full((TOKENS, FEATURES), torch.nan, dtype=torch.bfloat16)
    arguments = {"topk_weights": weights, "topk_ids": ids, "activation": activation, "global_num_experts": 2 * COUNT}
    arguments |= {"expert_map": expert_map, "a1q_scale": scale, "a2_scale": a2, "workspace13": None}
    arguments |= {"workspace2": None, "expert_tokens_meta": None}
    on_input = how.get("on_input", False)
    returned = kernel.apply(output, q, w1, w2, **arguments, apply_router_weight_on_input=on_input)
    assert returned is None
    scales = expanded(kernel.scale.reshape(len(kernel.scale), -1), kernel.rows.shape)
    second = kernel.rows.float() * scales
    expected, end = torch.zeros(TOKENS, FEATURES), 0
    for expert in ours:
        local = expert - ours.start
        slots = (ids == expert).flatten().nonzero().flatten()
        tokens, begin, end = slots // TOP_K, end, end + len(slots)
        h = values(q, scale)[tokens] @ values(w1[local], s1[local]).T
        if activation is MoEActivation.GELU:
            h = torch.nn.functional.gelu(h[:, :hidden]) * h[:, hidden:]
        else:
            h = swiglu(h, torch.inf if limit is None else limit)
        if not static:
            own = torch.ops.cleave.quantize(h.contiguous(), dtype, of_rows)[1]
            torch.testing.assert_close(kernel.scale[begin:end], own, rtol=0.01, atol=0)
        check_quantised(second[begin:end], h, dtype, scales[begin:end])
        y = second[begin:end] @ values(w2[local], s2[local]).T
        share = torch.ones(len(slots)) if on_input else weights.flatten()[slots]
        expected.index_add_(0, tokens, share[:, None] * y)
    return output.float(), expected


# --- 4 bits ---


def words(codes: Any, dim: int) -> Any:
    """int32, each of eight codes that follow each other along a dimension, lowest bits first."""
    parts = codes.long().unflatten(dim, (-1, 8)).unbind(dim + 1)
    packed = sum(part << 4 * place for place, part in enumerate(parts))
    return torch.where(packed < 2**31, packed, packed - 2**32).int()


def mixed_config(**others: Any) -> SimpleNamespace:
    shape = 256, 96
    settings = {"weight_type": "uint4b8", "act_type": torch.bfloat16, "group_size": 64, "zero_points": False}
    return SimpleNamespace(**{"partition_weight_shape": shape, "full_weight_shape": shape} | settings | others)


def mixed(module: ModuleType, group_size: int, zero_points: bool) -> tuple[Any, Any]:
    """What the kernel of linear layers makes of random rows, and plain torch."""
    kind = {"weight_type": "uint4"} if zero_points else {}
    config = mixed_config(group_size=group_size, zero_points=zero_points, **kind)
    assert module.CleaveMixedLinearKernel.can_implement(config) == (True, None)
    columns, rows = config.partition_weight_shape
    group = columns if group_size == -1 else group_size
    codes = torch.randint(0, 16, (columns, rows))
    scales = (torch.rand(columns // group, rows) / 16).half()
    zeros = torch.randint(0, 16, (columns // group, rows)) if zero_points else torch.full((columns // group, rows), 8)
    layer = SimpleNamespace(qweight=words(codes, 0), scales=scales, qzeros=words(zeros, 1))
    kernel = module.CleaveMixedLinearKernel(config, "qweight", "scales", "qzeros")
    kernel.process_weights_after_loading(layer)
    x, bias = torch.randn(2, 3, columns).bfloat16(), torch.randn(rows).bfloat16()
    y = kernel.apply_weights(layer, x, bias)
    assert y.dtype == x.dtype and y.shape == (2, 3, rows)
    weight = (codes - zeros.repeat_interleave(group, 0)) * scales.bfloat16().float().repeat_interleave(group, 0)
    return y.float(), x.float() @ weight + bias.float()
