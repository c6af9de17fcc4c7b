"""The folders of kernels/ are floors: a file includes what is in its own and in lower ones."""

import re
from collections import defaultdict
from pathlib import Path

KERNELS = Path(__file__).parents[2] / "kernels" / "cleave"

# From the ground up. Those of reduce, quantize, moe, route and lora are kernels of their own, which no other includes.
FLOORS = ["core", "ptx", "memory", "conv", "schedule", "config", "tile", "mainloop", "conv_load"]
FLOORS += ["epilogue", "split_k", "kernel", "reduce", "quantize", "moe", "route", "lora"]


def includes() -> list[tuple[Path, Path]]:
    """The file, and what it includes, of every #include in kernels/."""
    found = []
    for path in sorted(KERNELS.rglob("*.h")):
        names = re.findall(r'^#include "cleave/([^"]+)"', path.read_text(), re.MULTILINE)
        found += [(path.relative_to(KERNELS), Path(name)) for name in names]
    return found


def test_every_folder_is_a_floor() -> None:
    assert {path.name for path in KERNELS.iterdir()} == set(FLOORS)
    assert len(includes()) > 100


def test_includes_lead_down() -> None:
    up = [
        f"{path} includes {name}"
        for path, name in includes()
        if FLOORS.index(path.parent.name) < FLOORS.index(name.parent.name)
    ]
    assert not up, "\n".join(up)


def test_no_file_includes_itself_through_others() -> None:
    left = defaultdict(set)
    for path, name in includes():
        left[path].add(name)
    while left:
        done = {path for path, names in left.items() if not names & left.keys()}
        assert done, f"in a circle: {sorted(map(str, left))}"
        for path in done:
            del left[path]


def test_defaulted_operators_are_the_devices_too() -> None:
    """NVRTC 13.0 refuses those without CLEAVE_HD; later ones do not."""
    bare = re.compile(r"^(?!.*CLEAVE_HD).*\bfriend constexpr\b.*$", re.M)
    for header in sorted(KERNELS.rglob("*.h")):
        assert not (found := bare.search(header.read_text())), f"{header}: {found[0].strip()}"
