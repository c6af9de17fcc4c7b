"""The headers of torch's stable ABI, of the oldest torch that the operators are for."""

import re
import shutil
import tempfile
import zipfile
from pathlib import Path

import toolbox

# The same in torch's wheels for every system; of these, macOS's is the smallest by far.
_SMALLEST = ("--platform", "macosx_11_0_arm64", "--python-version", "3.12")
_STABLE = re.compile(r"torch/include/torch/(csrc/stable|csrc/inductor/aoti_torch|headeronly)/.*")


def oldest_torch(root: Path) -> str:
    """As cmake/torch.cmake has it: the place that states it."""
    return ".".join(re.findall(r"set\(TORCH_OLDEST_M\w+ (\d+)\)", (root / "cmake" / "torch.cmake").read_text("utf-8")))


def unpack(folder: Path, root: Path) -> Path:
    """The include folder; downloaded only once."""
    version = oldest_torch(root)
    unpacked = folder / version
    if not unpacked.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as temporary:
            toolbox.pip("download", "--no-deps", *_SMALLEST, "--dest", temporary, f"torch=={version}.*")
            (wheel,) = Path(temporary).glob("torch-*.whl")
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(Path(temporary) / "headers", filter(_STABLE.fullmatch, archive.namelist()))
            shutil.move(Path(temporary) / "headers", unpacked)
    return unpacked / "torch" / "include"
