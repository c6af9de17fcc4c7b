"""tools/hub_kernel.py: a wheel as a kernel of the Hugging Face Hub, loaded as its package `kernels` does."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from doc_snippets import ROOT

import cleave

COMMAND = [sys.executable, str(ROOT / "tools" / "hub_kernel.py")]
WHEEL = "cleave_gemm-0.1.0-cp312-abi3-manylinux_2_28_x86_64.whl"

# Without this checkout on the path, as where nobody has installed cleave.
LOAD = """
import importlib.util, json, pathlib, sys
import torch
sys.path = [path for path in sys.path if not (pathlib.Path(path) / "cleave").is_dir()]
variant = pathlib.Path(sys.argv[1])
name = json.loads((variant / "metadata.json").read_text())["id"]
spec = importlib.util.spec_from_file_location(name, variant / "__init__.py")
kernel = sys.modules[name] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(kernel)
import cleave
assert pathlib.Path(cleave.__file__).parent == variant / "cleave"
a = torch.ones(2, 3)
assert torch.equal(kernel.ops.gemm(a, a.t()), torch.full((2, 2), 3.0))
print(kernel.W8A8Linear.from_linear(torch.nn.Linear(8, 4))(torch.ones(2, 8)).shape)
"""


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This checkout's package, in a wheel's place."""
    folder = tmp_path_factory.mktemp("hub")
    package = Path(cleave.__file__).parent
    with zipfile.ZipFile(folder / WHEEL, "w") as archive:
        for path in package.rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                archive.write(path, Path("cleave") / path.relative_to(package))
        archive.writestr("cleave_gemm-0.1.0.dist-info/METADATA", "x")
    subprocess.run([*COMMAND, str(folder / WHEEL), "--out", str(folder / "kernel")], check=True, capture_output=True)
    return folder / "kernel"


def test_variants_and_their_metadata(hub: Path) -> None:
    names = sorted(path.name for path in (hub / "build").iterdir())
    assert names == [f"torch-stable-abi210-{backend}-x86_64-linux" for backend in ("cpu", "cu124", "cu130")]
    for name in names:
        variant = hub / "build" / name
        metadata = json.loads((variant / "metadata.json").read_text("utf-8"))
        assert metadata["name"] == "cleave" and metadata["backend"]["type"] in ("cpu", "cuda")
        files = metadata["digest"]["files"]
        assert "__init__.py" in files and "cleave/__init__.py" in files and not any("dist-info" in f for f in files)
        content = (variant / "cleave" / "__init__.py").read_bytes()
        assert files["cleave/__init__.py"] == base64.b64encode(hashlib.sha256(content).digest()).decode()


def test_it_loads_by_itself(hub: Path) -> None:
    pytest.importorskip("cleave.torch", exc_type=ImportError)
    variant = hub / "build" / "torch-stable-abi210-cpu-x86_64-linux"
    done = subprocess.run([sys.executable, "-c", LOAD, str(variant)], cwd=hub, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "torch.Size([2, 4])" in done.stdout


def test_a_wheel_of_one_python_is_refused(tmp_path: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "cleave_gemm-0.1.0-cp311-cp311-manylinux_2_28_x86_64.whl", "--out", str(tmp_path)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1 and "is no wheel for every Python" in done.stderr
