"""Products over the ranks of two GPUs, by NCCL. NVLink multicast stays off."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", minversion="2.10")

TESTS = Path(__file__).parents[1]


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="it needs two GPUs")
def test_on_two_gpus(tmp_path: Path) -> None:
    # Few kernels, since a process compiles one after the other.
    environment = os.environ | {"PYTHONPATH": str(TESTS.parent / "python"), "CLEAVE_KERNELS": "covering"}
    run = [sys.executable, TESTS / "distributed_ranks.py", "2", "cuda", tmp_path / "report"]
    subprocess.run(run, check=True, timeout=300, env=environment)
    report = json.loads((tmp_path / "report").read_text())
    assert len(report) > 10 and not any(report.values()), "\n".join(report.values())
