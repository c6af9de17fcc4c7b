"""Lines are at most 120 columns wide, and no sentence begins with a bare "Of", in comments and pages too, which no
formatter looks at."""

from __future__ import annotations

import re

import pytest
from doc_snippets import ROOT

FOLDERS = ["bench", "cmake", "docs", "examples", "include", "integrations", "kernels", "python", "src", "tests"]
FOLDERS += ["tools", ".github", "."]
ENDINGS = {".h", ".cpp", ".py", ".in", ".md", ".cmake", ".sh", ".toml", ".txt", ".yml"}
MADE = re.compile(r"bench/results/|tests/peer_signatures")  # by programs
BARE_OF = re.compile(r'(?:^ *(?:- )?|//[/<]* *|# |"""|[.!?] )Of(?: |$)')

folders = pytest.mark.parametrize("folder", FOLDERS)


def lines(folder: str) -> dict[str, str]:
    """By place. "." is the root without its folders."""
    top = ROOT / folder
    paths = sorted(top.iterdir() if folder == "." else top.rglob("*"))
    texts = [path for path in paths if path.is_file() and (path.suffix in ENDINGS or path.name == "Makefile")]
    names = {path: path.relative_to(ROOT).as_posix() for path in texts}
    found = {
        f"{name}:{number}": line
        for path, name in names.items()
        if not MADE.match(name)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
    }
    assert len(found) > 20
    return found


@folders
def test_lines_are_not_too_wide(folder: str) -> None:
    """A table of Markdown has a line for each row, however much that says."""
    assert not [place for place, line in lines(folder).items() if len(line) > 120 and line[0] != "|"]


@folders
def test_no_sentence_begins_with_a_bare_of(folder: str) -> None:
    assert not [place for place, line in lines(folder).items() if BARE_OF.search(line)]
