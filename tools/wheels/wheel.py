"""One wheel, built by scikit-build-core with zig's compiler; the source distribution."""

import json
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import toolbox

PROCESSORS = ("x86_64", "aarch64")
PLATFORM = "manylinux_2_28"  # zig.cmake links for this glibc
STABLE_ABI_FROM = "3.12"  # nanobind's

# Calls a hook of the build backend, in the Python that the wheel is for; what it prints is the compilers' too.
_CALL = """
import json, sys
from scikit_build_core import build
hook, out, settings, answer = sys.argv[1:]
name = getattr(build, hook)(out, json.loads(settings))
with open(answer, "w") as file:
    file.write(name)
"""


@dataclass(frozen=True)
class Wheel:
    python: str
    processor: str

    @property
    def tag(self) -> str:
        number = "cp" + self.python.replace(".", "")
        abi = "abi3" if self.python == STABLE_ABI_FROM else number
        return f"{number}-{abi}"

    @property
    def platform(self) -> str:
        return f"{PLATFORM}_{self.processor}"

    def settings(self, tools: Path, headers: dict[str, Path], stub: Path | None, work: Path) -> dict[str, str]:
        defines = {
            "CLEAVE_ZIG": tools / "ziglang" / "zig",
            "CLEAVE_PROCESSOR": self.processor,
            **headers,
            "CMAKE_DISABLE_FIND_PACKAGE_fmt": "ON",  # the headers alone
        }
        if stub is not None:
            defines["CLEAVE_CORE_STUB"] = stub
        return {
            "wheel.tags": f"{self.tag}-{self.platform}",
            "wheel.py-api": "cp" + STABLE_ABI_FROM.replace(".", ""),
            "wheel.reproducible": "true",
            # One for all Pythons: the libraries that are the same for each are compiled once.
            "build-dir": str(work / self.processor),
            "cmake.toolchain-file": str(Path(__file__).with_name("zig.cmake")),
            **{f"cmake.define.{name}": str(value) for name, value in defines.items()},
        }

    def build(
        self, root: Path, work: Path, python: Path, tools: Path, headers: dict[str, Path], stub: Path | None
    ) -> Path:
        """`stub`: the module's type stub; None: the build makes it."""
        print(f"--- {self.tag}-{self.platform}", flush=True)
        # What Python appends to a module's name has the processor in it, and would be that of the running one.
        suffix = {"SETUPTOOLS_EXT_SUFFIX": f".cpython-{self.python.replace('.', '')}-{self.processor}-linux-gnu.so"}
        settings = self.settings(tools, headers, stub, work)
        return _call_backend("build_wheel", root, python, tools, work, settings, suffix)

    def stub(self, wheel: Path, work: Path) -> Path:
        path = work / "stubs" / self.python / "_core.pyi"
        path.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(wheel) as archive:
            path.write_bytes(archive.read("cleave/_core.pyi"))
        return path


def sdist(root: Path, tools: Path, out: Path) -> Path:
    return _call_backend("build_sdist", root, Path(sys.executable), tools, out, {})


def _call_backend(
    hook: str,
    root: Path,
    python: Path,
    tools: Path,
    out: Path,
    settings: dict[str, str],
    variables: dict[str, str] | None = None,
) -> Path:
    answer = out / ".made"
    subprocess.run(
        [python, "-c", _CALL, hook, str(out), json.dumps(settings), str(answer)],
        cwd=root, env=toolbox.environment(tools) | (variables or {}), check=True,
    )  # fmt: skip
    name = answer.read_text()
    answer.unlink()
    return out / name
