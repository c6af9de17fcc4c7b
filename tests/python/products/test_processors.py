"""How many threads the CPU backend takes for its own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two processors")
def test_threads_follow_the_affinity() -> None:
    one = {min(os.sched_getaffinity(0))}
    script = "import cleave; print(cleave._core.cpu_threads())"
    environment = {k: v for k, v in os.environ.items() if k != "CLEAVE_CPU_THREADS"}
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True, text=True, check=True, env=environment,
        preexec_fn=lambda: os.sched_setaffinity(0, one),
    )  # fmt: skip
    assert done.stdout == "1\n"
