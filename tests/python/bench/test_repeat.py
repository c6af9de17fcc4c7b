"""bench/repeat.py, as a stranger has it: one file, away from the repository, beside torch and the package alone."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from doc_snippets import ROOT

torch = pytest.importorskip("torch", minversion="2.10")

from bench import repeat  # noqa: E402

SCRIPT = ROOT / "bench" / "repeat.py"
TIMING = repeat.Timing(rounds=3, between=False)


def run_a_copy(folder: Path, *arguments: str) -> subprocess.CompletedProcess:
    copy = shutil.copy(SCRIPT, folder / "copied.py")
    environment = os.environ | {"PYTHONPATH": str(ROOT / "python"), "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(
        [sys.executable, copy, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )


def test_it_imports_the_standard_library_torch_and_cleave_alone() -> None:
    tree = ast.parse(SCRIPT.read_text("utf-8"), feature_version=(3, 10))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    assert not any(isinstance(node, ast.ImportFrom) and node.level for node in imports)
    names = {
        name
        for node in imports
        for name in ([node.module] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names])
    }
    assert "cleave" in names and {name.split(".")[0] for name in names} - {"cleave", "torch"} <= sys.stdlib_module_names
    assert not any(name.startswith("cleave.") for name in names)


def test_every_job_is_right_on_the_cpu(tmp_path: Path) -> None:
    done = run_a_copy(tmp_path, "--device", "cpu", "--json", "figures.json")
    assert done.returncode == 0, done.stdout + done.stderr
    written = json.loads((tmp_path / "figures.json").read_text("utf-8"))
    assert [row["job"] for row in written["rows"]] == [job.name for job in repeat.JOBS]
    for row in written["rows"]:
        assert row["error"] < 1e-2 and "failed" not in row
        assert row["peers"] or row["without"]  # a torch without a CPU kernel is left out, with its reason
        assert f"\n{row['shape']} " in done.stdout
    assert written["summaries"] == [] and written["method"] is None
    assert torch.__version__ in written["machine"]["versions"]


def test_without_a_gpu_it_says_so_in_one_line(tmp_path: Path) -> None:
    done = run_a_copy(tmp_path, "--quick", "--only", "dense")
    assert done.returncode == 2 and not done.stdout
    assert done.stderr.count("\n") == 1 and "no NVIDIA GPU" in done.stderr and "--device cpu" in done.stderr


@pytest.mark.parametrize("job", repeat.JOBS, ids=lambda job: job.name)
def test_a_wrong_result_of_ours_is_found(job: repeat.Job) -> None:
    """One element in a row that is off by a tenth of the row's largest."""
    inputs = job.make("cpu", *job.small)
    ours = inputs.contenders[0]
    right = ours.read(ours.call()).double()
    wrong = right.clone()
    wrong[(0,) * wrong.ndim] += 0.1 * right.abs().amax()

    def contender(value: Any) -> repeat.Contender:
        return repeat.Contender("stand-in", lambda: value, ours.expected)

    assert repeat.error_of(contender(right), job.allowed)[1] is None
    for value in (wrong, torch.full_like(right, torch.nan)):
        error, reason = repeat.error_of(contender(value), job.allowed)
        assert error is None and "wrong" in reason


def test_outputs_are_poisoned_before_they_are_checked() -> None:
    for job in repeat.JOBS:
        ours = job.make("cpu", *job.small).contenders[0]
        out = next((cell.cell_contents for cell in ours.call.__closure__ if is_unwritten(cell.cell_contents)), None)
        assert out is not None or job.name == "router"  # which has no `out`


def is_unwritten(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point() and bool(value.isnan().all())


@pytest.fixture
def pretended_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU that runs the small sizes on the CPU: calls of a capture are made, and a replay takes a millisecond."""

    class Event:
        def __init__(self, enable_timing: bool):
            assert enable_timing

        def record(self) -> None:
            pass

        def elapsed_time(self, end: Any) -> float:
            return 1.0

    pretended = {
        "is_available": lambda: True,
        "get_device_name": lambda device: "A pretended GPU",
        "get_device_properties": lambda device: SimpleNamespace(uuid="0000"),
        "CUDAGraph": lambda: SimpleNamespace(replay=lambda: None),
        "graph": lambda graph: contextlib.nullcontext(),
        "synchronize": lambda: None,
        "Event": Event,
    }
    for name, value in pretended.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(repeat.cleave, "device_count", lambda: 1)
    monkeypatch.setattr(repeat, "warm_up", lambda: None)
    monkeypatch.setattr(repeat, "COLD_BYTES", 1)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)  # and so again, afterwards
    jobs = tuple(
        replace(job, shapes=(job.small,), make=lambda device, *shape, make=job.make: make("cpu", *shape))
        for job in repeat.JOBS
    )
    monkeypatch.setattr(repeat, "JOBS", jobs)


@pytest.mark.usefixtures("pretended_gpu")
def test_a_whole_run(tmp_path: Path, capsys: Any) -> None:
    assert repeat.main(["--rounds", "3", "--json", str(tmp_path / "figures.json")]) == 0
    written = json.loads((tmp_path / "figures.json").read_text("utf-8"))
    printed = capsys.readouterr().out
    assert "A pretended GPU" in printed and "A pretended GPU" in written["machine"]["device"]
    assert written["method"] == {"rounds": 3, "between": False}
    for row in written["rows"]:
        # Two sets are too short a replay, so that each is called twice: 1 ms of 4 calls.
        assert row["us"] == 250 and row["peers"]
        assert all(peer["ratio"] == 1 for peer in row["peers"].values())
    assert {summary["job"] for summary in written["summaries"]} == {job.name for job in repeat.JOBS}
    assert all(summary["geomean"] == 1 and not summary["slower"] for summary in written["summaries"])
    assert printed.count("geomean 1.00") == len(written["summaries"])


class ReplayInNoTime:
    """Ours takes 10 us, the first peer 5 us, the small kernel between 1 us; every sample is counted."""

    samples: ClassVar[list[str]] = []

    def __init__(self, calls: Any, count: int, between: bool):
        assert count % len(calls) == 0
        made = calls[-1]()
        self.name, us = ("nothing", 0.0) if made is None else ("theirs", 5.0) if made is THEIRS else ("ours", 10.0)
        self.us = us + between

    def sample(self) -> float:
        self.samples.append(self.name)
        return self.us


THEIRS = torch.ones(2, 2)


def inputs_of(peer: Any) -> repeat.Inputs:
    expected = lambda: torch.ones(2, 2).double()  # noqa: E731
    contenders = (
        repeat.Contender("ours", lambda: torch.ones(2, 2), expected),
        repeat.Contender("theirs", lambda: THEIRS, expected),
        repeat.Contender("other", peer, expected),
    )
    return repeat.Inputs((torch.empty(1 << 20),), contenders)


def refuses() -> None:
    raise RuntimeError("not on this GPU\nand more")


@pytest.mark.parametrize(("peer", "reason"), [(refuses, "not on this GPU"), (lambda: torch.zeros(2, 2), "wrong")])
def test_a_loss_is_shown_and_a_peer_that_fails_is_left_out(monkeypatch: Any, peer: Any, reason: str) -> None:
    monkeypatch.setattr(repeat, "Replay", ReplayInNoTime)
    monkeypatch.setattr(ReplayInNoTime, "samples", [])
    job = repeat.Job("job", "title", lambda device, *shape: inputs_of(peer), ((1, 2),), (1, 2))
    row = repeat.measured(job, (1, 2), "cpu", TIMING)
    assert row["us"] == 10 and row["peers"]["theirs"]["ratio"] == 0.5
    assert list(row["without"]) == ["other"] and reason in row["without"]["other"] and "more" not in str(row)
    first, left_out = repeat.lines_of(row)
    assert first.endswith("slower") and "left out" in left_out
    (summary,) = repeat.summarised([row])
    assert summary["geomean"] == pytest.approx(0.5) and summary["slower"] == ["1x2"]
    assert "slower at 1x2" in repeat.summary_line(summary)
    # Rounds, the last three pairs, alternate direction.
    assert ReplayInNoTime.samples[-6:] == ["ours", "theirs", "theirs", "ours", "ours", "theirs"]


def test_the_kernel_between_is_taken_off(monkeypatch: Any) -> None:
    monkeypatch.setattr(repeat, "Replay", ReplayInNoTime)
    calls = [[contender.call] for contender in inputs_of(refuses).contenders[:2]]
    assert repeat.times_of(calls, repeat.Timing(rounds=3, between=True)) == [10, 5]


def test_a_failure_of_ours_is_a_row_without_times() -> None:
    ours = repeat.Contender("ours", refuses, refuses)
    job = repeat.Job("job", "title", lambda device, *shape: repeat.Inputs((), (ours,)), ((1, 2),), (1, 2))
    row = repeat.measured(job, (1, 2), "cpu", TIMING)
    assert row["failed"] == "RuntimeError: not on this GPU" and "us" not in row
    assert list(repeat.lines_of(row)) == [f"{'1x2':24}FAILED: RuntimeError: not on this GPU"]
    assert list(repeat.summarised([row])) == []


def test_quick_takes_one_shape_of_each_job() -> None:
    for job in repeat.JOBS:
        assert job.shapes_for("cuda", quick=True) == job.shapes[:1] and len(job.shapes) > 1
        assert all(len(shape) == len(job.small) for shape in job.shapes)


@pytest.mark.parametrize(("experts", "tokens"), [(3, 50), (128, 2048)])
def test_experts_have_about_the_mean(experts: int, tokens: int) -> None:
    ends = repeat.ends_of(experts, tokens)
    sizes = [end - begin for begin, end in zip([0, *ends[:-1]], ends, strict=True)]
    assert ends[-1] == tokens
    mean = tokens / experts
    assert 0.7 * mean - 1 <= min(sizes) < max(sizes) <= 1.35 * mean + 1
