"""Lines are at most 120 columns wide: clang-format leaves comments as they are, and nothing looks at pages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from doc_snippets import ROOT

FOLDERS = ["bench", "cmake", "docs", "examples", "include", "integrations", "kernels", "python", "src", "tests"]
FOLDERS += ["tools", ".github"]
ENDINGS = {".h", ".cpp", ".py", ".in", ".md", ".cmake", ".sh", ".toml", ".txt", ".yml"}
MADE = re.compile(r"bench/results/|tests/peer_signatures")  # by programs


def files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        made = MADE.match(path.relative_to(ROOT).as_posix())
        if (path.suffix in ENDINGS or path.name == "CMakeLists.txt") and path.is_file() and not made:
            yield path


def too_wide(path: Path) -> list[str]:
    """A table of Markdown has a line for each row, however much that says."""
    lines = enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
    return [f"{path.relative_to(ROOT)}:{number}" for number, line in lines if len(line) > 120 and line[0] != "|"]


@pytest.mark.parametrize("folder", FOLDERS)
def test_lines_of_folders(folder: str) -> None:
    found = list(files(ROOT / folder))
    assert found
    assert not [line for path in found for line in too_wide(path)]


def test_lines_of_the_root() -> None:
    found = [path for path in ROOT.iterdir() if path.suffix in ENDINGS or path.name in ("Makefile", "CMakeLists.txt")]
    assert len(found) > 5
    assert not [line for path in found for line in too_wide(path)]
