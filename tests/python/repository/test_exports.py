"""libcleave.so exports what include/ declares, and what is marked for Python's module."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from doc_snippets import ROOT

LIBRARY = ROOT / "build" / "libcleave.so"

pytestmark = pytest.mark.skipif(shutil.which("nm") is None, reason="there is no nm")


def exported() -> set[str]:
    """The library's functions and classes; of a member both its class and its own name."""
    listed = subprocess.run(
        ["nm", "-DC", "--defined-only", str(LIBRARY)], capture_output=True, text=True, check=True
    ).stdout
    found = set()
    for line in listed.splitlines():
        # An address, a letter, and "typeinfo for cleave::Error", "cleave::plan(...)" and so on.
        symbol = line.split(" ", 2)[2]
        while "<" in symbol:
            symbol, changed = re.subn(r"<[^<>]*>", "", symbol)
            if not changed:
                break
        name = re.split(r"[(\[]", symbol)[0].rsplit(" ", 1)[-1]
        if name.startswith("cleave::"):
            found.add(name.removeprefix("cleave::"))
    return found


def marked(folder: str) -> set[str]:
    """What is marked in headers as exported, by name."""
    names = set()
    for path in (ROOT / folder).rglob("*.h"):
        text = re.sub(r"//[^\n]*", "", path.read_text("utf-8"))
        names |= {*re.findall(r"\bclass CLEAVE_\w+ (\w+)", text)}
        names |= {*re.findall(r"\bCLEAVE_(?:API|TOOLS) [^;{(]*?\b(\w+)\(", text)}
    return names


def test_only_what_is_marked_is_exported() -> None:
    public, tools, found = marked("include"), marked("src"), exported()
    assert {"plan", "validate", "Error", "to_string", "from_string"} <= found
    assert not [name for name in found if not {*name.split("::")} & (public | tools)]
    assert len(tools) <= 40


def test_no_public_function_is_forgotten() -> None:
    """What is not marked could not be linked."""
    forgotten = {}
    for path in sorted((ROOT / "include" / "cleave").glob("*.h")):
        text = re.sub(r"//[^\n]*", "", path.read_text("utf-8"))
        declared = re.findall(r"^(?!CLEAVE_API)[a-z][\w:<>&* ,]* (\w+)\([^;{]*\);", text, re.M)
        if declared:
            forgotten[path.name] = declared
    assert not forgotten


def test_modules_find_what_they_need() -> None:
    """Python's module and what torch and XLA load take nothing that the library does not export."""
    package = ROOT / "python" / "cleave"
    for module in (*package.glob("_core*.so"), *package.glob("_*_ops.so")):
        said = subprocess.run(["ldd", "-r", str(module)], capture_output=True, text=True, check=False).stdout
        missing = [line.split("\t")[0] for line in said.splitlines() if "undefined sym" in line]
        assert not [line for line in missing if "cleave" in line], module.name
