"""Emitted projects: what they say, and that they build where nothing else of Cleave is.

There need be neither a GPU nor a driver: kernels are planned for an H100, and PyTorch may be one
for the CPU. What operators compute is tested in tests/gpu.
"""

from __future__ import annotations

import ctypes
import importlib.abc
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", minversion="2.10")

from emitted_operations import CONVOLUTIONS, OPERATIONS, Convolution, Operation  # noqa: E402

import cleave  # noqa: E402
from cleave.cli import main  # noqa: E402

REPOSITORY = Path(__file__).resolve().parents[2]
CUDA_HEADERS = next(
    (
        folder
        for folder in (
            Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "include",
            *sorted(Path(torch.__file__).parents[1].glob("nvidia/*/include")),
        )
        if (folder / "cuda.h").exists()
    ),
    None,
)
WARNINGS = "-Wall -Wextra -Wpedantic -Werror"
EVERYTHING = [*OPERATIONS, *CONVOLUTIONS]
every_operation = pytest.mark.parametrize("operation", EVERYTHING, ids=lambda o: o.name)


def has_driver() -> bool:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


HAS_DRIVER = has_driver()


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a libcuda whose functions all fail, to link with."""
    folder = tmp_path_factory.mktemp("driver")
    code = (REPOSITORY / "src" / "emit").rglob("*.*")
    names = {name for path in code for name in re.findall(r"\bcu[A-Z]\w+", path.read_text())}
    # cuda.h says which version of each function a name stands for.
    lines = ["#include <cuda.h>", *(f"IS {name}" for name in sorted(names))]
    expanded = subprocess.run(
        ["g++", "-E", f"-I{CUDA_HEADERS}", "-x", "c++", "-"],
        input="\n".join(lines), capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    names = sorted(set(re.findall(r"IS (\w+)", expanded)))
    functions = [f"int {name}() {{ return 999; }}" for name in names]
    library = folder / "libcuda.so.1"
    subprocess.run(
        ["g++", "-shared", "-fPIC", f"-Wl,-soname,{library.name}", "-x", "c", "-", "-o", library],
        input="\n".join(functions), text=True, check=True,
    )  # fmt: skip
    (folder / "libcuda.so").symlink_to(library)
    return folder


@pytest.fixture
def elsewhere() -> Iterator[Path]:
    """An empty folder that the emitting process never saw."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def build(command: list[str], folder: Path, **environment: str) -> None:
    environment = os.environ | {"MAX_JOBS": "2"} | environment
    done = subprocess.run(
        command, cwd=folder, env=environment,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


def build_extension(folder: Path, **environment: str) -> None:
    """The compiler warns of nothing in it, but for what PyTorch's headers do."""
    headers = [Path(torch.__file__).parent / "include", CUDA_HEADERS]
    environment |= {"CFLAGS": WARNINGS, "CPLUS_INCLUDE_PATH": os.pathsep.join(map(str, headers))}
    build([sys.executable, "setup.py", "build_ext", "--inplace"], folder, **environment)


def in_child(function: Callable[..., None], *arguments: Any) -> None:
    """Calls it in a child process, which may load what should not stay loaded."""
    child = multiprocessing.get_context("fork").Process(target=function, args=arguments)
    child.start()
    child.join()
    assert child.exitcode == 0


def load(name: str, folder: Path) -> Any:
    sys.path.insert(0, str(folder))
    return importlib.import_module(name)


def meta(dtype: str, *shape: int, by_column: bool = False) -> torch.Tensor:
    if by_column:
        return meta(dtype, *shape[:-2], shape[-1], shape[-2]).mT
    return torch.empty(shape, dtype=getattr(torch, dtype), device="meta")


def check_on_the_cpu(function: Callable[..., Any], result: Any, *given: Any, **named: Any) -> None:
    """Where there is no driver, that is said."""

    def on_the_cpu(x: Any) -> Any:
        return torch.empty_like(x, device="cpu") if isinstance(x, torch.Tensor) else x

    given = tuple(on_the_cpu(x) for x in given)
    named = {name: on_the_cpu(x) for name, x in named.items()}
    error, reason = RuntimeError, r"no NVIDIA driver can be used: libcuda\.so\.1"
    if HAS_DRIVER:
        error, reason = ValueError, "move them to a GPU"
    for out in ({}, {"out": on_the_cpu(result)}):
        with pytest.raises(error, match=reason):
            function(*given, **named, **out)


def check_convolution(operation: Convolution, folder: Path) -> None:
    """Loads it and calls it on tensors without data."""
    module = load(operation.name, folder)
    options = operation.options
    kind = options.get("kind", "fprop")
    name = {"fprop": "conv", "dgrad": "conv_dgrad", "wgrad": "conv_wgrad"}[kind]
    function = getattr(module, name)
    operators = getattr(getattr(torch.ops, operation.name), name)
    assert operators.overloads() == ["default", "out"]
    x, w = (meta(options["dtype"], *shape) for shape in operation.shapes.values())
    paddings = np.broadcast_to(options["padding"], (len(options["size"]), 2)).tolist()
    outputs = [
        (size + sum(padding) - taps) // options.get("stride", 1) + 1
        for size, taps, padding in zip(options["size"], options["filter_size"], paddings, strict=True)
    ]
    y = meta(options["dtype"], options["images"], options["filters"], *outputs)
    given, shape = {
        "fprop": ([x, w], y.shape),
        "dgrad": ([x.shape, w, y], x.shape),
        "wgrad": ([x, y], w.shape),
    }[kind]
    if options.get("bias"):
        given.append(meta("float32", shape[1]))
    tensors = [value for value in given if isinstance(value, torch.Tensor)]
    differentiable = tensors[0].itemsize > 1
    for tensor in tensors if differentiable else ():
        tensor.requires_grad_()
    result = function(*given)
    assert result.shape == shape
    assert result.stride(1) == 1
    assert function(*given, out=result.detach()) is not None
    assert result.requires_grad == differentiable
    if differentiable:
        result.sum().backward()
        assert all(tensor.grad.shape == tensor.shape for tensor in tensors)
    check_on_the_cpu(function, result, *given)
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    assert compiled(*given).shape == shape


def check_operator(operation: Operation | Convolution, folder: Path) -> None:
    """Loads it and calls it on tensors without data."""
    if isinstance(operation, Convolution):
        check_convolution(operation, folder)
    else:
        check_product(operation, folder)


def check_product(operation: Operation, folder: Path) -> None:
    module = load(operation.name, folder)
    operators = getattr(torch.ops, operation.name).gemm
    assert operators.overloads() == ["default", "out"]
    options = operation.options
    m, n, k = operation.sizes
    batch = options.get("batch", 1)
    columns = 2 * n if options.get("activation") == "swiglu" else n
    grouping = options.get("grouping")
    dense = grouping is None
    lead_a = (batch,) if (dense and batch > 1) or grouping == "n" else ()
    lead_b = (batch,) if grouping == "m" else ()
    shape_a = (batch, m // batch, k) if options.get("bounds") == "counts" else (*lead_a, m, k)
    layout = options.get("layout", "tn")
    given = {
        "a": meta(options["dtype"], *shape_a, by_column=layout[0] == "n"),
        "b": meta(options["dtype"], *lead_b, k, columns, by_column=layout[1] == "n"),
    }
    for argument in operators.default._schema.arguments[2:]:
        if str(argument.type) != "Tensor":
            continue
        if argument.name in ("offs", "indptr", "starts", "sizes", "counts"):
            given[argument.name] = meta("int32", batch + (argument.name == "indptr"))
        elif options.get("bias") == "column":
            given[argument.name] = meta("float32", m, 1)
        else:
            given[argument.name] = meta("float32", columns)
    differentiable = dense and torch.empty(0, dtype=getattr(torch, options["dtype"])).itemsize > 1
    if differentiable:
        for x in given.values():
            x.requires_grad_()
    d = module.gemm(**given)
    lead_d = shape_a[:-2] if grouping != "k" else (batch,)
    if grouping == "n":
        lead_d = ()
    assert d.shape == (*lead_d, shape_a[-2], n)
    assert module.gemm(**given, out=d.detach()) is not None
    assert d.requires_grad == differentiable
    if differentiable:
        d.sum().backward()
        assert all(x.grad.shape == x.shape for x in given.values() if x.is_leaf)
    check_on_the_cpu(module.gemm, d, **given)
    if operation in OPERATIONS[::5]:  # the slowest part of this
        compiled = torch.compile(module.gemm, fullgraph=True, backend="aot_eager")
        assert compiled(**given).shape == d.shape


def compile_together(name: str, files: list[Path], includes: list[str], folder: Path) -> Path:
    """The object of a translation unit that has all of these."""
    lines = [f'#include "{path}"' for path in files]
    done = subprocess.run(
        ["g++", "-std=c++20", "-O0", "-fPIC", "-fvisibility=hidden", "-c", *WARNINGS.split(), *includes,
         f"-DTORCH_TARGET_VERSION={hex(2 << 56 | 10 << 48)}", "-x", "c++", "-", "-o", name],
        input="\n".join(lines) + "\n", cwd=folder, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder / name


# The library's own code, which is in no namespace of the operation.
COPIED = ("src/launch", "src/cleave", "src/torch_ops", "kernels/cleave")


def build_together(operations: list[Operation | Convolution], folder: Path) -> None:
    """Their packages, with one library for all. A build of each spends most of its time on headers,
    over and over: here the files that have one name in all projects are compiled as one, which they
    can be, since each operation has a namespace."""
    common = folder / "common"
    torch_folder = Path(torch.__file__).parent
    includes = [f"-isystem{torch_folder / 'include'}", f"-isystem{CUDA_HEADERS}"]
    includes += [f"-I{common / part}" for part in ("src", "kernels")]
    units: dict[str, list[Path]] = {}
    for operation in operations:
        project = cleave.emit.pytorch(
            operation.plan(), operation.name, folder / operation.name, sources="cubin",
            archs=operation.archs,
        )  # fmt: skip
        for part in COPIED:  # of these each has what it needs
            shutil.copytree(project / part, common / part, dirs_exist_ok=True)
            shutil.rmtree(project / part)
        includes += [f"-I{project / part}" for part in ("include", "src", "kernels")]
        for source in sorted(project.glob("src/*.cpp")):
            units.setdefault(f"{source.stem}.o", []).append(source)
        units.setdefault("kernels.o", []).extend(sorted(project.glob("kernels/*.cpp")))
        (project / operation.name / "_C.so").symlink_to(folder / "together.so")
    objects = [compile_together(*unit, includes, folder) for unit in units.items()]
    libraries = [f"-L{torch_folder / 'lib'}", "-ltorch", "-ltorch_cpu", "-lc10", "-ldl"]
    build(["g++", "-shared", *map(str, objects), *libraries, "-o", "together.so"], folder)


def check_operators(operations: list[Operation | Convolution], folder: Path) -> None:
    for operation in operations:
        print(operation.name, file=sys.stderr)
        check_operator(operation, folder / operation.name)


@pytest.mark.parametrize("half", [0, 1])  # for two processes
def test_extensions_of_compiled_kernels(half: int, elsewhere: Path) -> None:
    operations = EVERYTHING[half::2]
    build_together(operations, elsewhere)
    in_child(check_operators, operations, elsewhere)


def named(*names: str) -> Any:
    """As the parameter `operation`."""
    operations = [operation for operation in EVERYTHING if operation.name in names]
    return pytest.mark.parametrize("operation", operations, ids=lambda o: o.name)


@named("i8_row", "conv")  # the others differ in what is built together above
def test_extension_of_compiled_kernels_builds(
    operation: Operation | Convolution, elsewhere: Path, tmp_path: Path
) -> None:
    folder = cleave.emit.pytorch(
        operation.plan(), operation.name, tmp_path / "emitted", sources="cubin",
        archs=operation.archs,
    )  # fmt: skip
    moved = shutil.move(folder, elsewhere / "moved")
    build_extension(Path(moved))
    assert "libcuda" not in libraries_of(Path(moved))
    in_child(check_operator, operation, Path(moved))


# Dense, with swiglu, with scales of blocks, in groups, a convolution's gradient.
@pytest.mark.parametrize("operation", EVERYTHING[::8], ids=lambda o: o.name)
def test_cpp_project_builds(operation: Operation | Convolution, elsewhere: Path, tmp_path: Path) -> None:
    folder = cleave.emit.cpp(
        operation.plan(), operation.name, tmp_path / "emitted", sources="cubin",
        archs=operation.archs,
    )  # fmt: skip
    moved = shutil.move(folder, elsewhere / "moved")
    options = [f"-DCUDA_H_DIR={CUDA_HEADERS}", f"-DCMAKE_CXX_FLAGS={WARNINGS}"]
    build(["cmake", "-S", moved, "-B", "build", *options], elsewhere)
    build(["cmake", "--build", "build", "--parallel", "2"], elsewhere)
    if not HAS_DRIVER:
        done = subprocess.run([elsewhere / "build" / "example"], capture_output=True, text=True)
        assert done.returncode == 1
        assert "no NVIDIA driver can be used: libcuda.so.1" in done.stderr


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@named("bf16_bias_relu", "i8_row", "experts_padded", "conv")
def test_extension_of_sources_builds(operation: Operation | Convolution, elsewhere: Path, tmp_path: Path) -> None:
    folder = cleave.emit.pytorch(operation.plan(), operation.name, tmp_path / "emitted", archs=operation.archs)
    moved = shutil.move(folder, elsewhere / "moved")
    build_extension(Path(moved))
    in_child(check_operator, operation, Path(moved))


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


def plan_of(name: str) -> cleave.GemmPlan:
    return next(operation for operation in OPERATIONS if operation.name == name).plan()


@pytest.fixture
def plan() -> cleave.GemmPlan:
    return plan_of("f16")


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


every_target = pytest.mark.parametrize("target", [cleave.emit.pytorch, cleave.emit.cpp])


@every_target
@pytest.mark.parametrize("case", BAD.values(), ids=BAD.keys())
def test_refusals_leave_nothing(target: Callable, case: tuple, plan: cleave.GemmPlan, tmp_path: Path) -> None:
    change, error, message = case
    folder = tmp_path / "deep" / "folder"
    with pytest.raises(error, match=message):
        target(**{"op": plan, "name": "projection", "sourcedir": folder} | change())
    assert not any(tmp_path.iterdir())


@every_target
def test_a_folder_with_something_in_it_is_left_alone(target: Callable, plan: cleave.GemmPlan, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(ValueError, match="not an empty folder"):
        target(plan, "projection", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    with pytest.raises(ValueError, match=r"thesis\.tex"):
        target(plan, "projection", tmp_path / "thesis.tex")


def test_torch_without_the_stable_abi(plan: cleave.GemmPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda _: "2.9.1+cu128")
    with pytest.raises(RuntimeError, match=r"torch is 2\.9\.1.*2\.10"):
        cleave.emit.pytorch(plan, "projection", tmp_path)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(("version", "message"), [(None, "nvcc is missing"), ("11.8", r"CUDA 11\.8.*12\.0")])
def test_nvcc_that_cannot_compile_for_hopper(
    version: str | None,
    message: str,
    plan: cleave.GemmPlan,
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
        cleave.emit.pytorch(plan, "projection", tmp_path / "folder", jit=True)
    assert not (tmp_path / "folder").exists()


def libraries_of(folder: Path) -> str:
    """What the extension that was built there is linked with."""
    command = ["readelf", "--dynamic", *folder.glob("*/_C*.so")]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def fail_to_load(name: str, folder: Path) -> None:
    with pytest.raises(ImportError, match=r"_C.*cannot be loaded: libcuda\.so\.1: "):
        load(name, folder)


def test_the_driver_is_linked_if_asked_for(plan: cleave.GemmPlan, tmp_path: Path, driver: Path) -> None:
    folder = cleave.emit.pytorch(plan, "linked", tmp_path / "linked", sources="cubin")
    build_extension(folder, LINK_CUDA_DRIVER="1", LIBRARY_PATH=str(driver))
    assert "libcuda.so.1" in libraries_of(folder)
    if not HAS_DRIVER:
        in_child(fail_to_load, "linked", folder)


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


def test_names_of_the_c_library_compile(plan: cleave.GemmPlan, tmp_path: Path) -> None:
    """All in one program, even."""
    lines, folders = [], []
    for name in ODD_NAMES:
        folder = cleave.emit.cpp(plan, name, tmp_path / name)
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


@pytest.mark.parametrize("name", ["errno", "stdin", "EOF", "NULL", "size_t", "double_t", "CUstream", "class"])
@every_target
def test_names_of_macros_and_types_are_refused(
    target: Callable, name: str, plan: cleave.GemmPlan, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=f'name is "{name}".*another|identifier'):
        target(plan, name, tmp_path / "folder")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        *((name, "is a package already") for name in ("json", "pip", "numpy", "setuptools")),
        *((name, "is a folder of every extension") for name in ("src", "build", "kernels")),
        ("quantized", r"PyTorch has a torch\.ops\.quantized"),
    ],
)
def test_packages_keep_their_names(name: str, reason: str, plan: cleave.GemmPlan, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=reason):
        cleave.emit.pytorch(plan, name, tmp_path / "folder")
    assert not any(tmp_path.iterdir())
    assert cleave.emit.cpp(plan, name, tmp_path / "folder").exists()


def test_the_search_for_a_package_disturbs_no_import(plan: cleave.GemmPlan, tmp_path: Path) -> None:
    """setuptools' finder gives up its own distutils in a process in which pip is looked for."""
    asked = []

    class Hook(importlib.abc.MetaPathFinder):
        def find_spec(self, name: str, *_: object) -> None:
            asked.append(name)

    hook = Hook()
    sys.meta_path.insert(0, hook)
    try:
        with pytest.raises(ValueError, match="is a package already"):
            cleave.emit.pytorch(plan, "pip", tmp_path / "folder")
    finally:
        sys.meta_path.remove(hook)
    assert "pip" not in asked


def test_an_emitted_package_may_be_emitted_again(
    plan: cleave.GemmPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the first one is installed."""
    monkeypatch.syspath_prepend(cleave.emit.pytorch(plan, "again", tmp_path / "first"))
    assert cleave.emit.pytorch(plan, "again", tmp_path / "second").exists()
