"""The Python parts import each other one way: the library none of the tools, none in a circle."""

from __future__ import annotations

import ast
import graphlib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
FOLDERS = {
    "cleave": "python/cleave",
    "cleave.torch": "python/cleave/torch",
    "cleave.compat": "python/cleave/compat",
    "cleave.testing": "python/cleave/testing",
    "cleave.cli": "python/cleave/cli",
    "examples": "examples",
    "bench": "bench",
}
TOOLS = {"cleave.testing", "cleave.cli", "examples", "bench"}


def modules() -> dict[str, Path]:
    """By their dotted names; of a package, its own name."""
    found = {}
    for root, base in ((ROOT / "python", "cleave"), (ROOT, "examples"), (ROOT, "bench")):
        for path in (root / base).rglob("*.py"):
            parts = path.relative_to(root).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(name: str, path: Path, known: dict[str, Path]) -> Iterator[str]:
    """The modules that are imported wherever in the file, as far as they are among the known."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, base] if base else above)
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                if inner in known:
                    yield inner
                elif base in known:
                    yield base


def part_of(name: str) -> str:
    return max((part for part in FOLDERS if f"{name}.".startswith(f"{part}.")), key=len)


def arrows() -> dict[str, set[str]]:
    known = modules()
    assert len(known) > 100
    return {name: set(imports(name, path, known)) - {name} for name, path in known.items()}


def test_the_library_imports_none_of_the_tools() -> None:
    wrong = {
        f"{name} imports {other}"
        for name, others in arrows().items()
        for other in others
        if part_of(name) not in TOOLS and part_of(other) in TOOLS and name != "cleave.__main__"
    }
    assert not wrong


def test_no_part_imports_what_imports_it() -> None:
    between: dict[str, set[str]] = {}
    for name, others in arrows().items():
        above = between.setdefault(part_of(name), set())
        if name != "cleave.__main__":  # which is the command, in the library's folder
            above |= {part_of(other) for other in others} - {part_of(name)}
    # torch's layers are part of the package that they are in.
    between["cleave"] -= {"cleave.torch", "cleave.compat"}
    list(graphlib.TopologicalSorter(between).static_order())  # CycleError names the circle


def test_the_tools_modules_are_in_no_circle() -> None:
    tools = {name: others for name, others in arrows().items() if part_of(name) in TOOLS}
    # A package may import its own modules, which belong to it.
    graph = {
        name: {other for other in others if other in tools and not name.startswith(f"{other}.")}
        for name, others in tools.items()
    }
    list(graphlib.TopologicalSorter(graph).static_order())
