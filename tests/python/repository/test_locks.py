"""Locks that survive fork() are the library's own (src/process/fork.h): in a child, nobody releases others."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
OTHERS = re.compile(r"\bstd::(?:(?:shared_|recursive_|timed_)*mutex|once_flag|call_once)\b")


def test_what_is_locked_is_free_in_a_child() -> None:
    own, emitted = ROOT / "src/process", ROOT / "src/emit/project"
    sources = [
        path
        for path in (ROOT / "src").rglob("*")
        if path.suffix in (".h", ".cpp") and not path.is_relative_to(own) and not path.is_relative_to(emitted)
    ]
    assert len(sources) > 300
    found = [str(path.relative_to(ROOT)) for path in sources if OTHERS.search(path.read_text())]
    assert not found
