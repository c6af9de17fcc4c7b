"""Suites: what to measure, and how. They are data, in suites/*.json.

name, title
kind        'peers': against other libraries; 'steps': the same, without graphs and with the host's
            time; 'modes': split-K modes against auto; 'host': host time of every way to call
operation   the one of OPERATIONS that makes and runs the cases
peers       modules of bench/peers
best_of     those of the peers of which the fastest is to be beaten, case by case
splits      of a 'modes' suite: the slice counts of each mode, null for the planner's choice
groups      a title, shapes (the first fields of the operation's Case), and the other fields that
            those cases share; 'each': fields with several values, with each of which all shapes are
            cases. A 'host' group has a headline: two calls, ours and the one it is to be compared
            with.
quick       the shapes of the short version
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from types import ModuleType

from cleave.testing.case import GemmCase
from cleave.testing.conv_case import ConvCase
from cleave.testing.grouped_case import GroupedCase

from .operations import expert_offsets, quantize, wgrad_step
from .operations.products import Products, conv, gemm, grouped

DIRECTORY = Path(__file__).parent / "suites"
KINDS = ("peers", "steps", "modes", "host")
OPERATIONS = {
    "gemm": gemm,
    "quantize": quantize,
    "grouped": grouped,
    "wgrad_step": wgrad_step,
    "expert_offsets": expert_offsets,
    "conv": conv,
}

Case = GemmCase | quantize.Case | GroupedCase | expert_offsets.Case | ConvCase


@dataclass(frozen=True)
class Group:
    title: str
    cases: list[Case]
    headline: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Suite:
    name: str
    kind: str
    title: str
    operation: ModuleType | Products
    groups: list[Group]
    peers: list[str] = field(default_factory=list)
    splits: list[tuple[str, int | None]] = field(default_factory=list)
    best_of: list[str] = field(default_factory=list)

    @property
    def cases(self) -> list[Case]:
        return [case for group in self.groups for case in group.cases]


def names() -> list[str]:
    return sorted(path.stem for path in DIRECTORY.glob("*.json"))


def load(name: str, quick: bool = False, match: str = "") -> Suite:
    """`match`: only the cases with this in their title.

    ValueError if there is no such suite or its file makes no sense.
    """
    if name not in names():
        raise ValueError(f"there is no suite '{name}'; there are {', '.join(names())}")
    return parse(json.loads((DIRECTORY / f"{name}.json").read_text()), quick, match)


def parse(data: dict, quick: bool = False, match: str = "") -> Suite:
    for key, allowed in (("kind", KINDS), ("operation", tuple(OPERATIONS))):
        if data[key] not in allowed:
            raise ValueError(f"suite {data['name']}: {key} '{data[key]}' is not one of {', '.join(allowed)}")
    operation = OPERATIONS[data["operation"]]
    groups = []
    for group in data["groups"]:
        shared = {key: group[key] for key in group.keys() - {"title", "shapes", "headline", "each"}}
        each = group.get("each", {})
        chosen = [dict(zip(each, values, strict=True)) for values in product(*each.values())]
        shapes = [shape for shape in group["shapes"] if not quick or shape in data["quick"]]
        cases = [operation.Case(*shape, **shared, **one) for one in chosen for shape in shapes]
        cases = [case for case in cases if match in case.title]
        if cases:
            groups.append(Group(group["title"], cases, group.get("headline", [])))
    splits = [(mode, slices) for mode, counts in data.get("splits", {}).items() for slices in counts]
    return Suite(
        data["name"],
        data["kind"],
        data["title"],
        operation,
        groups,
        data.get("peers", []),
        splits,
        data.get("best_of", []),
    )
