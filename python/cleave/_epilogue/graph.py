"""The text of an epilogue function as a graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

SUM = "acc"
# Those of b's columns where there are two: of one column after all of the other, or in turn.
HALVES, INTERLEAVED = ("acc.gate", "acc.up"), ("acc.even", "acc.odd")
SUMS = frozenset((SUM, *HALVES, *INTERLEAVED))


@dataclass(frozen=True)
class Graph:
    """What `EpilogueFunction.text` says. A value is one of `sums`, an input's name, a number's text, or a key of
    `values`."""

    inputs: dict[str, str]  # shapes, by name
    values: dict[str, tuple[str, ...]]  # an operation and its operands; those that come before others first
    outputs: dict[str, tuple[str | None, str]]  # type and value, D's first
    reductions: dict[str, tuple[str, str]] = field(default_factory=dict)  # of outputs: how, and to which shape

    @cached_property
    def read(self) -> set[str]:
        """All values that something is made of."""
        operands = {operand for _, *operands in self.values.values() for operand in operands}
        return operands.union(value for _, value in self.outputs.values())

    @property
    def sums(self) -> tuple[str, ...]:
        """What it takes of a product: of each element of D one, or those of two of b's columns."""
        return next((gates for gates in (HALVES, INTERLEAVED) if not self.read.isdisjoint(gates)), (SUM,))

    def shape(self, output: str) -> str:
        """That of an output: "matrix", or what it is reduced to."""
        return self.reductions[output][1] if output in self.reductions else "matrix"

    def users(self, of: set[str]) -> set[str]:
        """What depends on one of these values, themselves included."""
        found = set(of)
        for name, (_, *operands) in self.values.items():
            if not found.isdisjoint(operands):
                found.add(name)
        return found


def gradient_of(taken: str) -> str:
    """The name of an output that is the gradient of a sum: one without a dot."""
    return taken.replace(".", "_")


@lru_cache(maxsize=256)
def parse(text: str) -> Graph:
    inputs, values, outputs, reductions = {}, {}, {}, {}
    for line in text.splitlines():
        left, *right = line.split()
        if right[0] != "=":
            inputs[left] = right[0]
        elif left.startswith("%"):
            values[left] = tuple(right[1:])
        elif len(right) > 2:
            outputs[left], reductions[left] = ("float32", right[3]), (right[1], right[2])
        else:
            name, _, dtype = left.partition(":")
            outputs[name] = (dtype or None, right[1])
    return Graph(inputs, values, outputs, reductions)


def needed(graph: Graph, wanted: Iterable[str], known: Mapping[str, Any]) -> set[str]:
    """What must be known for these values: they themselves, and what they are made of where nothing is known."""
    read, left = set(), list(wanted)
    while left:
        value = left.pop()
        if value in read:
            continue
        read.add(value)
        if value not in known:
            left += graph.values.get(value, ())[1:]
    return read
