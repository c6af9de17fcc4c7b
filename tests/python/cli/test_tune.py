"""`cleave tune` on a GPU that is not there (tests/fake_driver), where later contenders seem faster."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from test_cli_every_command import COMMAND, GEMM, GPU, SHAPES, run

MEASURED = "measured to be the fastest"


def test_a_tuned_choice_is_the_next_plan(tmp_path, fake_gpu):
    tuned = run(["tune", *GEMM, *GPU, "--candidates", "6"], tmp_path, fake_gpu)
    fastest = tuned[0].partition(": ")[2].partition(",")[0]
    explained = "\n".join(run(["explain", *GEMM, *GPU], tmp_path, fake_gpu))
    assert f"{fastest}: {MEASURED}" in explained


def test_a_convolution_that_runs_as_a_product_is_tuned_as_itself(tmp_path, fake_gpu):
    conv = ["conv", "--images", "2", "--size", "9x7", "--channels", "64", "--filters", "96", "--filter-size", "1"]
    log = tmp_path / "shapes.txt"
    run(["explain", *conv, *GPU], tmp_path, fake_gpu | {"CLEAVE_LOG_SHAPES": str(log)})
    assert log.read_text() == "126x96x64x1 tn float16 float16 fprop 1:1/1p0,0d1 9:1/1p0,0d1 7:1/1p0,0d1\n"
    tuned = run(["tune", *conv, *GPU, "--candidates", "6"], tmp_path, fake_gpu)
    fastest = tuned[0].partition(": ")[2].partition(",")[0]
    assert " product" in fastest
    assert f"{fastest}: {MEASURED}" in "\n".join(run(["explain", *conv, *GPU], tmp_path, fake_gpu))


def test_what_is_logged_is_tuned_once(tmp_path, fake_gpu):
    log = tmp_path / "shapes.txt"
    for m in ("64,65", "65,66"):
        gemm = ["gemm", "--m", m, "--n", "48", "--k", "512", "--bias", "row"]
        run(["explain", *gemm, *GPU], tmp_path, fake_gpu | {"CLEAVE_LOG_SHAPES": str(log)})
    problems = [f"{m}x48x512x1 tn float16 float16 bias row float16" for m in (64, 65, 65, 66)]
    assert log.read_text().splitlines() == problems

    tune = ["tune", "--from", str(log), *GPU, "--candidates", "3"]
    done = run(tune, tmp_path, fake_gpu)
    assert [line.partition(":")[0] for line in done[:3]] == [
        f"[{i}/3] {text}" for i, text in enumerate(dict.fromkeys(problems), 1)
    ]
    assert done[3].startswith("tuned 3 problems")
    assert MEASURED in "\n".join(run(["explain", *gemm, *GPU], tmp_path, fake_gpu))

    assert run(tune, tmp_path, fake_gpu)[1].startswith("skipped 3 that were measured before")
    assert run([*tune, "--again"], tmp_path, fake_gpu)[3].startswith("tuned 3 problems")


def test_what_fails_stops_nothing(tmp_path, fake_gpu):
    log = tmp_path / "shapes.txt"
    log.write_text(f"# a comment\n\nno problem\n64x48x512x1 tn bfloat16 bfloat16\n{SHAPES.read_text()}")
    done = subprocess.run(
        [sys.executable, str(COMMAND), "tune", "--from", str(log), *GPU, "--candidates", "2"],
        cwd=tmp_path, env=fake_gpu, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "no problem: " in done.stdout
    assert "[1/12] 64x48x512x1 tn bfloat16 bfloat16: " in done.stdout  # NumPy has no such type
    assert f"tuned {len(SHAPES.read_text().splitlines())} problems" in done.stdout


def test_an_interrupt_keeps_what_there_is(tmp_path, fake_gpu):
    log = tmp_path / "shapes.txt"
    log.write_text("".join(f"{m}x48x512x1 tn float16 float16\n" for m in range(1, 400)))
    tune = subprocess.Popen(
        [sys.executable, str(COMMAND), "tune", "--from", str(log), *GPU, "--candidates", "2"],
        cwd=tmp_path, env=fake_gpu, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # jobs of shells ignore it
    )  # fmt: skip
    first = tune.stdout.readline()
    assert first.startswith("[1/399]"), first
    tune.send_signal(signal.SIGINT)
    said, errors = tune.communicate(timeout=60)
    assert tune.returncode == 130, errors
    assert not errors
    assert "stopped before" in said
    stored = len((tmp_path / "cache" / "tuned.txt").read_text().splitlines()) - 2  # beside the header and the first
    assert stored - said.count("times\n") in (0, 1)  # the interrupt may fall between storing a choice and its line


LOG = """
import cleave, os
for m in range(1, 200):
    cleave.plan_problem(m % 100, 64, 256, device="h100")
    cleave.plan_problem(m, 64, 256, split_k_mode="parallel", device="h100")
    cleave.plan_problem(m, 64, 256, device="cpu")
"""


def planned(log: Path, **options: object) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", LOG], env=os.environ | {"CLEAVE_LOG_SHAPES": str(log)}, text=True,
        stderr=subprocess.PIPE, **options,
    )  # fmt: skip


def test_processes_share_a_log(tmp_path):
    """Each has each of its problems once, those alone that are left to the planner, in whole lines."""
    log = tmp_path / "shapes.txt"
    processes = [planned(log) for _ in range(3)]
    for process in processes:
        assert not process.communicate(timeout=120)[1]
    lines = log.read_text().splitlines()
    assert sorted(lines) == sorted(f"{m}x64x256x1 tn bfloat16 bfloat16" for m in range(100) for _ in range(3) if m)


def test_a_log_that_cannot_be_written_is_one_warning(tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for log in (tmp_path / "missing" / "shapes.txt", tmp_path, Path("/dev/full"), fifo):
        process = planned(log)
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0
        assert errors.count("\n") == 1
        assert errors.startswith(f"cleave: CLEAVE_LOG_SHAPES is {log}, which cannot be written (")
