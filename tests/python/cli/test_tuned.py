"""The user's tuning file: what of it is believed, and what is not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

VERSION = "# cleave tuned, version 2\n"
GPU = "NVIDIA H100 80GB HBM3"
MEASURED = "measured to be the fastest"

# Prints why each problem, of which the arguments are, runs as it does.
EXPLAIN = """
import json, sys
import cleave

for problem in json.loads(sys.argv[1]):
    print(cleave.plan_problem(**problem, device="h100").why)
"""


def explain(folder: Path, *problems: dict, **environment: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", EXPLAIN, json.dumps(problems)], cwd=folder, text=True, timeout=120,
        env=os.environ | {"CLEAVE_CACHE_DIR": str(folder)} | environment, capture_output=True,
    )  # fmt: skip
    assert done.returncode == 0, (done.returncode, done.stderr)
    return done.stdout.splitlines()


def problem(m: int, **options: object) -> dict:
    return {"m": m, "n": 64, "k": 256, "dtype": "bfloat16", **options}


def line(m: int, spec: str, options: str = "", batch: int = 1) -> str:
    return f"{GPU} | {m}x64x256x{batch} tn bfloat16 bfloat16{options} | {spec}\n"


def tuned_file(folder: Path) -> Path:
    folder.chmod(0o700)
    return folder / "tuned.txt"


LISTED = "sm90 128x64 multicast 2x1"


def test_a_measured_choice_is_taken(tmp_path):
    tuned_file(tmp_path).write_text(VERSION + line(65, LISTED))
    measured, other = explain(tmp_path, problem(65), problem(66))
    assert measured.startswith(f"{LISTED}: {MEASURED}")
    assert MEASURED not in other


def test_a_measured_portable_kernel_is_not_explained_by_tma(tmp_path):
    tuned_file(tmp_path).write_text(VERSION + line(65, "portable 64x64"))
    (why,) = explain(tmp_path, problem(65))
    assert why.startswith(f"portable 64x64: {MEASURED}")
    assert "TMA" not in why


BAD = [
    "sm90 64x0", "sm90 0x64", "sm90 0x0", "sm90 64x64 multicast 0x1", "sm90 64x64 multicast 8x8",
    "sm90 64x64 parallel 4 clusters 0", "sm90 64x64 parallel 4 clusters 3", "portable 128x1",
    "portable 7x9", "auto 128x128", "sm90 12x128", "sm90 64x64 cluster 4000000000",
    "sm90 64x64 serial 0", "sm90 64x64 serial -1", "sm90 64x64 auto 2",
    "sm90 64x64 gather pingpong", "portable 64x64 transposed", "sm90 64x", "sm90", "",
    "sm90 64x64 clusters 8", "a" * 5000, "sm90 99999999999x64",
]  # fmt: skip


def test_lines_that_name_no_kernel_of_the_catalogue_are_not_believed(tmp_path):
    lines = "".join(line(65 + i, spec) for i, spec in enumerate(BAD))
    tuned_file(tmp_path).write_text(VERSION + lines + line(64, LISTED))
    problems = [problem(65 + i) for i in range(len(BAD))]
    *bad, good = explain(tmp_path, *problems, problem(64))
    assert [why for why in bad if MEASURED in why] == []
    assert MEASURED in good


def test_a_torn_line_is_not_believed(tmp_path):
    tuned_file(tmp_path).write_text(VERSION + line(65, LISTED) + line(66, LISTED).rstrip("\n"))
    whole, torn = explain(tmp_path, problem(65), problem(66))
    assert MEASURED in whole
    assert MEASURED not in torn


@pytest.mark.parametrize("first", ["", "# cleave tuned, version 1\n"])
def test_a_file_of_another_version_is_not_believed(tmp_path, first):
    tuned_file(tmp_path).write_text(first + line(65, LISTED) * 2)
    assert MEASURED not in explain(tmp_path, problem(65))[0]


def test_a_file_that_others_can_write_is_not_believed(tmp_path):
    path = tuned_file(tmp_path)
    path.write_text(VERSION + line(65, LISTED))
    path.chmod(0o666)
    assert MEASURED not in explain(tmp_path, problem(65))[0]


@pytest.mark.parametrize("kind", ["fifo", "directory", "link", "device", "sparse"])
def test_what_is_no_file_is_not_waited_for(tmp_path, kind):
    path = tuned_file(tmp_path)
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    elif kind == "sparse":
        with path.open("wb") as file:
            file.truncate(1 << 40)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        (tmp_path / "other.txt").write_text(VERSION + line(65, LISTED))
        path.symlink_to("other.txt")
    assert MEASURED not in explain(tmp_path, problem(65))[0]


def test_without_a_cache_directory_there_is_no_file(tmp_path):
    """Not one of the current directory, either, where a user has no home and no entry."""
    if os.geteuid() != 0:
        pytest.skip("only root can become a user without an entry")
    script = f"import os; os.setgroups([]); os.setgid(54321); os.setuid(54321)\n{EXPLAIN}"
    tmp_path.chmod(0o777)
    path = tmp_path / "tuned.txt"
    path.write_text(VERSION + line(65, LISTED))
    os.chown(path, 54321, 54321)
    names = ("HOME", "CLEAVE_CACHE_DIR", "XDG_CACHE_HOME")
    environment = {name: value for name, value in os.environ.items() if name not in names}
    # Imported as root: the checkout may lie where nobody else can read.
    script = f"import json, sys, cleave\n{script}\nimport cleave._core as core\n"
    script += "print(core.tuned_info())"
    done = subprocess.run(
        [sys.executable, "-c", script, json.dumps([problem(65)])], cwd=tmp_path, env=environment,
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    why, info = done.stdout.splitlines()
    assert MEASURED not in why
    assert "'path': ''" in info
    assert "CLEAVE_CACHE_DIR" in info


def test_a_product_does_not_decide_another_kind_of_product(tmp_path):
    """A line serves products that differ in a bias, too, but no groups or gates."""
    tuned_file(tmp_path).write_text(
        VERSION + line(64, LISTED, batch=4) + line(64, "sm90 64x64", batch=4, options=" bias row bfloat16")
    )
    plain = problem(64, batch=4)
    whys = explain(
        tmp_path, plain, plain | {"bias": "row"}, plain | {"bias": "column"},
        plain | {"grouping": "m"}, plain | {"activation": "swiglu"},
    )  # fmt: skip
    assert [MEASURED in why for why in whys] == [True, True, True, False, False]
    assert whys[0].startswith(LISTED)
    assert whys[1].startswith("sm90 64x64:")
    assert whys[2].startswith(LISTED)


def test_cache_clear_removes_the_file(tmp_path):
    path = tuned_file(tmp_path)
    path.write_text(VERSION + line(65, LISTED))
    done = subprocess.run(
        [sys.executable, "-m", "cleave", "cache", "clear"], capture_output=True, text=True,
        env=os.environ | {"CLEAVE_CACHE_DIR": str(tmp_path)}, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "1 measured choice" in done.stdout
    assert not path.exists()


def test_info_says_what_the_file_has(tmp_path):
    def info() -> str:
        done = subprocess.run(
            [sys.executable, "-c", "import cleave._core as core; print(core.tuned_info())"],
            env=os.environ | {"CLEAVE_CACHE_DIR": str(tmp_path)}, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "'entries': 0, 'problem': ''" in info()
    path = tuned_file(tmp_path)
    path.write_text(VERSION + line(65, LISTED) + line(66, "sm90 1x1"))
    assert "'entries': 1, 'problem': '" in info()
    assert "1 lines that name no problem or no kernel" in info()
    path.write_text(line(65, LISTED))
    assert "is no tuning file of this version" in info()


def merge(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "cleave", "tune", "merge", *arguments], capture_output=True, text=True,
        env=os.environ | {"CLEAVE_CACHE_DIR": str(folder)}, timeout=120,
    )  # fmt: skip
    assert not done.stderr
    return done.stdout


def test_another_file_is_merged(tmp_path):
    path = tuned_file(tmp_path)
    path.write_text(VERSION + line(65, LISTED))
    other = tmp_path / "other.txt"
    other.write_text(VERSION + line(65, "sm90 64x64") + line(66, "sm90 64x64") + line(67, "sm90 1x1"))
    said = merge(tmp_path, str(other))
    assert "has 1 lines that name no problem or no kernel" in said
    assert "1 choices added, 0 replaced; 1 of problems" in said
    assert path.read_text() == VERSION + line(65, LISTED) + line(66, "sm90 64x64")
    assert "0 choices added, 2 replaced" in merge(tmp_path, "--replace", str(other))
    assert path.read_text() == VERSION + line(65, "sm90 64x64") + line(66, "sm90 64x64")
    kept, added, unknown = explain(tmp_path, problem(65), problem(66), problem(67))
    assert MEASURED in kept
    assert MEASURED in added
    assert MEASURED not in unknown


def test_what_is_no_tuning_file_is_not_merged(tmp_path):
    other = tmp_path / "other.txt"
    other.write_text(line(65, LISTED))
    assert "is no tuning file of this version" in merge(tmp_path, str(other))
    assert not tuned_file(tmp_path).exists()
