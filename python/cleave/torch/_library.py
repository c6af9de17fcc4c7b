"""Loading the operators that are written in C++."""

from __future__ import annotations

import json
import sys
from importlib import metadata
from pathlib import Path

import torch

from .. import __file__ as package_file
from .. import __version__


def load() -> None:
    """Makes torch.ops.cleave, or raises ImportError saying what to run."""
    package = Path(package_file).parent
    library = package / "_torch_ops.so"
    if library.exists():
        torch.ops.load_library(library)
        return
    raise ImportError(
        f"cleave was built where torch was missing, or older than 2.10; here is torch "
        f"{torch.__version__}. Build it again: {_build_command(package)}"
    )


def _build_command(package: Path) -> str:
    checkout = package.parents[1]
    if (checkout / "Makefile").exists():
        return f"make -C {checkout} build"
    # Isolated from what is installed, the build would not see torch.
    return (
        f"{sys.executable} -m pip install --force-reinstall --no-deps --no-build-isolation "
        f"{_origin()}"
    )


def _origin() -> str:
    """What pip installed cleave from: a folder or repository, or else PyPI."""
    try:
        recorded = metadata.distribution("cleave").read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        recorded = None
    return json.loads(recorded)["url"] if recorded else f"--no-binary cleave cleave=={__version__}"
