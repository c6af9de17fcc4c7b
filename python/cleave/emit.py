"""Writes planned operations as standalone projects, which build without this library.

op = cleave.op.Gemm(layout=cleave.LayoutType.RowMajor)
op.construct(A, B, split_k_mode="parallel")
cleave.emit.pytorch(op, "projection", "out/projection")  # a package with torch.ops.projection.gemm
cleave.emit.cpp(op, "projection", "out/projection_cpp")  # a CMake project with one class
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import keyword
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

from . import _core, _mistakes, op

__all__ = ["cpp", "pytorch"]

_OLDEST_TORCH = (2, 10)  # the first with all of the stable ABI that operators are registered by
_OLDEST_NVCC = (12, 0)  # the first that knows sm_90a
_DEFAULT_HOME = "/usr/local/cuda"
_FOLDERS = {"build", "dist", "include", "kernels", "src"}
_TORCH_OPS = {
    *("aten", "c10d", "debugprims", "higher_order", "inductor", "inductor_prims", "mkl", "mkldnn"),
    *("mkldnn_prepacked", "onednn", "prim", "prims", "profiler", "quantization", "quantized"),
    *("rngprims", "sparse", "static_runtime", "symm_mem"),
    *("import_module", "load_library", "loaded_libraries"),
}


def pytorch(
    op: op.Gemm | _core.GemmPlan,
    name: str,
    sourcedir: str | Path,
    jit: bool = False,
    sources: str = "cuda",
    *,
    archs: Sequence[str] = (),
) -> Path | ModuleType:
    """Writes an operation as a PyTorch extension: a Python package that `pip install` builds.

    It defines torch.ops.<name>.gemm and .gemm.out (conv, conv_dgrad or conv_wgrad for convolutions),
    registered on PyTorch's stable ABI, with shapes for torch.compile and, for floating-point
    operands, gradients. The inputs of an epilogue function become arguments of the same names, and
    its outputs a tuple; its gradients are those of `Epilogue.backward`, if it was planned with one,
    else of its derivative.
    The operators take tensors of any sizes that the operation's kernel can address; for a
    convolution the images may vary, and the rest is as planned.

    Args:
        op: an operation that `construct` has planned, or a GemmPlan. Plans for "h100" or "h200" need no GPU.
        name: the name of the package, the operator's namespace and the files; the C++ namespace is
            emitted::<name>.
        sourcedir: the folder to write, which must be new or empty.
        jit: True builds the package there, and loads it.
        sources: "cuda" for kernels as source, which nvcc 12.0 or later compiles; "cubin" for
            compiled kernels, which need no nvcc.
        archs: any of "sm_80" and "sm_90a"; the operator picks the one for its GPU. Defaults to the
            plan's own.

    Returns:
        The folder, or with `jit` the loaded package.

    Raises:
        ValueError, TypeError: before anything is written: an operation without a plan, or without a
            kernel for an architecture; a name that is no identifier or taken (an epilogue function's
            names too); a folder that is not empty.
        RuntimeError: PyTorch or nvcc is missing or too old (before anything is written); a failed build.
    """
    plan = _planned(op)
    _check_name(name)
    _check_package(name)
    _check_torch(required=jit)
    if jit:
        if name in sys.modules:
            raise ValueError(f'name is "{name}", which is loaded already; choose another')
        if sources == "cuda":
            _check_nvcc()
    folder = _folder(sourcedir)
    _core.emit(
        plan,
        name,
        str(folder),
        target="pytorch",
        sources=sources,
        archs=_listed(archs),
    )
    return _build(name, folder) if jit else folder


def cpp(
    op: op.Gemm | _core.GemmPlan,
    name: str,
    sourcedir: str | Path,
    sources: str = "cuda",
    *,
    archs: Sequence[str] = (),
) -> Path:
    """Writes an operation as a C++ library: a CMake project with one class and an example.

    Arguments, result and errors are those of `pytorch`.
    """
    plan = _planned(op)
    _check_name(name)
    folder = _folder(sourcedir)
    _core.emit(plan, name, str(folder), target="cpp", sources=sources, archs=_listed(archs))
    return folder


def _planned(operation: Any) -> _core.GemmPlan:
    plan = operation.plan if isinstance(operation, op.Gemm) else operation
    kind = type(operation).__name__
    if plan is None:
        raise ValueError(f"op is a {kind} without a plan; call its construct(A, B, ...) first")
    if not isinstance(plan, _core.GemmPlan):
        raise TypeError(f"op is a {kind}; it must be a cleave.op.Gemm or a cleave.GemmPlan")
    return plan


def _folder(sourcedir: str | Path) -> Path:
    if not isinstance(sourcedir, str | os.PathLike):
        raise TypeError(f"sourcedir is {sourcedir!r}; it must be a path")
    return Path(sourcedir).absolute()


def _check_name(name: str) -> None:
    if not isinstance(name, str):
        raise TypeError(f"name is {name!r}; it must be a string")
    if not name.isidentifier() or keyword.iskeyword(name):
        raise ValueError(f'name is "{name}"; it must be an identifier, such as "projection"')


def _check_package(name: str) -> None:
    """Refuses what `import` and torch.ops have for something else."""
    if name in _FOLDERS:
        raise ValueError(f'name is "{name}", which is a folder of every extension; choose another')
    if name in _TORCH_OPS:
        raise ValueError(f'name is "{name}", and PyTorch has a torch.ops.{name}; choose another')
    if name in sys.stdlib_module_names or _is_package_of_others(name):
        raise ValueError(f'name is "{name}", which is a package already; choose another')


def _is_package_of_others(name: str) -> bool:
    """Whether what is installed by that name is no extension that was emitted."""
    try:
        # Other finders are asked only for what lies on no path: setuptools' own, when it hears of
        # pip, takes the process's distutils away from setuptools.
        spec = importlib.machinery.PathFinder.find_spec(name) or importlib.util.find_spec(name)
    except ValueError:  # a module without a spec is loaded
        return True
    if spec is None or spec.origin is None:  # None: a folder in the current one
        return False
    source = Path(spec.origin)
    return source.suffix != ".py" or f"torch.ops.{name}." not in source.read_text()


def _check_torch(required: bool) -> None:
    oldest = ".".join(map(str, _OLDEST_TORCH))
    try:
        found = metadata.version("torch")
    except metadata.PackageNotFoundError:
        if required:
            raise RuntimeError(f"jit needs torch; install torch {oldest} or later") from None
        return
    if _version(found) < _OLDEST_TORCH:
        raise RuntimeError(
            f"torch is {found}, but its stable ABI has what operators need from {oldest} on; install a later one"
        )


def _check_nvcc() -> None:
    """As the setup.py that is written looks for it."""
    remedy = 'install CUDA 12.0 or later (CUDA_HOME says where), or pass sources="cubin"'
    homes = (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"))
    places = [f"{home}/bin" for home in homes if home]
    places += [os.environ.get("PATH", ""), f"{_DEFAULT_HOME}/bin"]
    nvcc = shutil.which("nvcc", path=os.pathsep.join(places))
    if nvcc is None:
        raise RuntimeError(f"nvcc is missing; {remedy}")
    text = subprocess.run([nvcc, "--version"], capture_output=True, text=True).stdout
    found = re.search(r"release ([\d.]+)", text)
    if found is None or _version(found[1]) < _OLDEST_NVCC:
        raise RuntimeError(f"{nvcc} is of CUDA {found[1] if found else '?'}; {remedy}")


def _version(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", text)[:2]))


def _build(name: str, folder: Path) -> ModuleType:
    command = [sys.executable, "setup.py", "build_ext", "--inplace"]
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        last = "\n".join(done.stdout.splitlines()[-20:])
        raise RuntimeError(f"building {folder} failed; its last lines are:\n{last}")
    package = folder / name
    spec = importlib.util.spec_from_file_location(
        name, package / "__init__.py", submodule_search_locations=[str(package)]
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


_mistakes.explain(sys.modules[__name__])


def _listed(archs: Sequence[str]) -> list[str]:
    """One by itself is no list of letters."""
    return [archs] if isinstance(archs, str) else list(archs)
