"""Where compiled kernels are kept: a process for each case, since it is found out once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import cleave


def cleave_says(code: str, cwd: Path, **environment: str | bytes) -> str:
    """What the code prints, with these variables and no others that say where the cache is."""
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment}
    for name in {"CLEAVE_CACHE_DIR", "XDG_CACHE_HOME"} - set(environment):
        variables.pop(name, None)
    return subprocess.run(
        [sys.executable, "-P", "-c", code],
        cwd=cwd, env=variables, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip


INFO = "import cleave, json; print(json.dumps(cleave.cache_info()))"


def cache_info(cwd: Path, **environment: str | bytes) -> dict[str, object]:
    return json.loads(cleave_says(INFO, cwd, **environment))


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"CLEAVE_CACHE_DIR": "/{tmp}/a"}, "a"),
        ({"CLEAVE_CACHE_DIR": "a/b"}, "a/b"),
        ({"CLEAVE_CACHE_DIR": "~/a"}, "home/a"),
        ({"XDG_CACHE_HOME": "/{tmp}/xdg"}, "xdg/cleave"),
        ({"XDG_CACHE_HOME": "relative"}, "home/.cache/cleave"),
        ({}, "home/.cache/cleave"),
    ],
)
def test_the_directory(tmp_path: Path, environment: dict[str, str], expected: str) -> None:
    environment = {k: v.replace("/{tmp}", str(tmp_path)) for k, v in environment.items()}
    info = cache_info(tmp_path, HOME=str(tmp_path / "home"), **environment)
    assert info["path"] == str(tmp_path / expected)
    assert info["problem"] == ""
    assert (tmp_path / expected).is_dir()
    assert not (tmp_path / "~").exists()


def test_a_relative_directory_stays_where_it_was(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    code = f"import os, cleave; cleave.cache_info(); os.chdir('elsewhere'); {INFO}"
    info = json.loads(cleave_says(code, tmp_path, CLEAVE_CACHE_DIR="a"))
    assert info["path"] == str(tmp_path / "a")


def test_a_home_that_is_no_path_is_a_problem_that_names_the_remedy(tmp_path: Path) -> None:
    info = cache_info(tmp_path, HOME="relative")
    assert info["path"] == ""
    assert "set CLEAVE_CACHE_DIR" in info["problem"]
    assert not any(tmp_path.iterdir())


def test_a_directory_that_others_may_write_is_a_problem_in_cleave_info(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    out = cleave_says("from cleave.cli import main; main(['info'])", tmp_path, CLEAVE_CACHE_DIR=str(tmp_path))
    line = next(line for line in out.splitlines() if "keeping compiled kernels" in line)
    assert " no " in line
    assert f'chmod go-w "{tmp_path}"' in line


def test_a_path_that_is_no_text(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/\xff"
    info = cache_info(tmp_path, CLEAVE_CACHE_DIR=path)
    assert os.fsencode(info["path"]) == path
    for command in ("info", "cache ls", "cache clear"):
        code = f"from cleave.cli import main; main({command.split()})"
        assert "\\xff" in cleave_says(code, tmp_path, CLEAVE_CACHE_DIR=path)


def test_the_tests_leave_the_users_cache_alone() -> None:
    assert cleave.cache_info()["path"] == os.environ["CLEAVE_CACHE_DIR"]
