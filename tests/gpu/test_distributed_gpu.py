"""Products over ranks through peers' memory and by NCCL: of two GPUs, or of one, for kernels and captures. NVLink
multicast stays off."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", minversion="2.10")

ROOT = Path(__file__).parents[2]
SUPPORT = ROOT / "tests" / "support"


@pytest.mark.parametrize(("ranks", "replays"), [(2, None), (3, None), (5, None), (8, None), (3, 5)])
def test_virtual_ranks(ranks: int, replays: int | None) -> None:
    """`tests/support/virtual_ranks.py 8 100000` is for longer."""
    environment = os.environ | {"PYTHONPATH": str(ROOT / "python"), "CLEAVE_PEER_TIMEOUT": "20"}
    environment |= {"CUDA_DEVICE_MAX_CONNECTIONS": "32", "CUDA_MODULE_LOADING": "EAGER"}
    run = [sys.executable, SUPPORT / "virtual_ranks.py", str(ranks), "640"]
    run += [] if replays is None else ["1", "4", str(replays)]
    subprocess.run(run, check=True, timeout=120, env=environment)


def test_survivors_name_the_rank_that_is_lost(tmp_path: Path) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("it needs 2 GPUs")
    run = [sys.executable, SUPPORT / "fault_ranks.py", "5", tmp_path / "report", "0", "cuda"]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "python"), "CLEAVE_KERNELS": "covering"}
    subprocess.run(run, check=True, timeout=240, env=environment)
    assert not (found := (tmp_path / "report").read_text()), found


@pytest.mark.parametrize(("ranks", "transport"), [(1, ""), (2, ""), (2, "nccl")])
def test_on_gpus(tmp_path: Path, ranks: int, transport: str) -> None:
    if torch.cuda.device_count() < ranks:
        pytest.skip(f"it needs {ranks} GPUs")
    # Few kernels, since a process compiles one after the other.
    environment = os.environ | {"PYTHONPATH": str(ROOT / "python"), "CLEAVE_KERNELS": "covering"}
    environment |= {"CLEAVE_TRANSPORT": transport, "CLEAVE_PEER_TIMEOUT": "20"}
    run = [sys.executable, SUPPORT / "distributed_ranks.py", str(ranks), "cuda", tmp_path / "report"]
    subprocess.run(run, check=True, timeout=300, env=environment)
    report = json.loads((tmp_path / "report").read_text())
    assert len(report) > 10 and not any(report.values()), "\n".join(report.values())
