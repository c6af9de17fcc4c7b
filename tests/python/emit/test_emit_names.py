"""Names that emitted projects may have."""

from __future__ import annotations

import importlib.abc
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("torch", minversion="2.10")

from emitted_builds import (
    COPIED,
    CUDA_HEADERS,
    WARNINGS,
    every_target,
)

import cleave

# Functions, headers and files have them; everything emitted has a namespace and a folder.
ODD_NAMES = [
    "index",
    "abs",
    "y0",
    "j1",
    "cuda",
    "norm",
    "string",
    "time",
    "driver",
    "example",
    "test",
]


def test_names_of_the_c_library_compile(f16_plan: cleave.GemmPlan, tmp_path: Path) -> None:
    """All in one program, even."""
    lines, folders = [], []
    for name in ODD_NAMES:
        folder = cleave.emit.cpp(f16_plan, name, tmp_path / name)
        if lines:  # one copy of what all have
            for part in COPIED:
                shutil.rmtree(folder / part, ignore_errors=True)
        folders += [f"-I{folder / part}" for part in ("include", "src", "kernels")]
        lines += [f'#include "{path}"' for path in sorted(folder.glob("src/*.cpp"))]
    command = ["g++", "-std=gnu++20", "-fsyntax-only", *WARNINGS.split(), f"-isystem{CUDA_HEADERS}"]
    done = subprocess.run(
        [*command, *folders, "-x", "c++", "-"],
        input="\n".join(lines) + "\n", capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def function_with(name: str) -> cleave.Epilogue:
    """An epilogue function whose input has that name."""
    scope: dict = {"cleave": cleave}
    exec(f"def add(acc, {name}: cleave.row):\n    return acc + {name}\n", scope)
    return cleave.epilogue(scope["add"])


@pytest.mark.parametrize("name", ["a", "alpha", "bias", "out", "template", "EOF"])
@every_target
def test_names_of_a_functions_inputs_are_refused(target: Callable, name: str, tmp_path: Path) -> None:
    """Those that another argument has, or C++ for something else."""
    epilogue = function_with(name)(**{name: "float32"})
    plan = cleave.plan_problem(64, 64, 64, dtype="float16", bias="row", epilogue=epilogue, device="h100")
    with pytest.raises(ValueError, match=f'input "{name}".*rename it, "my_'):
        target(plan, "projection", tmp_path / "folder")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["errno", "stdin", "EOF", "NULL", "size_t", "double_t", "CUstream", "class"])
@every_target
def test_names_of_macros_and_types_are_refused(
    target: Callable, name: str, f16_plan: cleave.GemmPlan, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=f'name is "{name}".*another|identifier'):
        target(f16_plan, name, tmp_path / "folder")
    assert not any(tmp_path.iterdir())


@every_target
def test_what_is_no_text_is_refused(target: Callable, f16_plan: cleave.GemmPlan, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="name is None; it must be a string"):
        target(f16_plan, None, tmp_path / "folder")
    with pytest.raises(TypeError, match="sourcedir is None; it must be a path"):
        target(f16_plan, "projection", None)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        *((name, "is a package already") for name in ("json", "pip", "numpy", "setuptools")),
        *((name, "is a folder of every extension") for name in ("src", "build", "kernels")),
        ("quantized", r"PyTorch has a torch\.ops\.quantized"),
    ],
)
def test_packages_keep_their_names(name: str, reason: str, f16_plan: cleave.GemmPlan, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=reason):
        cleave.emit.pytorch(f16_plan, name, tmp_path / "folder")
    assert not any(tmp_path.iterdir())
    assert cleave.emit.cpp(f16_plan, name, tmp_path / "folder").exists()


def test_the_search_for_a_package_disturbs_no_import(f16_plan: cleave.GemmPlan, tmp_path: Path) -> None:
    """setuptools' finder gives up its own distutils in a process in which pip is looked for."""
    asked = []

    class Hook(importlib.abc.MetaPathFinder):
        def find_spec(self, name: str, *_: object) -> None:
            asked.append(name)

    hook = Hook()
    sys.meta_path.insert(0, hook)
    try:
        with pytest.raises(ValueError, match="is a package already"):
            cleave.emit.pytorch(f16_plan, "pip", tmp_path / "folder")
    finally:
        sys.meta_path.remove(hook)
    assert "pip" not in asked


def test_an_emitted_package_may_be_emitted_again(
    f16_plan: cleave.GemmPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the first one is installed."""
    monkeypatch.syspath_prepend(cleave.emit.pytorch(f16_plan, "again", tmp_path / "first"))
    assert cleave.emit.pytorch(f16_plan, "again", tmp_path / "second").exists()
