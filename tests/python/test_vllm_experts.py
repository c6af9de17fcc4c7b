"""The plugin in integrations/vllm: experts in 8 bits, and linear layers in 4, as `test_vllm_plugin` has the others."""

from __future__ import annotations

import importlib
import inspect
import json
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from doc_snippets import ROOT
from vllm_stand_ins import EXPERTS, LAYERS, ActivationFormat, Backend, MoEActivation, platform, vllm_stand_in  # noqa: F401

torch = pytest.importorskip("torch", minversion="2.10")
pytest.importorskip("cleave.torch", exc_type=ImportError)

FP8 = torch.float8_e4m3fn
TOKENS, TOP_K, COUNT, FEATURES, HIDDEN = 9, 2, 4, 160, 96


@pytest.fixture
def experts(vllm: ModuleType) -> ModuleType:
    torch.manual_seed(0)
    return importlib.import_module("cleave_vllm.experts")


def key(name: str) -> Any:
    return getattr(sys.modules[f"{LAYERS}.quantization.utils.quant_utils"], name)


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


def again(h: Any, dtype: Any, granularity: str, scale: Any) -> Any:
    """What quantising h leaves of it."""
    if scale is not None:
        return (h / scale).clamp(-448, 448).to(dtype).float() * scale
    return values(*torch.ops.cleave.quantize(h.contiguous(), dtype, granularity))


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


def run(experts: ModuleType, scheme: str, **how: Any) -> tuple[Any, Any]:
    """What the kernel makes of random tokens, and plain torch."""
    dtype, of_weights, of_rows, static = SCHEMES[scheme]
    activation, limit = how.get("activation", MoEActivation.SILU), how.get("limit")
    x = torch.randn(TOKENS, FEATURES)
    w1, s1 = quantized_experts(torch.randn(COUNT, 2 * HIDDEN, FEATURES) / 8, dtype, of_weights)
    w2, s2 = quantized_experts(torch.randn(COUNT, FEATURES, HIDDEN) / 8, dtype, of_weights)
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
    kernel = experts.CleaveExperts(moe_config(swiglu_limit=limit), SimpleNamespace(**settings))
    output = torch.full((TOKENS, FEATURES), torch.nan, dtype=torch.bfloat16)
    arguments = {"topk_weights": weights, "topk_ids": ids, "activation": activation, "global_num_experts": 2 * COUNT}
    arguments |= {"expert_map": expert_map, "a1q_scale": scale, "a2_scale": a2, "workspace13": None}
    arguments |= {"workspace2": None, "expert_tokens_meta": None}
    on_input = how.get("on_input", False)
    returned = kernel.apply(output, q, w1, w2, **arguments, apply_router_weight_on_input=on_input)
    assert returned is None
    expected = torch.zeros(TOKENS, FEATURES)
    for expert in ours:
        local = expert - ours.start
        h = values(q, scale) @ values(w1[local], s1[local]).T
        if activation is MoEActivation.GELU:
            h = torch.nn.functional.gelu(h[:, :HIDDEN]) * h[:, HIDDEN:]
        else:
            h = swiglu(h, torch.inf if limit is None else limit)
        y = again(h, dtype, of_rows, a2) @ values(w2[local], s2[local]).T
        share = (ids == expert).float() if on_input else weights * (ids == expert)
        expected += share.sum(1, keepdim=True) * y
    return output.float(), expected


@pytest.mark.parametrize("ranks", [False, True])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_experts(scheme: str, ranks: bool, experts: ModuleType) -> None:
    found, expected = run(experts, scheme, ranks=ranks)
    assert (found - expected).norm() < 0.02 * expected.norm()


@pytest.mark.parametrize(
    "how", [{"limit": 0.5}, {"activation": MoEActivation.GELU}, {"on_input": True}], ids=["limit", "gelu", "on_input"]
)
def test_other_experts(how: dict[str, Any], experts: ModuleType) -> None:
    found, expected = run(experts, "channel", **how)
    assert (found - expected).norm() < 0.02 * expected.norm()


def test_experts_allocate_what_they_need(experts: ModuleType) -> None:
    kernel = experts.CleaveExperts(moe_config(), SimpleNamespace())
    shapes = kernel.workspace_shapes(5, 64, 32, 2, 8, 8, None, MoEActivation.SILU)
    assert shapes == ((0,), (0,), (5, 32))
    assert type(kernel.finalize_weight_and_reduce_impl()).__name__ == "TopKWeightAndReduceNoOP"


def test_vllm_tries_these_first_where_they_serve(experts: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    fp8, int8 = (sys.modules[f"{EXPERTS}.oracle.{name}"] for name in ("fp8", "int8"))
    importlib.import_module("cleave_vllm").register()
    importlib.import_module("cleave_vllm").register()
    for oracle in (fp8, int8):
        assert oracle.backend_to_kernel_cls(Backend.TRITON) == [experts.CleaveExperts, "OwnTRITON"]
        assert oracle.backend_to_kernel_cls(Backend.CUTLASS) == ["OwnCUTLASS"]
    assert int8._get_priority_backends(moe_config()) == list(Backend)
    served = key("kFp8Static128BlockSym"), key("kFp8Dynamic128Sym")
    assert fp8._get_priority_backends(moe_config(), *served) == [Backend.TRITON, Backend.CUTLASS]
    other = key("kFp8Static128BlockSym"), key("kFp8DynamicTokenSym")
    for refused in ((moe_config(), *other), (moe_config(moe_backend="cutlass"), *served)):
        assert fp8._get_priority_backends(*refused) == list(Backend)
    monkeypatch.setattr(sys.modules["vllm.envs"], "VLLM_DISABLED_KERNELS", ["CleaveExperts"])
    assert fp8._get_priority_backends(moe_config(), *served) == list(Backend)


def test_wrapped_functions_are_as_vllm_has_them(vllm: ModuleType) -> None:
    """The stand-ins', by what tools/peer_signatures.py read of vLLM's sources."""
    recorded = json.loads((ROOT / "tests" / "peer_signatures.json").read_text("utf-8"))["vllm"]["oracles"]
    assert len(recorded) == 4
    for name, parameters in recorded.items():
        module, function = name.split(".")
        stand_in = getattr(sys.modules[f"{EXPERTS}.oracle.{module}"], function)
        assert list(inspect.signature(stand_in).parameters) == parameters, name


def test_which_experts_are_served(experts: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def served(capability: int, weights: str, activations: str, **others: Any) -> bool:
        monkeypatch.setattr(experts, "current_platform", platform("cuda", capability))
        cls, standard = experts.CleaveExperts, ActivationFormat.Standard
        return cls.is_supported_config(cls, moe_config(**others), key(weights), key(activations), standard)[0]

    assert served(90, "kFp8StaticChannelSym", "kFp8DynamicTokenSym")
    assert served(80, "kInt8StaticChannelSym", "kInt8DynamicTokenSym")
    assert not served(80, "kFp8StaticChannelSym", "kFp8DynamicTokenSym")
    assert not served(75, "kInt8StaticChannelSym", "kInt8DynamicTokenSym")
    assert not served(90, "kFp8StaticChannelSym", "kFp8DynamicTokenSym", activation=MoEActivation.OTHER)
    batched = ActivationFormat.BatchedExperts
    keys = key("kFp8StaticChannelSym"), key("kFp8DynamicTokenSym")
    assert not experts.CleaveExperts.is_supported_config(experts.CleaveExperts, moe_config(), *keys, batched)[0]


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


@pytest.mark.parametrize("zero_points", [False, True])
@pytest.mark.parametrize("group_size", [-1, 32, 64, 128])
def test_4_bits(group_size: int, zero_points: bool, experts: ModuleType) -> None:
    mixed = importlib.import_module("cleave_vllm.mixed")
    kind = {"weight_type": "uint4"} if zero_points else {}
    config = mixed_config(group_size=group_size, zero_points=zero_points, **kind)
    assert mixed.CleaveMixedLinearKernel.can_implement(config) == (True, None)
    columns, rows = config.partition_weight_shape
    group = columns if group_size == -1 else group_size
    codes = torch.randint(0, 16, (columns, rows))
    scales = (torch.rand(columns // group, rows) / 16).half()
    zeros = torch.randint(0, 16, (columns // group, rows)) if zero_points else torch.full((columns // group, rows), 8)
    layer = SimpleNamespace(qweight=words(codes, 0), scales=scales, qzeros=words(zeros, 1), g_idx=None)
    kernel = mixed.CleaveMixedLinearKernel(config, "qweight", "scales", "qzeros")
    kernel.process_weights_after_loading(layer)
    x, bias = torch.randn(2, 3, columns).bfloat16(), torch.randn(rows).bfloat16()
    y = kernel.apply_weights(layer, x, bias)
    assert y.dtype == x.dtype and y.shape == (2, 3, rows)
    weight = (codes - zeros.repeat_interleave(group, 0)) * scales.bfloat16().float().repeat_interleave(group, 0)
    expected = x.float() @ weight + bias.float()
    assert (y.float() - expected).norm() < 0.01 * expected.norm()


def test_which_4_bits_are_served(experts: ModuleType) -> None:
    kernel = importlib.import_module("cleave_vllm.mixed").CleaveMixedLinearKernel
    assert kernel.get_min_capability() == 80
    for others, reason in (
        ({"weight_type": "uint8b128"}, "has weights of uint8b128; uint4b8 are served"),
        ({"zero_points": True}, "has weights of uint4b8; uint4 are served"),
        ({"act_type": FP8}, "has activations of torch.float8_e4m3fn"),
        ({"group_size": 16}, "has groups of 16"),
        ({"group_size": -1, "full_weight_shape": (512, 96)}, "has 256 of 512 columns, which share a scale"),
        ({"group_size": 128, "partition_weight_shape": (192, 96)}, "groups of 128 do not divide"),
    ):
        served, why = kernel.can_implement(mixed_config(**others))
        assert not served and reason in why
