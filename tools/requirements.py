"""Prints what the named groups of pyproject.toml require, one requirement a line.

A group is "build" (what compiling needs), "run" (what the package needs) or an extra.
"""

import sys
import tomllib
from pathlib import Path

PYPROJECT = Path(__file__).parent.parent / "pyproject.toml"


def requirements(groups: list[str]) -> list[str]:
    settings = tomllib.loads(PYPROJECT.read_text())
    known = {
        # Without {fmt}, which setup.sh has from the system, compiled.
        "build": [name for name in settings["build-system"]["requires"] if not name.startswith("cmeel-fmt")],
        "run": settings["project"]["dependencies"],
        **settings["project"]["optional-dependencies"],
    }
    return sorted({requirement for group in groups for requirement in known[group]})


if __name__ == "__main__":
    print(*requirements(sys.argv[1:]), sep="\n")
