"""Makes a kernel of the Hugging Face Hub, as its package `kernels` loads one, of wheels.

    make wheels ARGS="--python 3.12"
    python tools/hub_kernel.py dist/cleave_gemm-*-abi3-*.whl --out build/hub/cleave

    kernels.get_local_kernel(Path("build/hub/cleave"))     # or what is uploaded, by kernels.get_kernel
    cleave.ops.gemm(a, b), cleave.W8A8Linear, ...

The operators are of torch's stable ABI, so that a wheel has one variant for the CPU, and one for each major version of
CUDA; for CPython 3.12 and later. NumPy, which Cleave needs, is not among what such a kernel may ask for.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import re
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

# By backend: the oldest CUDA of each major version whose NVRTC is served, and the GPUs with kernels of their own.
BACKENDS = {"cpu": ("cpu", None), "cu124": ("cuda", ["8.0", "9.0"]), "cu130": ("cuda", ["8.0", "9.0"])}

# A package by its own name, which its parts are imported by; one that is installed goes first.
INIT = '''"""Cleave: products of matrices by torch.ops.cleave, and layers made of them."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))

import torch  # noqa: E402

from cleave.torch import *  # noqa: E402, F403
from cleave.torch import __all__ as _layers  # noqa: E402

ops = torch.ops.cleave

__all__ = [*_layers, "ops"]
'''


def variants(wheel: Path) -> dict[str, str]:
    """The name of each variant that a wheel serves, and its backend."""
    found = re.search(r"-cp3\d+-abi3-manylinux_2_28_(\w+)\.whl$", wheel.name)
    if not found:
        raise SystemExit(f"{wheel} is no wheel for every Python: name those whose names have abi3 and manylinux_2_28")
    torch = "".join(re.findall(r"set\(TORCH_OLDEST_M\w+ (\d+)\)", (ROOT / "cmake" / "torch.cmake").read_text("utf-8")))
    return {f"torch-stable-abi{torch}-{backend}-{found[1]}-linux": backend for backend in BACKENDS}


def write(wheel: Path, folder: Path, backend: str, version: int) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder, [name for name in archive.namelist() if name.startswith("cleave/")])
    (folder / "__init__.py").write_text(INIT, "utf-8")
    kind, archs = BACKENDS[backend]
    metadata = {
        "name": "cleave",
        "id": "cleave_kernel",
        "version": version,
        "license": "Apache-2.0",
        "python-depends": [],
        "backend": {"type": kind} | ({"archs": archs} if archs else {}),
        "digest": {"algorithm": "sha256", "files": digests(folder)},
    }
    (folder / "metadata.json").write_text(json.dumps(metadata, indent=2) + "\n", "utf-8")


def digests(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        str(path.relative_to(folder)): base64.b64encode(hashlib.sha256(path.read_bytes()).digest()).decode()
        for path in files
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheels", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--version", type=int, default=0, help="of the kernel; 0: may still change")
    given = parser.parse_args()
    for wheel in given.wheels:
        for name, backend in variants(wheel).items():
            write(wheel, given.out / "build" / name, backend, given.version)
            print(given.out / "build" / name)


if __name__ == "__main__":
    main()
