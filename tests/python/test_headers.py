"""The public C++ headers: each compiles alone, and says what it needs where that is missing."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from doc_snippets import ROOT

HEADERS = sorted((ROOT / "include" / "cleave").glob("*.h"))
COMPILER = shutil.which("c++")

pytestmark = pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler")


def compile_alone(header: Path, standard: str) -> list[str]:
    """The compiler's errors and warnings."""
    include = [f"-I{ROOT / folder}" for folder in ("include", "kernels")]
    said = subprocess.run(
        [COMPILER, f"-std={standard}", "-fsyntax-only", "-Wall", "-Wextra", *include, "-xc++", "-"],
        input=f'#include "cleave/{header.name}"\n', capture_output=True, text=True, check=False,
    ).stderr  # fmt: skip
    return [line for line in said.splitlines() if "error: " in line or "warning: " in line]


@pytest.mark.parametrize("header", HEADERS, ids=lambda header: header.name)
def test_headers_stand_alone(header: Path) -> None:
    assert compile_alone(header, "c++20") == []


@pytest.mark.parametrize("header", HEADERS, ids=lambda header: header.name)
def test_an_older_standard_is_named_in_the_first_error(header: Path) -> None:
    assert "need C++20" in compile_alone(header, "c++17")[0]
