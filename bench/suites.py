"""Suites: which products to measure, and how. They are data, in suites/*.json.

A suite has a name, a title, a kind ('peers': against other libraries; 'modes': split-K modes
against auto; 'host': host time per call), groups of shapes [m, n, k] that share the other fields of
a GemmCase, and the shapes of its quick version. A 'modes' suite also has splits: the slice counts
of each mode, null for the planner's choice.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from cleave.cli.case import GemmCase

DIRECTORY = Path(__file__).parent / "suites"
KINDS = ("peers", "modes", "host")


@dataclass(frozen=True)
class Suite:
    name: str
    kind: str
    title: str
    cases: list[GemmCase]
    splits: list[tuple[str, int | None]] = field(default_factory=list)


def names() -> list[str]:
    return sorted(path.stem for path in DIRECTORY.glob("*.json"))


def load(name: str, quick: bool = False) -> Suite:
    """ValueError if there is no such suite or its file makes no sense."""
    if name not in names():
        raise ValueError(f"there is no suite '{name}'; there are {', '.join(names())}")
    return parse(json.loads((DIRECTORY / f"{name}.json").read_text()), quick)


def parse(data: dict, quick: bool = False) -> Suite:
    if data["kind"] not in KINDS:
        raise ValueError(
            f"suite {data['name']}: kind '{data['kind']}' is not one of {', '.join(KINDS)}"
        )
    cases = []
    for group in data["groups"]:
        shared = {key: value for key, value in group.items() if key != "shapes"}
        for m, n, k in group["shapes"]:
            if not quick or [m, n, k] in data["quick"]:
                cases.append(GemmCase(m, n, k, **shared))
    splits = [
        (mode, slices) for mode, counts in data.get("splits", {}).items() for slices in counts
    ]
    return Suite(data["name"], data["kind"], data["title"], cases, splits)
