"""What emitted projects consist of."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", minversion="2.10")

from emitted_builds import (
    REPOSITORY,
    every_operation,
)
from emitted_operations import Convolution, Operation

import cleave


def emit_both(operation: Operation | Convolution, folder: Path, sources: str = "cuda") -> dict[str, str]:
    """The text of both projects, by path."""
    options = {"sources": sources, "archs": operation.archs}
    plan = operation.plan()
    cleave.emit.pytorch(plan, operation.name, folder / "pytorch", **options)
    cleave.emit.cpp(plan, operation.name, folder / "cpp", **options)
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_text() for path in files}


@every_operation
def test_nothing_refers_to_this_machine(operation: Operation | Convolution, tmp_path: Path) -> None:
    texts = emit_both(operation, tmp_path)
    places = {str(tmp_path), str(REPOSITORY), f"{Path.home()}/", sys.prefix}
    for path, text in texts.items():
        assert not [place for place in places if place in text], path
        assert "@if" not in text and "@end" not in text, path
        assert text.endswith("\n") and not text.endswith("\n\n"), path


@every_operation
def test_every_include_is_there_and_every_header_is_included(
    operation: Operation | Convolution, tmp_path: Path
) -> None:
    emit_both(operation, tmp_path)
    for project in ("pytorch", "cpp"):
        root = tmp_path / project
        places = [root / "include", root / "src", root / "kernels"]
        included = set()
        for path in (p for p in root.rglob("*") if p.suffix in (".h", ".cpp", ".cu")):
            for name in re.findall(r'^#include "(.+)"$', path.read_text(), re.M):
                found = [place / name for place in (path.parent, *places) if (place / name).exists()]
                assert found, f"{path} includes {name}"
                included.add(found[0])
        headers = set(root.rglob("*.h"))
        assert headers == included


@pytest.mark.skipif(
    not (shutil.which("clang-format") and shutil.which("ruff")),
    reason="needs clang-format and ruff",
)
@every_operation
def test_emitted_text_is_formatted(operation: Operation | Convolution, tmp_path: Path) -> None:
    emit_both(operation, tmp_path)
    shutil.copy(REPOSITORY / ".clang-format", tmp_path)
    sources = [str(p) for p in tmp_path.rglob("*") if p.suffix in (".h", ".cpp", ".cu")]
    config = f"--config={REPOSITORY / 'pyproject.toml'}"
    for command in (
        ["clang-format", "--dry-run", "--Werror", *sources],
        ["ruff", "check", "--no-cache", config, str(tmp_path)],
        ["ruff", "format", "--no-cache", "--check", config, str(tmp_path)],
    ):
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
