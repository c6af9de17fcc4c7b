"""Fixtures: a GPU that is not there, a plan for one, and measurements that take no time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from emitted_operations import plan_of

import cleave
from cleave.testing import measure

ROOT = Path(__file__).parents[2]
FAKE = ROOT / "build" / "fake_driver"


@pytest.fixture
def fake_gpu(tmp_path: Path) -> dict[str, str]:
    """The environment of a child that finds the driver and the compiler of tests/fake_driver, and a
    cache of its own."""
    assert (FAKE / "libcuda.so.1").exists(), f"{FAKE} is not built; run make build"
    return os.environ | {
        "LD_LIBRARY_PATH": str(FAKE),
        "CLEAVE_NVRTC": str(FAKE / "libfake_nvrtc.so"),
        "CLEAVE_CACHE_DIR": str(tmp_path / "cache"),
        "PYTHONPATH": str(ROOT / "python"),
    }


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "COLD_BYTES", 1)
    monkeypatch.setattr(measure, "REPLAY_US", 1.0)


@pytest.fixture
def f16_plan() -> cleave.GemmPlan:
    return plan_of("f16")
