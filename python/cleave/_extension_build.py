"""What builds cleave again beside a framework that it has an extension for. Imports none."""

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

DISTRIBUTION = "cleave-gemm"  # what pip calls this package


def remedy(framework: str, oldest: str, library: Path) -> str:
    """What to run so that the extension `library` is there, and a framework that it serves; empty if nothing is
    missing."""
    commands = []
    if not _has(framework, oldest):
        commands.append(_pip(f"{framework}>={oldest}"))
    if not library.exists():
        commands.append(build_command(PACKAGE, _origin()))
    return " && ".join(commands)


def build_command(package: Path, origin: dict[str, Any] | None) -> str:
    """What builds a cleave that lies in `package` again, beside the frameworks that are there.

    origin: what pip recorded of where it comes from; None: nothing.
    """
    checkout = package.parents[1]
    if (checkout / "Makefile").exists():
        return f"make -C {shlex.quote(str(checkout))} build"
    sources = _sources(origin)
    if sources is None:  # a wheel, which cannot be built again
        return f"cd <the sources of cleave> && {_build('.')}"
    return _build(sources)


def _has(framework: str, oldest: str) -> bool:
    if importlib.util.find_spec(framework) is None:
        return False
    try:
        version = metadata.version(framework)
    except metadata.PackageNotFoundError:  # one that was built in place
        return True
    return _numbers(version) >= _numbers(oldest)


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
    # --no-binary: a wheel of the same commit, kept from a build without the framework, would not do.
    return _pip("--force-reinstall", "--no-deps", "--no-binary", DISTRIBUTION, sources)


def _pip(*arguments: str) -> str:
    return shlex.join([sys.executable, "-m", "pip", "install", *arguments])
