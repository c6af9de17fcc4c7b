"""examples/minilm/search.py, with a small made-up model."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import minilm_checkpoint
import pytest

from cleave.demo.minilm import weights

pytest.importorskip("cleave.torch", exc_type=ImportError)

PATH = Path(__file__).parents[2] / "examples" / "minilm" / "search.py"
PARAGRAPHS = [f"paragraph {i} has {i * i} letters" for i in range(40)]  # more than one batch


@pytest.fixture
def search(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(weights, "load", minilm_checkpoint.checkpoint)
    spec = importlib.util.spec_from_file_location("search", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("dtype", ["int8", "float8_e4m3fn"])
def test_finds_the_paragraph(
    search: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], dtype: str
) -> None:
    file = tmp_path / "text"
    file.write_text("\n\n".join(PARAGRAPHS))
    search.main([str(file), PARAGRAPHS[36], "--best", "2", "--dtype", dtype])
    first, second = capsys.readouterr().out.split("\n\n")[:2]
    assert first == f"1.00  {PARAGRAPHS[36]}"
    assert second.partition("  ")[2] in PARAGRAPHS
