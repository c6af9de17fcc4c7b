"""Runs docs/cuda-graphs.md: its snippets are one program, which checks its own results."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from doc_snippets import ROOT, python_snippets  # noqa: E402


def test_snippets_run_from_top_to_bottom(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("cleave.torch", exc_type=ImportError)
    page = ROOT / "docs" / "cuda-graphs.md"
    names: dict = {}
    for source in python_snippets(page):
        exec(compile(source, str(page), "exec"), names)
    assert "call plan.prepare(stream) or run it once before capture" in capsys.readouterr().out
