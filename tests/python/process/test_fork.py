"""os.fork() while other threads plan and multiply, as torch's DataLoader does: no child hangs."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Each of the children plans, multiplies on the CPU and ends; SIGALRM ends one that hangs.
FORKS = """
import os, signal, sys, threading
import numpy as np
import cleave

kind, forks = sys.argv[1], int(sys.argv[2])
a = np.ones((64, 64), np.float32)
done = False

def load(first):
    m = first
    while not done:
        m = m % 4000 + 2
        if kind == "plan":
            cleave.plan_problem(m, 64, 64, device="h100", split_k_mode="none")
        elif kind == "quantize":
            cleave.quantize(np.ones((m % 50 + 1, 128), np.float32), "int8", "row")
        else:
            cleave.gemm(np.ones((m % 300 + 1, 64), np.float32), a)

def child(i):
    signal.alarm(60)
    cleave.plan_problem(64, 64, 64 + 64 * i, device="h100", split_k_mode="none")
    d = cleave.gemm(a, a)
    assert (d == 64).all()
    cleave.quantize(a, "int8", "row")
    threads = [threading.Thread(target=cleave.gemm, args=(a, a[:, : j + 1])) for j in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

# The first array of a process imports a module, and Python itself lets no child import what another
# thread was importing.
cleave.gemm(a, a)
loads = [threading.Thread(target=load, args=(i,), daemon=True) for i in range(2)]
for thread in loads:
    thread.start()
try:
    for i in range(forks):
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                child(i)
                status = 0
            finally:
                os._exit(status)
        _, status = os.waitpid(pid, 0)
        assert status == 0, f"child {i} ended with {status}"
finally:
    done = True
    for thread in loads:
        thread.join()
"""


@pytest.mark.parametrize("kind", ["plan", "multiply", "quantize"])
def test_children_of_a_busy_process_work(kind):
    done = subprocess.run([sys.executable, "-c", FORKS, kind, "60"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_cuda_in_a_child_is_refused_in_clear_words(fake_gpu):
    """On the fake driver: the real one's contexts do not survive a fork either."""
    script = """
import os, sys
import numpy as np
import cleave

assert cleave.device_count() == 1
plan = cleave.plan_problem(64, 64, 64, device="cuda")
pid = os.fork()
if pid == 0:
    status = 1
    try:
        try:
            plan.prepare(1)
        except cleave.CudaError as error:
            status = 0 if "forked" in str(error) and "spawn" in str(error) else 2
        a = np.ones((8, 8), np.float32)
        if not (cleave.gemm(a, a) == 8).all():
            status = 3
    finally:
        os._exit(status)
assert os.waitpid(pid, 0)[1] == 0
"""
    done = subprocess.run([sys.executable, "-c", script], env=fake_gpu, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
