"""Products over ranks, on the CPU: one and three processes that speak by gloo, and eight that are only pretended.

Nothing here imports cleave.distributed: it would add its operators to what other tests of this process see.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from doc_snippets import python_snippets

pytest.importorskip("torch", minversion="2.10")

ROOT = Path(__file__).parents[3]
SUPPORT = ROOT / "tests" / "support"
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT / "python")}
RANKS = 3  # two would not show in which order they are added


@pytest.mark.parametrize(("ranks", "transport"), [(1, "gloo"), (RANKS, "gloo"), (RANKS, "peer")])
def test_on_ranks(tmp_path: Path, ranks: int, transport: str) -> None:
    """One test of a transport: that processes start costs more than all that they do."""
    run = [sys.executable, SUPPORT / "distributed_ranks.py", str(ranks), "cpu", tmp_path / "report"]
    by = {"CLEAVE_TRANSPORT": "peer", "CLEAVE_PEER_TIMEOUT": "20"} if transport == "peer" else {}
    subprocess.run(run, check=True, timeout=300, env=ENVIRONMENT | by)
    report = json.loads((tmp_path / "report").read_text())
    assert len(report) > 10 and not any(report.values()), "\n".join(report.values())


@pytest.mark.parametrize(("where", "rounds"), [("cpu", 5), ("memory", 2)])
def test_survivors_name_the_rank_that_is_lost(tmp_path: Path, where: str, rounds: int) -> None:
    """Ranks are killed, and one of five is late; `tests/support/fault_ranks.py 45` is for longer."""
    run = [sys.executable, SUPPORT / "fault_ranks.py", str(rounds), tmp_path / "report", "0", where]
    subprocess.run(run, check=True, timeout=240, env=ENVIRONMENT)
    assert not (found := (tmp_path / "report").read_text()), found


@pytest.mark.parametrize("ranks", [2, 5])
def test_threads_are_ranks_in_drawn_rounds(ranks: int) -> None:
    run = [sys.executable, SUPPORT / "thread_ranks.py", str(ranks), "1000"]
    made = subprocess.run(run, env=ENVIRONMENT, capture_output=True, text=True, timeout=120)
    assert made.returncode == 0, made.stderr


def test_the_examples_train_as_on_one_rank() -> None:
    """Both models, by torchrun; the program compares losses, ranks and the bits of experts itself."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    example = ROOT / "examples" / "distributed" / "train.py"
    environment = ENVIRONMENT | {"CUDA_VISIBLE_DEVICES": ""}
    run = subprocess.run(
        [*torchrun, example, "--steps", "25", "--rate", "0.003"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert run.returncode == 0, run.stderr
    for name in ("llama", "moe"):
        losses = [float(line.split()[2]) for line in run.stdout.splitlines() if line.startswith(name)]
        assert len(losses) == 4 and losses[-1] < 0.95 * losses[0], run.stdout


ALONE = """
import torch, torch.distributed as dist
import cleave.distributed as cd
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.distributed.fake_pg import FakeStore

# Without a process group.
a, b = torch.ones(4, 8), torch.ones(8, 16)
for call in (lambda: cd.gemm_all_reduce(a, b), lambda: torch.ops.cleave.gemm_reduce_scatter(a, b, "0")):
    try:
        call()
    except RuntimeError as error:
        assert "init_process_group" in str(error), error
    else:
        raise AssertionError("it was not refused")

# Eight ranks at the sizes of models, without computing.
for rank in (0, 5, 7):
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=8)
    group = dist.group.WORLD.group_name
    with FakeTensorMode():
        x, up, down = torch.empty(1024, 8192), torch.empty(8192, 7168), torch.empty(3584, 8192)
        h = torch.ops.cleave.all_gather_gemm(x, up, group)[0]
        assert h.shape == (8192, 7168)
        assert torch.ops.cleave.gemm_reduce_scatter(h[:, :3584], down, group).shape == (1024, 8192)
        few = torch.empty(9, 3584)  # two rows each, and the last ranks have one or none
        rows = {0: 2, 5: 0, 7: 0}[rank]
        assert torch.ops.cleave.gemm_reduce_scatter(few, down, group).shape == (rows, 8192)
        assert torch.ops.cleave.gemm_all_reduce(few, down, group, out_dtype=torch.float16).dtype == torch.float16
        q, v = few.to(torch.int8), down.to(torch.int8)
        assert torch.ops.cleave.scaled_gemm_reduce_scatter(q, v, None, None, group).dtype == torch.bfloat16
    assert "by fake, unfused, two-shot" in cd.explain("gemm_all_reduce", 8192, 8192, device="cpu")
    assert "by fake, unfused, one-shot" in cd.explain("gemm_all_reduce", 4, 8192, device="cpu")
    dist.destroy_process_group()
"""


ONE_RANK = """
import torch.distributed as dist
from rank_checks.layers import weights_are_gathered_in_8_bits
from rank_checks.ranks import Ranks

dist.init_process_group("gloo", init_method="file://{store}", rank=0, world_size=1)
weights_are_gathered_in_8_bits(Ranks(0, 1, "cpu"))
dist.destroy_process_group()
"""


def test_fsdp_of_one_rank_has_scales(tmp_path: Path) -> None:
    """FSDP gathers nothing there, and hands on no more than the first tensor of a part."""
    environment = ENVIRONMENT | {"PYTHONPATH": os.pathsep.join([str(ROOT / "python"), str(SUPPORT)])}
    program = ONE_RANK.format(store=tmp_path / "store")
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr


def test_alone() -> None:
    """Without other ranks: what is above, and the page's examples, in one process."""
    program = "\n".join([ALONE, *python_snippets(ROOT / "docs" / "distributed.md")])
    run = subprocess.run([sys.executable, "-c", program], env=ENVIRONMENT, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
