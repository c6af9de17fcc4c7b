"""How tests build and load emitted projects. There need be neither a GPU nor a driver: kernels are planned for an H100,
and PyTorch may be one for the CPU.
"""

from __future__ import annotations

import ctypes
import importlib
import multiprocessing
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from emitted_operations import CONVOLUTIONS, OPERATIONS

import cleave

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
# The library's own code, which is in no namespace of the operation.
COPIED = ("src/launch", "src/cleave", "src/torch_ops", "kernels/cleave")
every_operation = pytest.mark.parametrize("operation", EVERYTHING, ids=lambda o: o.name)
every_target = pytest.mark.parametrize("target", [cleave.emit.pytorch, cleave.emit.cpp])


def has_driver() -> bool:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


HAS_DRIVER = has_driver()


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


def compile_together(name: str, files: list[Path], flags: list[str], folder: Path) -> Path:
    """The object of a translation unit that has all of these."""
    lines = [f'#include "{path}"' for path in files]
    done = subprocess.run(
        ["g++", "-std=c++20", "-fPIC", "-fvisibility=hidden", "-c", *flags,
         f"-DTORCH_TARGET_VERSION={hex(2 << 56 | 10 << 48)}", "-x", "c++", "-", "-o", name],
        input="\n".join(lines) + "\n", cwd=folder, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder / name


def build_together(plans: dict[str, tuple[Any, Sequence[str]]], folder: Path, *options: str) -> None:
    """The packages of these plans, of which each has its architectures, in folders of their names, with one library
    for all. A build of each spends most of its time on headers, over and over: here the files that have one name in
    all projects are compiled as one, which they can be, since each operation has a namespace."""
    common = folder / "common"
    torch_folder = Path(torch.__file__).parent
    flags = [*options, f"-isystem{torch_folder / 'include'}", f"-isystem{CUDA_HEADERS}"]
    flags += [f"-I{common / part}" for part in ("src", "kernels")]
    units: dict[str, list[Path]] = {}
    for name, (plan, archs) in plans.items():
        project = cleave.emit.pytorch(plan, name, folder / name, sources="cubin", archs=archs)
        for part in COPIED:  # of these each has what it needs
            shutil.copytree(project / part, common / part, dirs_exist_ok=True)
            shutil.rmtree(project / part)
        flags += [f"-I{project / part}" for part in ("include", "src", "kernels")]
        for source in sorted(project.glob("src/*.cpp")):
            units.setdefault(f"{source.stem}.o", []).append(source)
        units.setdefault("kernels.o", []).extend(sorted(project.glob("kernels/*.cpp")))
        (project / name / "_C.so").symlink_to(folder / "together.so")
    with ThreadPoolExecutor(2) as compilers:
        objects = list(compilers.map(lambda unit: compile_together(*unit, flags, folder), units.items()))
    # As their setup.py links them: where torch has CUDA, the stream is asked of that part of it.
    libraries = [f"-L{torch_folder / 'lib'}", "-Wl,--no-as-needed", "-ltorch", "-ltorch_cpu", "-lc10", "-ldl"]
    build(["g++", "-shared", *map(str, objects), *libraries, "-o", "together.so"], folder)


def in_child(function: Callable[..., None], *arguments: Any, method: str = "fork") -> None:
    """Calls it in a child process, which may load what should not stay loaded."""
    child = multiprocessing.get_context(method).Process(target=function, args=arguments)
    child.start()
    child.join()
    assert child.exitcode == 0


def run_own_tests(name: str, folder: Path) -> None:
    """Those of an emitted project, in a process of theirs. What they print goes into the file `said`."""
    with open(folder / "said", "w") as said:
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", f"test_{name}.py"]))


def load(name: str, folder: Path) -> Any:
    sys.path.insert(0, str(folder))
    return importlib.import_module(name)


def meta(dtype: str, *shape: int, by_column: bool = False) -> torch.Tensor:
    if by_column:
        return meta(dtype, *shape[:-2], shape[-1], shape[-2]).mT
    return torch.empty(shape, dtype=getattr(torch, dtype), device="meta")


def libraries_of(folder: Path) -> str:
    """What the extension that was built there is linked with."""
    command = ["readelf", "--dynamic", *folder.glob("*/_C*.so")]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
