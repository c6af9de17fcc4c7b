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
def fake_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Children that are not forked find the compiler of tests/fake_driver, and a cache of its own."""
    compiler = FAKE / "libfake_nvrtc.so"
    assert compiler.exists(), f"{FAKE} is not built; run make build"
    monkeypatch.setenv("CLEAVE_NVRTC", str(compiler))
    monkeypatch.setenv("CLEAVE_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def fake_gpu(fake_compiler: None) -> dict[str, str]:
    """The environment of a child that finds the driver of tests/fake_driver as well."""
    return os.environ | {"LD_LIBRARY_PATH": str(FAKE), "PYTHONPATH": str(ROOT / "python")}


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "COLD_BYTES", 1)
    monkeypatch.setattr(measure, "REPLAY_US", 1.0)


@pytest.fixture
def f16_plan() -> cleave.GemmPlan:
    return plan_of("f16")
