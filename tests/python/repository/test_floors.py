"""The folders of kernels/, src/ and python/src/ are floors: a file includes what is in its own and in lower ones."""

import re
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
KERNELS, SOURCES, MODULE = ROOT / "kernels" / "cleave", ROOT / "src", ROOT / "python" / "src"

# From the ground up. Kernels of reduce, quantize, moe, route and lora are programs of their own, which no other
# includes; those of peers, too, but what ranks say to each other is a product's as well.
KERNEL_FLOORS = [
    "core",
    "ptx",
    "memory",
    "peers",
    "conv",
    "schedule",
    "config",
    "tile",
    "mainloop",
    "weights",
    "conv_load",
]
KERNEL_FLOORS += ["epilogue", "split_k", "direct", "kernel"]
KERNEL_FLOORS += ["reduce", "quantize", "moe", "route", "lora"]
SOURCE_FLOORS = ["process", "base", "launch", "epilogue", "problem", "operands", "jit", "cpu", "weights", "runtime"]
SOURCE_FLOORS += ["quantize", "moe", "route", "lora", "peers", "over_ranks", "plan", "all_kernels", "emit"]
MODULE_FLOORS = ["module", "call", "array", "inputs", "plans", "product", "over_ranks", "operation", "tools"]
FLOORS = {KERNELS: KERNEL_FLOORS, SOURCES: SOURCE_FLOORS, MODULE: MODULE_FLOORS}
# Code of emitted projects, which stand alone.
EMITTED = SOURCES / "emit" / "project"

towers = pytest.mark.parametrize("tower", FLOORS, ids=lambda tower: str(tower.relative_to(ROOT)))


def includes(tower: Path) -> list[tuple[Path, Path]]:
    """The file, and what it includes, of every #include of one of the tower's files in another."""
    root, found = tower.parent if tower == KERNELS else tower, []
    for path in sorted({*tower.rglob("*.h"), *tower.rglob("*.cpp")} - {*EMITTED.rglob("*")}):
        names = re.findall(r'^#include "([^"]+)"', path.read_text(), re.MULTILINE)
        read = [root / name for name in names if (root / name).is_file()]
        found += [(path.relative_to(tower), name.relative_to(tower)) for name in read if name.is_relative_to(tower)]
    return found


@towers
def test_every_folder_is_a_floor(tower: Path) -> None:
    assert {path.name for path in tower.iterdir()} == set(FLOORS[tower])
    assert len(includes(tower)) > 100


@towers
def test_includes_lead_down(tower: Path) -> None:
    floors = FLOORS[tower]
    up = [
        f"{path} includes {name}"
        for path, name in includes(tower)
        if floors.index(path.parts[0]) < floors.index(name.parts[0])
    ]
    assert not up, "\n".join(up)


@towers
def test_no_file_includes_itself_through_others(tower: Path) -> None:
    left = defaultdict(set)
    for path, name in includes(tower):
        left[path].add(name)
    while left:
        done = {path for path, names in left.items() if not names & left.keys()}
        assert done, f"in a circle: {sorted(map(str, left))}"
        for path in done:
            del left[path]


def test_kernels_and_the_public_headers_know_nothing_of_src() -> None:
    for path in [*KERNELS.rglob("*.h"), *(ROOT / "include").rglob("*.h")]:
        names = re.findall(r'^#include "([^"]+)"', path.read_text(), re.MULTILINE)
        assert not [name for name in names if not name.startswith("cleave/")], path


def test_functions_that_run_take_configurations_by_value() -> None:
    """NVRTC from 13.2 on reads what is behind a reference when the kernel runs (kernels/cleave/config)."""
    passed = re.compile(r"^[^\n;{}]*\(([^()]*\bconst \w*Config&[^()]*)\)[^;{}]*\{", re.M)
    for header in sorted(KERNELS.rglob("*.h")):
        runs = [found[0] for found in passed.finditer(header.read_text()) if "constexpr" not in found[0]]
        assert not runs, f"{header}: {runs[0]}"


def test_what_runs_calls_no_member_of_a_configuration() -> None:
    """A member function refers to its object: it is asked of a `constexpr` copy."""
    called = re.compile(r"^(?!.*\bconstexpr\b).*\bC\.epilogue\.function\.(?:input|output|count|reduces)\(.*$", re.M)
    for header in sorted(KERNELS.rglob("*.h")):
        assert not (found := called.search(header.read_text())), f"{header}: {found[0].strip()}"


def test_defaulted_operators_are_the_devices_too() -> None:
    """NVRTC 13.0 refuses those without CLEAVE_HD; later ones do not."""
    bare = re.compile(r"^(?!.*CLEAVE_HD).*\bfriend constexpr\b.*$", re.M)
    for header in sorted(KERNELS.rglob("*.h")):
        assert not (found := bare.search(header.read_text())), f"{header}: {found[0].strip()}"
