"""What `import cleave.jax` says where something is missing."""

from __future__ import annotations

import subprocess
import sys

import pytest
from doc_snippets import ROOT

from cleave import _jax_build
from cleave.cli import main


def last_line(code: str) -> str:
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    return said.stderr.splitlines()[-1]


def test_without_jax() -> None:
    last = last_line("import sys; sys.modules['jax'] = None\nimport cleave.jax")
    assert last.startswith("ModuleNotFoundError: cleave.jax needs jax 0.10 or newer")
    assert "pip install 'jax>=0.10'" in last or "Run: make" in last


def test_without_the_library() -> None:
    pytest.importorskip("jax", minversion="0.10", reason="needs jax 0.10 or newer: pip install jax")
    block = "from pathlib import Path; from cleave import _jax_build as b; b.LIBRARY = Path('/no')"
    assert last_line(f"{block}\nimport cleave.jax").startswith("ImportError: cleave.jax is not built")


def test_the_docs_name_the_oldest_jax() -> None:
    for page in ("docs/jax.md", "docs/support.md"):
        text = (ROOT / page).read_text("utf-8")
        assert f"jax {_jax_build.OLDEST_JAX} or newer" in text or f"| {_jax_build.OLDEST_JAX} |" in text


def test_info_has_a_row_for_it(capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setattr(_jax_build, "LIBRARY", tmp_path / "missing.so")
    assert main(["info"]) == 0
    (row,) = [line for line in capsys.readouterr().out.splitlines() if "import cleave.jax" in line]
    assert " no " in row and " build" in row
