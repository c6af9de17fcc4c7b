"""Every launch ends, also where the GPU cannot run all of its CTAs together (provocations.py)."""

from __future__ import annotations

import subprocess
import sys
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
    ],
)
def test_launches_end(what: str, mode: str) -> None:
    output = provoke(what, mode)
    assert f"{what} {mode}: {ROUNDS} rounds ended" in output, output


def test_serial_is_refused_where_its_ctas_do_not_fit() -> None:
    output = provoke("green", "serial")
    assert "CTAs wait for each other" in output, output
    assert 'use split_k_mode="parallel"' in output, output
