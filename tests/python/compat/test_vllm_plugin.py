"""The plugin in integrations/vllm, on CPU tensors as vLLM lays them out, with stand-ins for vLLM's own classes."""

from __future__ import annotations

import importlib
import inspect
import json
import logging
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from doc_snippets import ROOT

torch = pytest.importorskip("torch", minversion="2.10")
pytest.importorskip("cleave.torch", exc_type=ImportError)

from vllm_stand_ins import PlatformEnum, config, platform, vllm_stand_in  # noqa: E402, F401

FP8 = torch.float8_e4m3fn
NAMES = ["weight", "weight_scale", "input_scale", "input_zero_point", "azp_adj"]


@pytest.fixture
def kernels(vllm: ModuleType) -> Any:
    torch.manual_seed(0)
    return importlib.import_module("cleave_vllm.linear")


def test_registered_kernels_are_tried_first_and_once(vllm: ModuleType) -> None:
    plugin = importlib.import_module("cleave_vllm")
    plugin.register()
    plugin.register()
    for kind, kernel in sys.modules["cleave_vllm.linear"].KERNELS.items():
        first, own = getattr(vllm, f"_POSSIBLE_{kind.upper()}_KERNELS")[PlatformEnum.CUDA]
        assert first is kernel and own.__name__ == f"Own{kind}"
    first, own = vllm._POSSIBLE_KERNELS[PlatformEnum.CUDA]
    assert first.__name__ == "CleaveMixedLinearKernel" and own.__name__ == "Ownmp"
    plugin.register(PlatformEnum.CPU)
    assert len(vllm._POSSIBLE_INT8_KERNELS[PlatformEnum.CPU]) == 1


def test_without_the_operators_vllm_goes_on(vllm: ModuleType, monkeypatch: Any, caplog: Any) -> None:
    monkeypatch.setitem(sys.modules, "cleave.torch", None)
    with caplog.at_level(logging.WARNING):
        importlib.import_module("cleave_vllm").register()
    assert "Cleave's kernels are left out" in caplog.text
    assert len(vllm._POSSIBLE_FP8_KERNELS[PlatformEnum.CUDA]) == 1


def test_the_entry_point_is_the_function(vllm: ModuleType) -> None:
    tomllib = pytest.importorskip("tomllib")
    project = tomllib.loads((ROOT / "integrations" / "vllm" / "pyproject.toml").read_text("utf-8"))["project"]
    name, function = project["entry-points"]["vllm.general_plugins"]["cleave"].split(":")
    assert callable(getattr(importlib.import_module(name), function))


def quantized(x: Any, dtype: Any, granularity: str) -> tuple[Any, Any]:
    return torch.ops.cleave.quantize(x.contiguous(), dtype, granularity)


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("per_token", [False, True])
def test_fp8(per_channel: bool, per_token: bool, kernels: Any) -> None:
    x, w, bias = torch.randn(2, 3, 192), torch.randn(96, 192), torch.randn(96).bfloat16()
    q, scale = quantized(x.view(6, 192), FP8, "row" if per_token else "tensor")
    qw, w_scale = quantized(w, FP8, "row" if per_channel else "tensor")
    scale, w_scale = (s if s.numel() > 1 else s.view(()) for s in (scale, w_scale))  # vLLM keeps one value so
    kernel = kernels.CleaveFp8LinearKernel(None)
    y = kernel.apply_scaled_mm(
        A=q, B=qw.t(), out_dtype=torch.bfloat16, As=scale, Bs=w_scale, bias=bias, output_shape=[2, 3, 96]
    )
    expected = (q.float() * scale) @ (qw.float() * w_scale).T + bias
    assert y.dtype == torch.bfloat16 and y.shape == (2, 3, 96)
    torch.testing.assert_close(y.view(6, 96).float(), expected, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("column_major", [False, True])
def test_fp8_in_blocks(column_major: bool, kernels: Any) -> None:
    """N and K that are no multiples of 128, too."""
    q, scale = quantized(torch.randn(6, 320), FP8, "block_1x128")
    qw, w_scale = quantized(torch.randn(200, 320), FP8, "block_128x128")
    if column_major:
        scale = scale.t().contiguous().t()
    kernel = kernels.CleaveFp8BlockLinearKernel(config((128, 128), (1, 128), out_dtype=torch.bfloat16))
    y = kernel.apply_block_scaled_mm(q, qw, scale, w_scale)
    of_w = w_scale.repeat_interleave(128, 0)[:200].repeat_interleave(128, 1)[:, :320]
    expected = (q.float() * scale.repeat_interleave(128, 1)[:, :320]) @ (qw.float() * of_w).T
    torch.testing.assert_close(y.float(), expected, rtol=1e-2, atol=2e-2)


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("symmetric", [False, True])
def test_int8(static: bool, symmetric: bool, kernels: Any) -> None:
    """Weights and zero points as vLLM has them for its own kernel: azp_adj has a static zero point in it."""
    x, w, bias = torch.randn(2, 3, 192) + 0.5, torch.randn(96, 192), torch.randn(96)
    qw, w_scale = quantized(w, torch.int8, "row")
    sums = qw.sum(1, dtype=torch.int32)[None]
    zero = torch.tensor([-7], dtype=torch.int32)
    layer = SimpleNamespace(
        weight=qw.t(),
        weight_scale=w_scale,
        input_scale=torch.tensor(0.04) if static else None,
        input_zero_point=zero if static and not symmetric else None,
        azp_adj=None if symmetric else zero * sums if static else sums,
    )
    y = kernels.CleaveInt8LinearKernel(None, NAMES).apply_weights(layer, x, bias)
    assert y.shape == (2, 3, 96) and y.dtype == x.dtype
    expected = x @ w.T + bias
    assert (y - expected).norm() < 0.02 * expected.norm()


def test_what_kernels_serve(kernels: Any, monkeypatch: Any) -> None:
    fp8, block, int8 = kernels.KERNELS["fp8"], kernels.KERNELS["fp8_block"], kernels.KERNELS["int8"]
    assert fp8.can_implement(config((-1, 1), (1, -1)))[0] and fp8.can_implement(config((-1, -1), (-1, -1), True))[0]
    assert fp8.can_implement(config((128, 128), (1, 128)))[1].startswith("has weights in groups of (128, 128)")
    assert block.can_implement(config((128, 128), (1, 128)))[0]
    assert "groups of (1, 64)" in block.can_implement(config((128, 128), (1, 64)))[1]
    assert block.can_implement(config((128, 128), (1, 128), static=True)) == (False, "only dynamic activations")
    assert fp8.is_supported(90)[0] and int8.is_supported(80)[0] and block.is_supported()[0]
    assert fp8.is_supported(80) == (False, "requires compute capability 8.9")
    monkeypatch.setattr(kernels, "current_platform", platform("rocm"))
    assert int8.is_supported(90) == (False, "requires CUDA")
    monkeypatch.setattr(kernels, "current_platform", platform("cpu"))
    assert fp8.is_supported() == (True, None)


def test_methods_have_vllms_parameters(kernels: Any) -> None:
    """As tools/peer_signatures.py read them from vLLM's sources."""
    recorded = json.loads((ROOT / "tests" / "support" / "peer_signatures.json").read_text("utf-8"))["vllm"]["methods"]
    ours = {
        "FP8ScaledMMLinearKernel": kernels.CleaveFp8LinearKernel,
        "Fp8BlockScaledMMLinearKernel": kernels.CleaveFp8BlockLinearKernel,
        "CutlassInt8ScaledMMLinearKernel": kernels.CleaveInt8LinearKernel,
        "MPLinearKernel": importlib.import_module("cleave_vllm.mixed").CleaveMixedLinearKernel,
        "FusedMoEExpertsModular": importlib.import_module("cleave_vllm.experts").CleaveExperts,
    }
    checked = dict.fromkeys(ours, 0)
    for name, theirs in recorded.items():
        base, method = name.split(".")
        if method in vars(ours[base]):
            function = inspect.unwrap(getattr(vars(ours[base])[method], "__func__", vars(ours[base])[method]))
            assert list(inspect.signature(function).parameters) == [part.partition("=")[0] for part in theirs], name
            checked[base] += 1
    assert list(checked.values()) == [3, 2, 2, 4, 10]


def test_operators_are_traced(kernels: Any) -> None:
    q, scale = quantized(torch.randn(6, 128), FP8, "row")
    qw, w_scale = quantized(torch.randn(32, 128), FP8, "row")
    kernel = kernels.CleaveFp8LinearKernel(None)

    def apply(q: Any, scale: Any) -> Any:
        return kernel.apply_scaled_mm(
            A=q, B=qw.t(), out_dtype=torch.bfloat16, As=scale, Bs=w_scale, bias=None, output_shape=[6, 32]
        )

    compiled = torch.compile(apply, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(q, scale), apply(q, scale))
