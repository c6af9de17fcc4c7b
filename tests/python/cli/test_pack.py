"""Packs: kernels that another process starts from, without a compiler."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cli_calls import SMALL, run

import cleave
from cleave import _core
from cleave._pack import sources_of, write_pack
from cleave.cli.pack import _covering
from cleave.testing.case import GemmCase

PLAN = """
import cleave, sys
from cleave import _core
from cleave.testing.case import GemmCase
planned = GemmCase(64, 64, 256, dtype="float16", bias=sys.argv[1]).plan("h100")
print(_core.compile_plan(planned)["from_cache"])
"""


def planned(bias: str = "none") -> cleave.GemmPlan:
    return GemmCase(64, 64, 256, dtype="float16", bias=bias).plan("h100")


def without_compiler(pack: Path | str, cache: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {
        "CLEAVE_PACKS": str(pack),
        "CLEAVE_NVRTC": "/nowhere/libnvrtc.so",
        "CLEAVE_CACHE_DIR": str(cache),
    }
    return subprocess.run([sys.executable, *command], env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("packs") / "small.pack"
    built = cleave.build_pack(path, planned())
    assert built == cleave.Pack(path, 1, path.stat().st_size, "")
    return path


@pytest.mark.parametrize("named", ["file", "folder", "list"])
def test_a_process_that_has_the_pack_needs_no_compiler(named: str, pack: Path, tmp_path: Path) -> None:
    packs = {"file": pack, "folder": pack.parent, "list": f"{tmp_path / 'none.pack'}:{pack}"}[named]
    done = without_compiler(packs, tmp_path / "cache", "-c", PLAN, "none")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "True"
    assert not (tmp_path / "cache").exists()


def test_packs_beside_the_library_are_found_without_a_variable(
    pack: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maps = Path("/proc/self/maps").read_text()
    library = Path(next(word for word in maps.split() if "/libcleave.so" in word))
    (tmp_path / "packs").mkdir()
    shutil.copy(pack, tmp_path / "packs")
    shutil.copy(library, tmp_path / ".".join(library.name.split(".")[:4]))  # by the name that modules ask for
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    done = without_compiler("", tmp_path / "cache", "-c", PLAN, "none")
    assert done.returncode == 0, done.stderr
    (tmp_path / "packs" / pack.name).unlink()
    assert "NVRTC" in without_compiler("", tmp_path / "cache", "-c", PLAN, "none").stderr


def test_a_kernel_that_no_pack_has_is_an_error_that_names_them(pack: Path, tmp_path: Path) -> None:
    done = without_compiler(f"{pack}:{tmp_path / 'none.pack'}", tmp_path / "cache", "-c", PLAN, "row")
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert f"no pack has this kernel ({pack} has 1 others; {tmp_path / 'none.pack'}: it cannot be opened" in last
    assert "cleave pack build" in last and "pip install nvidia-cuda-nvrtc" in last


def test_info_says_what_is_wrong_with_a_pack(pack: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.pack"
    bad.write_bytes(pack.read_bytes()[:-1] + b"x")
    bad.chmod(0o666)
    command = ["-c", "from cleave import cli; cli.main(['info'])"]
    said = without_compiler(f"{pack}:{bad}", tmp_path / "cache", *command).stdout
    assert f"{pack}: 1 kernels" in said
    assert "run chmod go-w" in " ".join(said.split())


def test_a_pack_replaces_a_file_as_a_whole(pack: Path, tmp_path: Path) -> None:
    path = tmp_path / "there.pack"
    path.write_text("something else")
    cleave.build_pack(path, [planned(), planned("row"), planned()])
    assert _core.pack_info(str(path))["kernels"] == 2
    assert _core.pack_info(str(path))["problem"] == ""
    assert path.stat().st_mode & 0o022 == 0
    assert [file.name for file in tmp_path.iterdir()] == ["there.pack"]


def test_where_a_pack_is_of_no_use_is_said_at_once(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    built = cleave.build_pack(shared / "some.pack", planned())
    assert built.kernels == 1
    assert "can be written by others (mode 1777)" in built.problem
    assert "set CLEAVE_PACKS to a directory of your own" in built.problem


def test_nothing_is_written_where_nothing_compiles(tmp_path: Path) -> None:
    with pytest.raises(cleave.CudaError):
        write_pack(tmp_path / "bad.pack", [("this is no kernel", "sm_90a")])
    assert not list(tmp_path.iterdir())
    with pytest.raises(FileNotFoundError):
        cleave.build_pack(tmp_path / "nowhere" / "some.pack", planned())


def test_what_has_no_kernels_is_refused(tmp_path: Path) -> None:
    a = np.ones((8, 8), np.float32)
    with pytest.raises(TypeError, match="plans has a int; it must be a GemmPlan or QuantizePlan, or several"):
        cleave.build_pack(tmp_path / "five.pack", 5)
    with pytest.raises(ValueError, match="the CPU backend compiles none; plan for a GPU"):
        cleave.build_pack(tmp_path / "cpu.pack", cleave.plan_gemm(a, a))
    if not cleave.device_count():
        with pytest.raises(ValueError, match="has loaded no kernel yet; call build_pack after"):
            cleave.build_pack(tmp_path / "none.pack")
    assert not list(tmp_path.iterdir())


# But for measured choices, which have precedence.
COVERED = """
from cleave.testing.case import GemmCase
for m in (1, 16, 100, 700, 4096):
    for n, k in ((4096, 4096), (28672, 8192), (1024, 14336), (512, 16384)):
        planned = GemmCase(m, n, k, {options}).plan("h100")
        if "measured" not in planned.why:
            print(*map(repr, planned.kernel_sources), sep="\\n")
"""


@pytest.mark.parametrize(
    ("dtype", "options"),
    [
        ("bfloat16", {}),
        ("bfloat16", {"bias": "row", "layout": "tt"}),
        ("float8_e4m3fn", {"scaling": "row", "use_fast_accum": True}),
        ("float8_e4m3fn", {"scaling": "block_128x128"}),
        ("int8", {"scaling": "row", "bias": "row"}),
    ],
)
def test_covering_sets_have_what_covered_products_run(dtype: str, options: dict) -> None:
    packed = {source for source, _ in sources_of(_covering(dtype, "h100"))}
    assert 20 <= len(packed) <= 400
    code = COVERED.format(options=f"**{ {'dtype': dtype} | options }")
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"CLEAVE_KERNELS": "covering"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    run = {ast.literal_eval(line) for line in done.stdout.splitlines()}
    assert len(run) >= 5
    assert run <= packed


def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "products.pack"
    status, said, _ = run(capsys, "pack", "build", str(file), "gemm", *SMALL, "--dtype", "f16")
    assert status == 0 and "1 kernels" in said.replace("\n", " ")
    status, listed, _ = run(capsys, "pack", "ls", str(file))
    assert status == 0 and "products.pack" in listed.replace("\n", "")
    file.chmod(0o666)
    status, listed, _ = run(capsys, "pack", "ls", str(file))
    assert status == 1 and "chmod" in listed


def test_problems_that_an_application_met_are_packed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    log, file = tmp_path / "shapes.txt", tmp_path / "met.pack"
    code = "from cleave.testing.case import GemmCase; [GemmCase(m, 512, 512).plan('h100') for m in (16, 512)]"
    environment = os.environ | {"CLEAVE_LOG_SHAPES": str(log)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    log.write_text(log.read_text() + "no problem at all\n")
    status, said, _ = run(capsys, "pack", "build", str(file), "--from", str(log))
    assert status == 0 and "no problem at all" in said
    assert _core.pack_info(str(file))["kernels"] == 2


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ((), "say what to pack: an operation"),
        (("--covering", "int8", "--from", "x"), "say what to pack: an operation"),
        (("--covering", "int8", "--tokens", "1,8"), "--tokens takes the fewest and the most rows"),
        (("--from", "log", "--tokens", "1,8,9"), "--tokens takes the fewest and the most rows"),
        (("--covering", "int4"), "int4"),
    ],
)
def test_a_command_that_says_too_little_or_too_much(
    arguments: tuple[str, ...], reason: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    try:
        status, _, said = run(capsys, "pack", "build", str(tmp_path / "x.pack"), *arguments)
    except SystemExit as stopped:
        status, said = stopped.code, capsys.readouterr().err
    assert status and reason in " ".join(said.split())
    assert not list(tmp_path.iterdir())
