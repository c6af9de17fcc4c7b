"""Every launch ends, also where the GPU cannot run all of its CTAs together (provocations.py)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

PROVOCATIONS = Path(__file__).with_name("provocations.py")
SECONDS = 20  # starting Python and torch takes five, compiling a few kernels one
ROUNDS = 1000


def provoke(what: str, mode: str, rounds: int = ROUNDS) -> str:
    child = [sys.executable, str(PROVOCATIONS), what, mode, str(rounds)]
    try:
        result = subprocess.run(child, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        pytest.fail(f"{what}, {mode}: a launch did not end within {SECONDS} s")
    if result.returncode == 77:
        pytest.skip(result.stdout.strip())
    return result.stdout + result.stderr


# serial's launches are refused in a context that cannot run all their CTAs; see below.
@pytest.mark.parametrize(
    ("what", "mode"),
    [
        ("green", "parallel"),
        ("green", "stream_k"),
        ("green", "auto"),
        ("priorities", "parallel"),
        ("priorities", "stream_k"),
        ("priorities", "serial"),
        ("dependents", "parallel"),
        ("dependents", "serial"),
        ("storm", "all"),
        ("green", "sort"),
        ("priorities", "sort"),
        ("dependents", "sort"),
        ("storm", "sort"),
    ],
)
def test_launches_end(what: str, mode: str) -> None:
    output = provoke(what, mode)
    assert f"{what} {mode}: {ROUNDS} rounds ended" in output, output


def test_serial_is_refused_where_its_ctas_do_not_fit() -> None:
    output = provoke("green", "serial")
    assert "CTAs wait for each other" in output, output
    assert 'use split_k_mode="parallel"' in output, output


CONTROL = "nvidia-cuda-mps-control"


@pytest.fixture(scope="module")
def mps() -> Iterator[dict[str, str]]:
    """The environment of processes that share the GPU through MPS, each on 40 % of it."""
    if shutil.which(CONTROL) is None:
        pytest.skip(f"needs {CONTROL}")
    with tempfile.TemporaryDirectory() as folder:  # short: its path goes into a socket's address
        environment = os.environ | {
            "CUDA_MPS_PIPE_DIRECTORY": folder,
            "CUDA_MPS_LOG_DIRECTORY": folder,
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "40",
        }
        started = subprocess.run([CONTROL, "-d"], env=environment, capture_output=True, text=True)
        if started.returncode != 0:
            pytest.skip(f"{CONTROL} does not start: {started.stdout}{started.stderr}")
        try:
            yield environment
        finally:
            subprocess.run([CONTROL], input="quit -t 5\n", env=environment, text=True)


@pytest.mark.parametrize("mode", ["parallel", "stream_k", "auto", "sort"])
def test_launches_end_beside_other_processes(mode: str, mps: dict[str, str]) -> None:
    """Three at once; none has room for all CTAs of its launches."""
    command = [sys.executable, str(PROVOCATIONS), "alone", mode, str(ROUNDS)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    children = [subprocess.Popen(command, env=mps, text=True, **pipes) for _ in range(3)]
    try:
        for child in children:
            output, _ = child.communicate(timeout=2 * SECONDS)
            assert f"alone {mode}: {ROUNDS} rounds ended" in output, output
    except subprocess.TimeoutExpired:
        pytest.fail(f"{mode}: a launch did not end within {2 * SECONDS} s")
    finally:
        for child in children:
            child.kill()
    servers = subprocess.run([CONTROL], input="get_server_list\n", env=mps, capture_output=True, text=True)
    assert servers.stdout.strip(), "the processes did not use MPS"
