"""The headers of frameworks that the wheels have extensions for, of the oldest version of each that is served."""

import re
import shutil
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import toolbox

# The same in the wheels for every system; macOS's are the smallest by far.
_SMALLEST = ("--platform", "macosx_11_0_arm64", "--python-version", "3.12")


@dataclass(frozen=True)
class Framework:
    name: str
    package: str  # on PyPI, and its folder
    headers: str  # a pattern, of those that are needed, in the folder `include`

    def oldest(self, root: Path) -> str:
        """As python/cleave has it."""
        text = (root / "python" / "cleave" / f"_{self.name}_build.py").read_text("utf-8")
        return re.search(rf'OLDEST_{self.name.upper()} = "([\d.]+)"', text)[1]

    def unpack(self, folder: Path, root: Path) -> Path:
        """The include folder; downloaded only once."""
        version = self.oldest(root) + ".0"
        unpacked = folder / f"{self.package}-{version}"
        if not unpacked.exists():
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder) as temporary:
                toolbox.pip("download", "--no-deps", *_SMALLEST, "--dest", temporary, f"{self.package}=={version}")
                (wheel,) = Path(temporary).glob(f"{self.package}-*.whl")
                wanted = re.compile(rf"{self.package}/include/{self.headers}/.*")
                with zipfile.ZipFile(wheel) as archive:
                    archive.extractall(Path(temporary) / "headers", filter(wanted.fullmatch, archive.namelist()))
                shutil.move(Path(temporary) / "headers", unpacked)
        return unpacked / self.package / "include"


FRAMEWORKS = (
    Framework("torch", "torch", r"torch/(csrc/stable|csrc/inductor/aoti_torch|headeronly)"),  # its stable ABI
    Framework("jax", "jaxlib", r"xla/ffi/api"),  # XLA's foreign function interface, a C ABI
)


def unpack(folder: Path, root: Path) -> dict[str, Path]:
    """The variables of CMake's by which the build finds them."""
    return {f"CLEAVE_{each.name.upper()}_INCLUDE": each.unpack(folder, root) for each in FRAMEWORKS}
