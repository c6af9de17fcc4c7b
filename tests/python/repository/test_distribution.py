"""What pip is told of the package, and the other places that say it."""

from __future__ import annotations

import ast
import re
import tomllib

import pytest
from doc_snippets import ROOT

from cleave import _extension_build

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
OLDEST_PYTHON = PROJECT["requires-python"].removeprefix(">=")
SOURCES = sorted((ROOT / "python" / "cleave").rglob("*.py"))


def test_the_remedies_name_the_distribution() -> None:
    assert PROJECT["name"] == _extension_build.DISTRIBUTION


def test_cmake_and_readme_ask_for_the_same_python() -> None:
    cmake = (ROOT / "cmake" / "python.cmake").read_text("utf-8")
    assert re.findall(r"find_package\(Python ([\d.]+)", cmake) == [OLDEST_PYTHON]
    assert f"| system | Linux; Python {OLDEST_PYTHON} or newer;" in (ROOT / "README.md").read_text("utf-8")


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_oldest_python_reads_the_package(path) -> None:
    major, minor = OLDEST_PYTHON.split(".")
    ast.parse(path.read_text("utf-8"), feature_version=(int(major), int(minor)))
