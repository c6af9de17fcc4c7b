"""The plugin in integrations/vllm on CUDA tensors: experts in 8 bits, and linear layers in 4."""

from __future__ import annotations

import importlib
from types import ModuleType

import pytest

torch = pytest.importorskip("torch", minversion="2.10")
pytest.importorskip("cleave.torch", exc_type=ImportError)

from vllm_experts import SCHEMES, mixed, run  # noqa: E402
from vllm_stand_ins import vllm_stand_in  # noqa: E402, F401


@pytest.mark.parametrize("ranks", [False, True])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_experts(scheme: str, ranks: bool, vllm: ModuleType) -> None:
    torch.manual_seed(0)
    with torch.device("cuda"):
        found, expected = run(importlib.import_module("cleave_vllm.experts"), scheme, ranks=ranks)
    assert (found - expected).norm() < 0.02 * expected.norm()


@pytest.mark.parametrize("zero_points", [False, True])
@pytest.mark.parametrize("group_size", [-1, 32, 64, 128])
def test_4_bits(group_size: int, zero_points: bool, vllm: ModuleType) -> None:
    torch.manual_seed(0)
    with torch.device("cuda"):
        found, expected = mixed(importlib.import_module("cleave_vllm.mixed"), group_size, zero_points)
    assert (found - expected).norm() < 0.01 * expected.norm()
