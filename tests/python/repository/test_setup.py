"""Setting up: what is asked of a shell and of an index."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_a_path_may_have_a_space(tmp_path: Path) -> None:
    folder = tmp_path / "sp ace"
    folder.mkdir()
    shutil.copy(ROOT / "Makefile", folder)
    commands = subprocess.run(
        ["make", "--dry-run", "build"], cwd=folder, check=True, capture_output=True, text=True
    ).stdout
    assert f"-DPython_EXECUTABLE={folder}/.venv/bin/python" in shlex.split(commands)


def test_the_demos_data_are_fixed_by_hash() -> None:
    text = (ROOT / "tools" / "demo-requirements.txt").read_text("utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert len(lines) == 2
    assert all(re.fullmatch(r"[\w-]+==[\w.]+ --hash=sha256:[0-9a-f]{64}", line) for line in lines)
