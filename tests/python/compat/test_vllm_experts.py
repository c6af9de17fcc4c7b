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

torch = pytest.importorskip("torch", minversion="2.10")
pytest.importorskip("cleave.torch", exc_type=ImportError)

from vllm_experts import SCHEMES, mixed, mixed_config, moe_config, run  # noqa: E402
from vllm_stand_ins import (  # noqa: E402
    EXPERTS,
    LAYERS,
    ActivationFormat,
    Backend,
    MoEActivation,
    platform,
    vllm_stand_in,  # noqa: F401
)

FP8 = torch.float8_e4m3fn


@pytest.fixture
def experts(vllm: ModuleType) -> ModuleType:
    torch.manual_seed(0)
    return importlib.import_module("cleave_vllm.experts")


def key(name: str) -> Any:
    return getattr(sys.modules[f"{LAYERS}.quantization.utils.quant_utils"], name)


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
    recorded = json.loads((ROOT / "tests" / "support" / "peer_signatures.json").read_text("utf-8"))["vllm"]["oracles"]
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


@pytest.mark.parametrize("zero_points", [False, True])
@pytest.mark.parametrize("group_size", [-1, 32, 64, 128])
def test_4_bits(group_size: int, zero_points: bool, experts: ModuleType) -> None:
    found, expected = mixed(importlib.import_module("cleave_vllm.mixed"), group_size, zero_points)
    assert (found - expected).norm() < 0.01 * expected.norm()


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
