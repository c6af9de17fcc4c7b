"""The Pythons that wheels are made for: one of each version, with its header files."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

VERSIONS = ("3.10", "3.11", "3.12")  # the last one's wheel serves all after it, too (abi3)

_PROBE = (
    "import os, sys, sysconfig;"
    "print('%d.%d' % sys.version_info[:2]);"
    "print(os.path.exists(sysconfig.get_path('include') + '/Python.h'));"
    "print(sys.executable)"
)


def find(version: str) -> Path:
    """Exits with what to do if there is none."""
    for candidate in _candidates(version):
        asked = subprocess.run([candidate, "-I", "-c", _PROBE], capture_output=True, text=True, check=False)
        answers = asked.stdout.split("\n")
        if asked.returncode == 0 and answers[:2] == [version, "True"]:
            return Path(answers[2])
    sys.exit(
        f"There is no Python {version} with header files. Run `pip install uv && uv python install {version}` "
        f"or `pyenv install {version}`, or name the versions to make wheels for with --python."
    )


def _candidates(version: str) -> Iterator[str]:
    yield sys.executable
    if found := shutil.which(f"python{version}"):
        yield found
    yield from map(str, sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python3")))
    if uv := shutil.which("uv"):
        found = subprocess.run([uv, "python", "find", version], capture_output=True, text=True, check=False)
        if found.returncode == 0:
            yield found.stdout.strip()
