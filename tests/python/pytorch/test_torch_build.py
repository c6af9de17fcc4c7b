"""What cleave says to run where torch.ops.cleave is missing: for each way of installing it."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from doc_snippets import ROOT

from cleave import _extension_build, _torch_build
from cleave.cli import main

PIP = [sys.executable, "-m", "pip", "install"]
AGAIN = [*PIP, "--force-reinstall", "--no-deps", "--no-binary", "cleave-gemm"]


def command(package: Path, origin: dict[str, Any] | None) -> list[str]:
    return shlex.split(_extension_build.build_command(package, origin))


def test_a_checkout_is_built_by_make(tmp_path: Path) -> None:
    checkout = tmp_path / "a checkout"
    package = checkout / "python" / "cleave"
    package.mkdir(parents=True)
    (checkout / "Makefile").write_text("build:\n\t@echo built\n")
    words = command(package, None)
    assert words == ["make", "-C", str(checkout), "build"]
    assert "built" in subprocess.run(words, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("name", ["sources", "the sources", "cleave_gemm-0.1.0.tar.gz"])
def test_a_folder_or_an_archive_is_built_again(tmp_path: Path, name: str) -> None:
    sources = tmp_path / name
    sources.mkdir()
    kind = "archive_info" if name.endswith(".gz") else "dir_info"
    words = command(tmp_path / "site-packages" / "cleave", {"url": sources.as_uri(), kind: {}})
    assert words == [*AGAIN, str(sources)]


def test_a_repository_is_built_again_at_its_commit(tmp_path: Path) -> None:
    origin = {
        "url": "https://example.org/cleave.git",
        "vcs_info": {"vcs": "git", "commit_id": "0123abc"},
    }
    assert command(tmp_path, origin) == [*AGAIN, "git+https://example.org/cleave.git@0123abc"]


@pytest.mark.parametrize("origin", ["wheel", "index", "folder that is gone"])
def test_what_was_a_wheel_is_built_from_its_sources(tmp_path: Path, origin: str) -> None:
    """A wheel installs the same again, and PyPI's cleave is another project."""
    wheel = tmp_path / "cleave_gemm-0.1.0-cp311-cp311-linux_x86_64.whl"
    wheel.touch()
    recorded = {
        "wheel": {"url": wheel.as_uri(), "archive_info": {}},
        "index": None,
        "folder that is gone": {"url": (tmp_path / "gone").as_uri(), "dir_info": {}},
    }[origin]
    text = _extension_build.build_command(tmp_path / "site-packages" / "cleave", recorded)
    enter, _, build = text.partition(" && ")
    assert enter == "cd <the sources of cleave>"
    assert shlex.split(build) == [*AGAIN, "."]


def test_pip_knows_every_option() -> None:
    options = [word for word in AGAIN if word.startswith("--")]
    text = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--help"],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    assert all(option in text for option in options)


def test_the_oldest_torch_is_the_builds() -> None:
    numbers = re.findall(r"set\(TORCH_OLDEST_M\w+ (\d+)\)", (ROOT / "cmake" / "torch.cmake").read_text("utf-8"))
    assert ".".join(numbers) == _torch_build.OLDEST_TORCH


@pytest.mark.parametrize("version", ["2.9.1", "1.13.0+cpu", None])
def test_torch_is_asked_for_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str | None) -> None:
    monkeypatch.setattr(_extension_build.metadata, "version", lambda _: version)
    monkeypatch.setattr(_extension_build.importlib.util, "find_spec", lambda _: version)
    monkeypatch.setattr(_torch_build, "LIBRARY", tmp_path / "missing.so")
    first, _, second = _torch_build.remedy().partition(" && ")
    assert shlex.split(first) == [*PIP, "torch>=2.10"]
    assert shlex.split(second)[0] in ("make", sys.executable, "cd")
    monkeypatch.setattr(_torch_build, "LIBRARY", Path(__file__))
    assert _torch_build.remedy() == first


def test_torch_of_today_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_extension_build.importlib.util, "find_spec", lambda _: object())
    monkeypatch.setattr(_torch_build, "LIBRARY", Path(__file__))
    for version in ("2.10.0", "2.13.0+cu130", "3.0.0a0"):
        monkeypatch.setattr(_extension_build.metadata, "version", lambda _, v=version: v)
        assert _torch_build.remedy() == ""


def import_without(block: str) -> str:
    code = f"import sys\n{block}\nimport cleave.torch"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT).stderr.splitlines()[
        -1
    ]


def test_import_without_torch() -> None:
    last = import_without("sys.modules['torch'] = None")
    assert last.startswith("ModuleNotFoundError: cleave.torch needs torch 2.10 or newer")
    assert "-m pip install 'torch>=2.10'" in last or "Run: make" in last


def test_import_without_the_library() -> None:
    pytest.importorskip("torch", minversion="2.10")
    block = "from pathlib import Path; from cleave import _extension_build, _torch_build as b; b.LIBRARY = Path('/no')"
    last = import_without(block)
    assert last.startswith("ImportError: torch.ops.cleave is missing")
    assert last.endswith(f"Run: {_extension_build.build_command(_extension_build.PACKAGE, None)}")


def test_info_says_whether_they_work(
    capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("torch", minversion=_torch_build.OLDEST_TORCH)
    monkeypatch.setattr(_torch_build, "LIBRARY", tmp_path / "missing.so")
    assert main(["info"]) == 1
    row, broken = [line for line in capsys.readouterr().out.splitlines() if "torch.ops.cleave" in line]
    assert " no " in row and " build" in row
    assert broken.startswith("Broken: ")
