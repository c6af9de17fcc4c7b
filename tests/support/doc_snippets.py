"""The snippets of a page of documentation."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def snippets(page: Path, language: str) -> list[str]:
    """Each behind as many empty lines as precede it, so that tracebacks point into the page."""
    text = page.read_text("utf-8")
    return [
        "\n" * text.count("\n", 0, match.start(1)) + match[1]
        for match in re.finditer(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    ]


def python_snippets(page: Path) -> list[str]:
    return snippets(page, "python")
