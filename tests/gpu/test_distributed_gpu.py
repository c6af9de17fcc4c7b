"""Products over ranks through peers' memory and by NCCL: of two GPUs, or of one, for kernels and captures. NVLink
multicast stays off."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import cleave
from cleave import _core

torch = pytest.importorskip("torch", minversion="2.10")

from virtual_ranks import groups_of  # noqa: E402 - it needs torch

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


@pytest.mark.parametrize("pushed", [False, True])
def test_a_product_behind_a_sum_leaves_peers_room(pushed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """If it began while the sum waits, it would have every SM before the other rank's sum does."""
    monkeypatch.setenv("CLEAVE_PEER_TIMEOUT", "5")
    rows, columns = 4, 1024
    parts = torch.randn(2, rows, columns, device="cuda")
    sums, streams = torch.empty_like(parts), [torch.cuda.Stream() for _ in parts]
    groups = groups_of(2, parts.nbytes)
    a, b = (torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16) for _ in range(2))

    def add_up(rank: int) -> None:
        with torch.cuda.stream(streams[rank]):
            finish = None, None, None, None, None, "none", rows, groups[rank], "sum", pushed, None
            _core.fold(list(parts), sums[rank], *finish)

    def multiply() -> None:
        with torch.cuda.stream(streams[0]):
            cleave.gemm(a, b)

    torch.cuda.synchronize()
    add_up(0)
    add_up(1)
    multiply()  # all are loaded
    torch.cuda.synchronize()
    add_up(0)
    multiply()
    time.sleep(0.1)
    add_up(1)
    torch.cuda.synchronize()
    assert [group.problem() for group in groups] == ["", ""]
    assert torch.equal(sums, (parts[0] + parts[1]).expand_as(sums))


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
