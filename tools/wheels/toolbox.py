"""What wheels are made with, from PyPI: a folder of packages that every Python imports from."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

REQUIREMENTS = Path(__file__).with_name("requirements.txt")


def install(folder: Path) -> Path:
    """Installs again only if the requirements have changed."""
    stamp = folder / "requirements.stamp"
    wanted = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()
    if not stamp.exists() or stamp.read_text() != wanted:
        shutil.rmtree(folder, ignore_errors=True)
        pip("install", "--no-deps", "--target", str(folder), "--requirement", str(REQUIREMENTS))
        stamp.write_text(wanted)
    return folder


def pip(*arguments: str) -> None:
    """Wheels alone: building a package would run its code."""
    command, *rest = arguments
    subprocess.run(
        [sys.executable, "-m", "pip", command, "--quiet", "--disable-pip-version-check", "--only-binary=:all:", *rest],
        check=True,
    )


def environment(folder: Path) -> dict[str, str]:
    """For a Python that is to import what is in the folder."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CMAKE_", "PYTHON", "SKBUILD"))}
    kept = {name: value for name, value in kept.items() if name not in ("CC", "CXX", "CFLAGS", "CXXFLAGS", "LDFLAGS")}
    return kept | {"PYTHONPATH": str(folder), "PYTHONNOUSERSITE": "1"}
