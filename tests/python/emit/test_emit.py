"""cleave.emit and its command: which operations, folders, tools and options they take."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", minversion="2.10")

from cli_calls import CONV, EPILOGUES, GROUPS, SMALL  # noqa: E402
from emitted_builds import (  # noqa: E402
    every_target,
    in_child,
    meta,
)
from emitted_operations import OPERATIONS, plan_of  # noqa: E402

import cleave  # noqa: E402
from cleave.cli import main  # noqa: E402


def build_and_load_at_once(folder: Path) -> None:
    plan = OPERATIONS[0].plan()
    module = cleave.emit.pytorch(plan, "projection", folder, jit=True, sources="cubin")
    assert sys.modules["projection"] is module
    a, b = meta("float16", 64, 128), meta("float16", 128, 32, by_column=True)
    assert module.gemm(a, b).shape == torch.ops.projection.gemm(a, b).shape == (64, 32)
    with pytest.raises(ValueError, match="loaded already"):
        cleave.emit.pytorch(plan, "projection", folder / "again", jit=True, sources="cubin")


def test_jit(tmp_path: Path) -> None:
    in_child(build_and_load_at_once, tmp_path / "projection")


def test_an_operation_says_its_plan() -> None:
    op = cleave.op.Gemm(element=np.float32, alpha=2.0)
    a, b = np.ones((4, 8), np.float32), np.ones((8, 5), np.float32)
    plan = op.construct(a, b, split_k_mode="serial", split_k_slices=2)
    assert op.plan is plan
    assert (plan.split_k_mode, plan.split_k_slices) == ("serial", 2)
    assert (plan.run(a, b) == 8).all()
    with pytest.raises(TypeError, match="split_k"):
        op.construct(a, b, split_k="serial")


def test_scaled_and_grouped_operations_are_planned_alike() -> None:
    a, b, d = np.ones((4, 128), np.int8), np.ones((128, 8), np.int8), np.zeros((4, 8), np.float32)
    one = np.ones(1, np.float32)
    plan = cleave.op.ScaledGemm().construct(a, b, D=d, scale_A=one, scale_B=one)
    assert (plan.run(a, b, out=d, scale_a=one, scale_b=one) == 128).all()
    rows, weights = np.ones((6, 16), np.float32), np.ones((2, 16, 8), np.float32)
    ends = np.array([2, 6], np.int32)
    plan = cleave.op.GroupedGemm().construct(rows, weights, offs=ends)
    assert (plan.run(rows, weights, ends) == 16).all()


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    sizes = ["--m", "256", "--n", "384", "--k", "1024", "--device", "h100"]
    for target, file in (("pytorch", "setup.py"), ("cpp", "CMakeLists.txt")):
        folder = tmp_path / target
        options = ["--name", "projection", "--sourcedir", str(folder), "--arch", "sm_80,sm_90a"]
        assert main(["emit", target, "gemm", *sizes, *options]) == 0
        assert (folder / file).exists()
        assert str(folder) in capsys.readouterr().out
        assert main(["emit", target, "gemm", *sizes, *options]) == 1
        assert "not an empty folder" in capsys.readouterr().err
    assert main(["emit", "cpp", "gemm", *sizes, *options, "--batch", "1,2"]) == 1
    assert "2 operations" in capsys.readouterr().err
    groups = ["--groups", "4", "--tokens", "512", "--n", "512", "--k", "512", "--device", "h100"]
    options = ["--name", "experts", "--sourcedir", str(tmp_path / "experts")]
    assert main(["emit", "pytorch", "grouped", *groups, *options]) == 0
    sizes = ["--images", "8", "--size", "28x28", "--channels", "64", "--filters", "64"]
    options = ["--name", "layer", "--sourcedir", str(tmp_path / "layer"), "--device", "h100"]
    assert main(["emit", "cpp", "conv", *sizes, "--filter-size", "3", *options]) == 0


@pytest.mark.parametrize("options", [["gemm", *SMALL], ["grouped", *GROUPS], ["conv", *CONV]], ids=lambda it: it[0])
def test_the_command_emits_epilogue_functions(tmp_path: Path, options: list[str]) -> None:
    """Either project has the function, whose inputs and outputs keep their names."""
    arguments = ["--device", "h100", "--name", "operation", "--epilogue", f"{EPILOGUES}:gelu_residual"]
    assert main(["emit", "cpp", *options, *arguments, "--sourcedir", str(tmp_path / "cpp")]) == 0
    function = (tmp_path / "cpp/src/function.h").read_text()
    assert "shift" in function and "residual" in function and "pre" in function
    assert main(["emit", "pytorch", *options, *arguments, "--sourcedir", str(tmp_path / "pytorch")]) == 0
    assert (tmp_path / "pytorch/src/function.h").read_text() == function


@cleave.epilogue
def rounded(acc):
    return acc.to("int8")


@rounded.backward
def doubled(grad_d):
    return {"acc": grad_d * 2.0}


@pytest.mark.parametrize("epilogue", [rounded, rounded()], ids=["function", "called"])
def test_a_functions_own_backward_is_emitted(epilogue: Any, tmp_path: Path) -> None:
    """Whether it is called, where it has no inputs, or not; in C++ projects there is nothing to derive."""
    product = cleave.plan_problem(256, 384, 512, dtype="bfloat16", epilogue=epilogue, device="h100")
    sizes = {"images": 8, "size": (28, 28), "channels": 64, "filters": 64, "filter_size": (3, 3)}
    convolution = cleave.plan_conv_problem(**sizes, dtype="bfloat16", epilogue=epilogue, device="h100")
    for name, plan in (("product", product), ("convolution", convolution)):
        folder = cleave.emit.pytorch(plan, name, tmp_path / name)
        assert "multiply grad_d 2" in (folder / name / "_operation.py").read_text()
        folder = cleave.emit.cpp(plan, name, tmp_path / f"{name}_cpp")
        assert not [path for path in folder.rglob("*.*") if "grad_d" in path.read_text()]


# What to pass instead of something sound, and what is said about it.
BAD: dict[str, tuple[Callable[[], dict[str, Any]], type[Exception], str]] = {
    "an operation without a plan": (
        lambda: {"op": cleave.op.Gemm()}, ValueError, "Gemm without a plan.*construct",
    ),
    "no operation": (lambda: {"op": "gemm"}, TypeError, r"str.*cleave\.op\.Gemm"),
    "a plan for the CPU": (
        lambda: {"op": cleave.plan_problem(64, 64, 64, dtype="float32", device="cpu")},
        ValueError, "CPU",
    ),
    "an architecture without a kernel": (
        lambda: {"op": plan_of("e4m3_row"), "archs": ["sm_80"]}, ValueError, "sm_80",
    ),
    "an unknown architecture": (lambda: {"archs": ["sm_75"]}, ValueError, "sm_75"),
    "a name with a dash": (lambda: {"name": "my-gemm"}, ValueError, "identifier"),
    "no name": (lambda: {"name": ""}, ValueError, "identifier"),
    "a keyword of Python": (lambda: {"name": "lambda"}, ValueError, "identifier"),
    "a keyword of C++": (lambda: {"name": "template"}, ValueError, r"which C\+\+"),
    "a letter that C++ lacks": (lambda: {"name": "größe"}, ValueError, "identifier"),
    "a name that is taken": (lambda: {"name": "torch"}, ValueError, "another"),
    "unknown sources": (lambda: {"sources": "ptx"}, ValueError, "ptx.*cubin"),
}  # fmt: skip


@every_target
@pytest.mark.parametrize("case", BAD.values(), ids=BAD.keys())
def test_refusals_leave_nothing(target: Callable, case: tuple, f16_plan: cleave.GemmPlan, tmp_path: Path) -> None:
    change, error, message = case
    folder = tmp_path / "deep" / "folder"
    with pytest.raises(error, match=message):
        target(**{"op": f16_plan, "name": "projection", "sourcedir": folder} | change())
    assert not any(tmp_path.iterdir())


@every_target
def test_a_folder_with_something_in_it_is_left_alone(
    target: Callable, f16_plan: cleave.GemmPlan, tmp_path: Path
) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(ValueError, match="not an empty folder"):
        target(f16_plan, "projection", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    with pytest.raises(ValueError, match=r"thesis\.tex"):
        target(f16_plan, "projection", tmp_path / "thesis.tex")


def test_torch_without_the_stable_abi(
    f16_plan: cleave.GemmPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda _: "2.9.1+cu128")
    with pytest.raises(RuntimeError, match=r"torch is 2\.9\.1.*2\.10"):
        cleave.emit.pytorch(f16_plan, "projection", tmp_path)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(("version", "message"), [(None, "nvcc is missing"), ("11.8", r"CUDA 11\.8.*12\.0")])
def test_nvcc_that_cannot_compile_for_hopper(
    version: str | None,
    message: str,
    f16_plan: cleave.GemmPlan,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    home = tmp_path / "cuda"
    (home / "bin").mkdir(parents=True)
    if version:
        nvcc = home / "bin" / "nvcc"
        nvcc.write_text(f"#!/bin/sh\necho Cuda compilation tools, release {version}, V0\n")
        nvcc.chmod(0o755)
    monkeypatch.setenv("CUDA_HOME", str(home))
    monkeypatch.setenv("PATH", str(home / "bin"))
    monkeypatch.setattr("cleave.emit._DEFAULT_HOME", str(home))
    with pytest.raises(RuntimeError, match=message):
        cleave.emit.pytorch(f16_plan, "projection", tmp_path / "folder", jit=True)
    assert not (tmp_path / "folder").exists()
