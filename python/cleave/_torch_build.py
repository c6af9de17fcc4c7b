"""Whether torch.ops.cleave was built here, and what makes it work if not. Imports no torch."""

from __future__ import annotations

import importlib.util
import json
import shlex
import sys
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

PACKAGE = Path(__file__).parent
LIBRARY = PACKAGE / "_torch_ops.so"

DISTRIBUTION = "cleave-gemm"  # what pip calls this package
OLDEST_TORCH = "2.10"  # of whose stable ABI the operators are made: cmake/torch.cmake


def remedy() -> str:
    """What to run so that `import cleave.torch` works; empty if nothing is missing."""
    commands = []
    if not _has_torch():
        commands.append(_pip(f"torch>={OLDEST_TORCH}"))
    if not LIBRARY.exists():
        commands.append(build_command(PACKAGE, _origin()))
    return " && ".join(commands)


def build_command(package: Path, origin: dict[str, Any] | None) -> str:
    """What builds a cleave that lies in `package` again, beside torch.

    origin: what pip recorded of where it comes from; None: nothing.
    """
    checkout = package.parents[1]
    if (checkout / "Makefile").exists():
        return f"make -C {shlex.quote(str(checkout))} build"
    sources = _sources(origin)
    if sources is None:  # a wheel, which cannot be built again
        return f"cd <the sources of cleave> && {_build('.')}"
    return _build(sources)


def _has_torch() -> bool:
    if importlib.util.find_spec("torch") is None:
        return False
    try:
        version = metadata.version("torch")
    except metadata.PackageNotFoundError:  # one that was built in place
        return True
    return _numbers(version) >= _numbers(OLDEST_TORCH)


def _numbers(version: str) -> list[int]:
    return [int(number) for number in version.partition("+")[0].split(".")[:2]]


def _sources(origin: dict[str, Any] | None) -> str | None:
    """What pip can build cleave from: a folder, an archive of sources, a repository at a commit."""
    if origin is None:
        return None
    url = origin["url"]
    if "vcs_info" in origin:
        return f"{origin['vcs_info']['vcs']}+{url}@{origin['vcs_info']['commit_id']}"
    if "archive_info" in origin and url.endswith(".whl"):
        return None
    if url.startswith("file:"):
        path = Path(unquote(urlsplit(url).path))
        return str(path) if path.exists() else None
    return url


def _origin() -> dict[str, Any] | None:
    try:
        recorded = metadata.distribution(DISTRIBUTION).read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        return None
    return json.loads(recorded) if recorded else None


def _build(sources: str) -> str:
    # --no-binary: a wheel of the same commit, kept from a build without torch, would not do.
    return _pip("--force-reinstall", "--no-deps", "--no-binary", DISTRIBUTION, sources)


def _pip(*arguments: str) -> str:
    return shlex.join([sys.executable, "-m", "pip", "install", *arguments])
