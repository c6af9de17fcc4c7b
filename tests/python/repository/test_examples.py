"""examples/minilm/search.py, with a small made-up model."""

from __future__ import annotations

from pathlib import Path

import minilm_checkpoint
import pytest

from examples.minilm import weights

pytest.importorskip("cleave.torch", exc_type=ImportError)

from examples.minilm import search

PARAGRAPHS = [f"paragraph {i} has {i * i} letters" for i in range(40)]  # more than one batch


@pytest.mark.parametrize("dtype", ["int8", "float8_e4m3fn"])
def test_finds_the_paragraph(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], dtype: str
) -> None:
    monkeypatch.setattr(weights, "load", minilm_checkpoint.checkpoint)
    file = tmp_path / "text"
    file.write_text("\n\n".join(PARAGRAPHS))
    search.main([str(file), PARAGRAPHS[36], "--best", "2", "--dtype", dtype])
    first, second = capsys.readouterr().out.split("\n\n")[:2]
    assert first == f"1.00  {PARAGRAPHS[36]}"
    assert second.partition("  ")[2] in PARAGRAPHS
