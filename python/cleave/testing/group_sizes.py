"""How the rows of a grouped product are spread over its groups."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

# The same sizes in every run, on every machine.
_SEED = 0


def _uniform(groups: int) -> list[float]:
    return [1.0] * groups


def _varied(groups: int) -> list[float]:
    """Between 0.7 and 1.3 of the mean."""
    generator = random.Random(_SEED)
    return [generator.uniform(0.7, 1.3) for _ in range(groups)]


def _zipf(groups: int) -> list[float]:
    """The r-th most popular group has 1 / r of the most popular one's, in no order."""
    weights = [1 / rank for rank in range(1, groups + 1)]
    random.Random(_SEED).shuffle(weights)
    return weights


_WEIGHTS = {"uniform": _uniform, "varied": _varied, "zipf": _zipf}
SPREADS = tuple(_WEIGHTS)


def ranges_of(sizes: Sequence[int], spacing: int = 1, begin: int = 0) -> list[tuple[int, int]]:
    """Where groups lie that follow each other, each from a multiple of `spacing` on."""
    ranges = []
    for size in sizes:
        begin = -(-begin // spacing) * spacing
        ranges.append((begin, begin + size))
        begin += size
    return ranges


def spread_over(groups: int, rows: int, spread: str) -> tuple[int, ...]:
    """The groups' sizes: they add up to `rows`, in proportions that `spread` names."""
    sums = list(itertools.accumulate(_WEIGHTS[spread](groups)))
    ends = [round(rows * part / sums[-1]) for part in sums]
    return tuple(end - begin for begin, end in itertools.pairwise([0, *ends]))
