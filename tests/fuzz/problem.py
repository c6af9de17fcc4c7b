"""What every kind of problem has: operands, a call, what it should give."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

import cleave

from .bound import Expected
from .operand import Operand

FLOATS = ("float16", "bfloat16", "float32")
HALVES = ("float16", "bfloat16")
FLOAT8 = ("float8_e4m3fn", "float8_e5m2")
MODES = ("none", "serial", "parallel", "cluster", "stream_k", "auto")


@dataclass
class Call:
    """`function` of cleave with these keywords; an Operand stands for its array."""

    function: str
    keywords: dict[str, Any]

    @property
    def operands(self) -> list[Operand]:
        found = {x.name: x for x in self.keywords.values() if isinstance(x, Operand)}
        return list(found.values())

    def run(self, arrays: dict[str, torch.Tensor]) -> Any:
        function: Any = cleave
        for name in self.function.split("."):
            function = getattr(function, name)
        return function(**self.fill(arrays))

    def fill(self, arrays: dict[str, torch.Tensor]) -> dict[str, Any]:
        return {name: arrays[x.name] if isinstance(x, Operand) else x for name, x in self.keywords.items()}


@dataclass
class Problem(ABC):
    """Drawn, or made smaller. Plain fields that `shrink` may set one by one.

    seed: of the operands' values, whose contents are "integers", "normal", "wide" or "special".
    device: "cpu" or "cuda", since sums are made differently.
    """

    operation: ClassVar[str]
    seed: int
    contents: str
    device: str

    @abstractmethod
    def call(self) -> Call: ...

    @abstractmethod
    def plan(self, arrays: dict[str, torch.Tensor]) -> Any:
        """What the call would run; None if that is not planned."""

    @abstractmethod
    def expected(self, arrays: dict[str, torch.Tensor]) -> dict[str, Expected]:
        """For each output operand, and each new result by its number, from the arrays before.

        Only the guards of what is not in it are checked.
        """

    @abstractmethod
    def smaller(self) -> list[dict[str, Any]]:
        """Fields to set, the greatest simplifications first."""


@dataclass(frozen=True)
class Target:
    """What problems are drawn for. small: no large ones."""

    device: str
    small: bool


# What a configuration shares, what a problem has alone, and where it runs.
Draw = Callable[[random.Random, random.Random, Target], Problem]


def plan_call(function: Any, call: Call, arrays: dict[str, torch.Tensor], *left: str) -> Any:
    keywords = call.fill(arrays)
    for name in ("alpha", "beta", "stream", *left):
        keywords.pop(name, None)
    return function(**keywords)


def size(rng: random.Random, most: int) -> int:
    """Small ones more often, multiples of 8 and their neighbours too."""
    x = int(2 ** rng.uniform(0, most.bit_length() - 1 + 1e-9))
    match rng.randrange(6):
        case 0 | 1:
            x = max(8, x // 8 * 8)
        case 2:
            x = max(1, x // 64 * 64 + rng.choice((-1, 0, 1)))
        case 3 if rng.random() < 0.1:
            x = 0
    return min(x, most)
