"""Emitted projects build where nothing else of Cleave is. What operators compute is tested in tests/gpu."""

from __future__ import annotations

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

from emitted_builds import (  # noqa: E402
    CUDA_HEADERS,
    EVERYTHING,
    HAS_DRIVER,
    REPOSITORY,
    WARNINGS,
    build,
    build_extension,
    build_together,
    in_child,
    libraries_of,
    load,
    meta,
)
from emitted_operations import OPERATIONS, Convolution, Operation  # noqa: E402

import cleave  # noqa: E402
from cleave._epilogue.activations import GATED  # noqa: E402
from cleave._epilogue.graph import parse  # noqa: E402


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


def check_on_the_cpu(function: Callable[..., Any], result: Any, *given: Any, **named: Any) -> None:
    """Where there is no driver, that is said."""

    def on_the_cpu(x: Any) -> Any:
        if isinstance(x, tuple) and isinstance(x[0], torch.Tensor):
            return tuple(map(on_the_cpu, x))
        return torch.empty_like(x, device="cpu") if isinstance(x, torch.Tensor) else x

    given = tuple(on_the_cpu(x) for x in given)
    named = {name: on_the_cpu(x) for name, x in named.items()}
    error, reason = RuntimeError, r"no NVIDIA driver can be used: libcuda\.so\.1"
    if HAS_DRIVER:
        error, reason = ValueError, "move them to a GPU"
    for out in ({}, {"out": on_the_cpu(result)}):
        with pytest.raises(error, match=reason):
            function(*given, **named, **out)


def inputs_of(epilogue: Any, shapes: dict[str, tuple[int, ...]]) -> dict[str, Any]:
    """An epilogue function's inputs: tensors without data, and numbers."""
    if isinstance(epilogue, cleave.Epilogue):
        epilogue = epilogue()
    return {
        name: meta(value, *shapes[shape]) if isinstance(value, str) else value
        for (name, shape), value in zip(epilogue.function.inputs, epilogue.inputs, strict=True)
    }


def results_of(made: Any) -> list[Any]:
    return list(made) if isinstance(made, tuple) else [made]


def check_results(
    function: Callable[..., Any],
    given: list[Any],
    shapes: dict[str, tuple[int, ...]],
    epilogue: Any,
    differentiable: bool,
) -> Any:
    """Calls it, with `out` too, and its backward. shapes: the result's, "matrix", and of what it is reduced to."""
    tensors = [x for x in given if isinstance(x, torch.Tensor)]
    for tensor in tensors if differentiable else ():
        tensor.requires_grad_(tensor.itemsize > 1)
    made = function(*given)
    results = results_of(made)
    of_results = ["matrix"]
    if epilogue is not None:
        graph = parse(epilogue.text)
        of_results = [graph.shape(name) for name in graph.outputs]
    assert [result.shape for result in results] == [shapes[shape] for shape in of_results]
    out = [result.detach() for result in results]
    assert function(*given, out=tuple(out) if len(out) > 1 else out[0]) is not None
    assert results[0].requires_grad == differentiable
    if differentiable:
        sum(result.float().sum() for result in results).backward()
        # What a function only compares has no gradient.
        reached = [x for x in tensors if x.requires_grad and (epilogue is None or x.grad is not None)]
        assert len(reached) >= 2
        assert all(x.grad.shape == x.shape for x in reached)
    return made


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
    if options.get("scaling"):
        given += [meta("float32", 1), meta("float32", options["filters"])]
    if options.get("bias"):
        given.append(meta("float32", shape[1]))
    epilogue = options.get("epilogue")
    outer, channels, *rest = shape
    shapes = {"scalar": (), "row": (channels,), "column": (outer, 1, *rest), "matrix": tuple(shape)}
    if kind == "wgrad":
        shapes |= {"row": (1, channels, *rest), "column": (outer,)}
    if epilogue is not None:
        given += inputs_of(epilogue, shapes).values()
    differentiable = x.itemsize > 1
    made = check_results(function, given, shapes, epilogue, differentiable)
    assert all(result.stride(1) == 1 for result in results_of(made) if result.dim() > 1)
    check_on_the_cpu(function, made, *given)
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    assert results_of(compiled(*given))[0].shape == shape


def check_operator(operation: Operation | Convolution, folder: Path) -> None:
    """Loads it and calls it on tensors without data."""
    if isinstance(operation, Convolution):
        check_convolution(operation, folder)
    else:
        check_product(operation, folder)


def packed_weight(options: dict[str, Any], lead: tuple[int, ...], n: int, k: int) -> dict[str, Any]:
    """The tensors of one, without data."""
    weights = options["weights"]
    group = options.get("group_size", {"int4": 128, "mxfp4": 32, "nvfp4": 16}[weights])
    shape = (*lead, 1 if group == -1 else k // group, n)
    of_codes = "float16" if options["dtype"] in ("int8", "float8_e4m3fn") else options["dtype"]
    dtype = {"int4": of_codes, "mxfp4": "uint8", "nvfp4": "float8_e4m3fn"}[weights]
    tensors = {"packed": meta("uint8", *lead, -(-n // 64), -(-k // 64), 2048), "scales": meta(dtype, *shape)}
    if options.get("zeros"):
        tensors["zeros"] = meta("uint8", *shape)
    if weights == "nvfp4":
        tensors["global_scale"] = meta("float32", *(lead or (1,)))
    return tensors


def shapes_of_results(operation: Operation, shape: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """That of D, and of what it is reduced to; over the rows or columns that are cut into groups, that is one each."""
    *lead, rows, columns = shape
    if lead:
        lines = {"column": (*lead, rows, 1), "row": (*lead, 1, columns), "scalar": (*lead, 1, 1)}
    else:
        lines = {"column": (rows,), "row": (columns,), "scalar": ()}
        for cut in {"m": ("row", "scalar"), "n": ("column", "scalar")}.get(operation.options.get("grouping"), ()):
            lines[cut] = (operation.options["batch"], *lines[cut])
    return {"matrix": shape} | lines


def check_product(operation: Operation, folder: Path) -> None:
    module = load(operation.name, folder)
    operators = getattr(torch.ops, operation.name).gemm
    assert operators.overloads() == ["default", "out"]
    options = operation.options
    m, n, k = operation.sizes
    batch = options.get("batch", 1)
    epilogue = options.get("epilogue")
    gated = options.get("activation") in GATED or (epilogue is not None and epilogue.function.gated)
    columns = 2 * n if gated else n
    grouping = options.get("grouping")
    dense = grouping is None
    lead_a = (batch,) if (dense and batch > 1) or grouping == "n" else ()
    lead_b = (batch,) if grouping == "m" else ()
    shape_a = (batch, m // batch, k) if options.get("bounds") == "counts" else (*lead_a, m, k)
    layout = options.get("layout", "tn")
    given = {"a": meta(options["dtype"], *shape_a, by_column=layout[0] == "n")}
    if "weights" in options:
        given |= packed_weight(options, lead_b, columns, k)
    else:
        given["b"] = meta(options["dtype"], *lead_b, k, columns, by_column=layout[1] == "n")
    lead_d = shape_a[:-2] if grouping != "k" else (batch,)
    if grouping == "n":
        lead_d = ()
    shape = (*lead_d, shape_a[-2], n)
    inputs = {}
    if epilogue is not None:
        column = (*(lead_d if options.get("bounds") == "counts" else ()), shape[-2], 1)
        inputs = inputs_of(epilogue, {"scalar": (), "row": (n,), "column": column, "matrix": shape})
    for argument in operators.default._schema.arguments[2:]:
        if argument.kwarg_only or argument.name in inputs or argument.name in given:
            continue
        if argument.name in ("offs", "indptr", "starts", "sizes", "counts"):
            given[argument.name] = meta("int32", batch + (argument.name == "indptr"))
        elif options.get("bias") == "column":
            given[argument.name] = meta("float32", m, 1)
        else:
            given[argument.name] = meta("float32", columns)
    given |= inputs
    differentiable = dense and given["a"].itemsize > 1 and "weights" not in options
    given = {name: x.detach() if isinstance(x, torch.Tensor) else x for name, x in given.items()}
    made = check_results(
        module.gemm, list(given.values()), shapes_of_results(operation, shape), epilogue, differentiable
    )
    check_on_the_cpu(module.gemm, made, **given)
    if operation in OPERATIONS[::5] or operation.name == "fused":  # the slowest part of this
        compiled = torch.compile(module.gemm, fullgraph=True, backend="aot_eager")
        assert results_of(compiled(**given))[0].shape == shape


def build_and_check_together(folder: Path) -> None:
    build_together({o.name: (o.plan(), o.archs) for o in EVERYTHING}, folder, "-O0", *WARNINGS.split())
    for operation in EVERYTHING:
        print(operation.name, file=sys.stderr)
        check_operator(operation, folder / operation.name)


@pytest.mark.usefixtures("fake_compiler")  # what is compiled here is the host's part
def test_extensions_of_compiled_kernels(elsewhere: Path) -> None:
    in_child(build_and_check_together, elsewhere, method="spawn")


def named(*names: str) -> Any:
    """As the parameter `operation`."""
    operations = [operation for operation in EVERYTHING if operation.name in names]
    return pytest.mark.parametrize("operation", operations, ids=lambda o: o.name)


def fail_to_load(name: str, folder: Path) -> None:
    with pytest.raises(ImportError, match=r"_C.*cannot be loaded: libcuda\.so\.1: "):
        load(name, folder)


@named("i8_row")  # the others differ in what is built together above
def test_extension_of_compiled_kernels_builds(
    operation: Operation | Convolution, elsewhere: Path, tmp_path: Path, driver: Path
) -> None:
    folder = cleave.emit.pytorch(
        operation.plan(), operation.name, tmp_path / "emitted", sources="cubin",
        archs=operation.archs,
    )  # fmt: skip
    moved = Path(shutil.move(folder, elsewhere / "moved"))
    build_extension(moved)
    assert "libcuda" not in libraries_of(moved)
    in_child(check_operator, operation, moved)
    # With the driver linked, where that is asked for.
    for library in moved.glob("*/_C*.so"):
        library.unlink()
    build_extension(moved, LINK_CUDA_DRIVER="1", LIBRARY_PATH=str(driver))
    assert "libcuda.so.1" in libraries_of(moved)
    if not HAS_DRIVER:
        in_child(fail_to_load, operation.name, moved)


WEIGHTS = ("packed_nvfp4", "packed_bytes", "packed_fused_gates")


# Dense, with swiglu, with scales of blocks, in groups, with a function, convolutions and a gradient; packed weights.
@pytest.mark.parametrize(
    "operation", [*EVERYTHING[::8], *(o for o in EVERYTHING if o.name in WEIGHTS)], ids=lambda o: o.name
)
def test_cpp_project_builds(operation: Operation | Convolution, elsewhere: Path, tmp_path: Path) -> None:
    folder = cleave.emit.cpp(
        operation.plan(), operation.name, tmp_path / "emitted", sources="cubin",
        archs=operation.archs,
    )  # fmt: skip
    moved = shutil.move(folder, elsewhere / "moved")
    options = [f"-DCUDA_H_DIR={CUDA_HEADERS}", f"-DCMAKE_CXX_FLAGS={WARNINGS}"]
    if operation is not EVERYTHING[0]:  # the first as its users build it, others without reading headers over and over
        options += ["-DCMAKE_UNITY_BUILD=ON", "-DCMAKE_CXX_FLAGS_RELEASE=-O0"]
    build(["cmake", "-S", moved, "-B", "build", *options], elsewhere)
    build(["cmake", "--build", "build", "--parallel", "2"], elsewhere)
    if not HAS_DRIVER:
        done = subprocess.run([elsewhere / "build" / "example"], capture_output=True, text=True)
        assert done.returncode == 1
        assert "no NVIDIA driver can be used: libcuda.so.1" in done.stderr


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@named("fused")
def test_extension_of_sources_builds(operation: Operation, elsewhere: Path, tmp_path: Path) -> None:
    folder = cleave.emit.pytorch(operation.plan(), operation.name, tmp_path / "emitted", archs=operation.archs)
    moved = shutil.move(folder, elsewhere / "moved")
    build_extension(Path(moved))
    in_child(check_operator, operation, Path(moved))


@cleave.epilogue
def normed(acc: Any, shift: cleave.row) -> Any:
    x = acc + shift
    return cleave.outputs(d=x, norm=cleave.sum_of_squares(x, over="columns"), largest=cleave.absmax(x))


@pytest.mark.parametrize("sources", ["cubin", "cuda"])
def test_cpp_project_that_reduces_builds(sources: str, elsewhere: Path, tmp_path: Path) -> None:
    """With a second kernel, in groups that it has to find, too."""
    if sources == "cuda" and shutil.which("nvcc") is None:
        pytest.skip("needs nvcc")
    plan = cleave.plan_problem(
        256, 384, 512, dtype="bfloat16", grouping="m", batch=4, epilogue=normed(shift="float32"), device="h100"
    )
    moved = shutil.move(cleave.emit.cpp(plan, "normed", tmp_path / "emitted", sources=sources), elsewhere / "moved")
    options = [f"-DCUDA_H_DIR={CUDA_HEADERS}", f"-DCMAKE_CXX_FLAGS={WARNINGS}", "-DCMAKE_UNITY_BUILD=ON"]
    build(["cmake", "-S", moved, "-B", "build", *options, "-DCMAKE_CXX_FLAGS_RELEASE=-O0"], elsewhere)
    build(["cmake", "--build", "build", "--parallel", "2"], elsewhere)


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@named("experts_padded", "conv")
def test_nvcc_compiles_the_sources(operation: Operation | Convolution, elsewhere: Path, tmp_path: Path) -> None:
    """By the project's own setup.py. The host's part, left out here, is that of compiled kernels, all but the page that
    finds the kernel."""
    folder = cleave.emit.pytorch(operation.plan(), operation.name, tmp_path / "emitted", archs=operation.archs)
    moved = shutil.move(folder, elsewhere / "moved")
    compiler = elsewhere / "compiler"
    compiler.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && exec g++ --version\nwhile [ "$1" != -o ]; do shift; done\n: > "$2"\n'
    )
    compiler.chmod(0o755)
    build_extension(Path(moved), CXX=str(compiler))
    (kernel,) = Path(moved).glob("build/temp*/kernel.o")
    symbols = subprocess.run(["nm", kernel], capture_output=True, text=True, check=True).stdout
    assert "cleave" in symbols
