"""How tests build and load emitted projects. There need be neither a GPU nor a driver: kernels are planned for an H100,
and PyTorch may be one for the CPU.
"""

from __future__ import annotations

import ctypes
import importlib
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from emitted_operations import CONVOLUTIONS, OPERATIONS

import cleave

REPOSITORY = Path(__file__).resolve().parents[1]
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


def libraries_of(folder: Path) -> str:
    """What the extension that was built there is linked with."""
    command = ["readelf", "--dynamic", *folder.glob("*/_C*.so")]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
