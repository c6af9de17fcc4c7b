"""How a process ends while a daemon thread is in a call."""

from __future__ import annotations

import subprocess
import sys

import pytest

SETUP = """
import threading, time
import numpy as np
import cleave
a = np.ones((64, 64), np.float32)
out = np.empty_like(a)
plan = cleave.plan_gemm(a, a, out=out)
q, scale = np.empty((64, 64), np.int8), np.empty((64, 1), np.float32)
def repeat():
    while True:
        {call}
threading.Thread(target=repeat, daemon=True).start()
time.sleep(0.1)
"""


@pytest.mark.parametrize(
    "call",
    [
        "cleave.gemm(a, a, out=out)",
        "plan.run(a, a, out=out)",
        "cleave.plan_gemm(a, a, out=out)",
        "cleave.quantize(a, out=q, scale_out=scale)",
        "cleave.moe.gather(a, np.zeros(64, np.int32))",
    ],
)
def test_a_daemon_thread_in_a_call_does_not_abort_the_exit(call: str) -> None:
    done = subprocess.run([sys.executable, "-c", SETUP.format(call=call)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
