"""Where groups lie, and how a call says so; also bounds that make no sense."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from .operand import Operand, packed

KINDS = ("ends", "indptr", "starts", "aligned_ends", "counts")


@dataclass(frozen=True)
class Groups:
    """sizes, of which kind (of KINDS); rest: elements that belong to none, by places. spacing: what
    groups begin at multiples of, or how far apart. hostile: the bounds passed instead of these."""

    kind: str
    sizes: tuple[int, ...]
    rest: int = 0
    spacing: int = 1
    wide: bool = False
    hostile: tuple[int, ...] | None = None

    @property
    def count(self) -> int:
        return len(self.sizes)

    @cached_property
    def ranges(self) -> list[tuple[int, int]]:
        made, at = [], self.rest if self.kind == "indptr" else 0
        if self.kind == "starts":  # the last group comes first, and a rest after each
            for size in reversed(self.sizes):
                made.append((at, at + size))
                at += size + self.rest
            return made[::-1]
        for g, size in enumerate(self.sizes):
            if self.kind == "counts":
                at = g * self.spacing
            elif self.kind == "aligned_ends":
                at = -(-at // self.spacing) * self.spacing
            made.append((at, at + size))
            at += size
        return made

    @property
    def extent(self) -> int:
        """Size of the dimension."""
        if self.kind == "counts":
            return self.count * self.spacing + self.rest
        return max(end for _, end in self.ranges) + self.rest

    def keywords(self, masked: bool) -> dict[str, Any]:
        ranges, sizes = self.ranges, self.sizes
        match self.kind:
            case "ends" | "aligned_ends":
                given = {"offs": [end for _, end in ranges]}
            case "indptr":
                given = {"indptr": [ranges[0][0], *(end for _, end in ranges)]}
            case "starts":
                given = {"starts": [begin for begin, _ in ranges], "sizes": list(sizes)}
            case _:
                given = {"counts": list(sizes)}
        if self.hostile is not None:
            left = list(self.hostile)
            given = {name: [left.pop() for _ in x] for name, x in given.items()}
        dtype = "int64" if self.wide else "int32"
        made: dict[str, Any] = {name: packed(name, (len(x),), dtype, literal=tuple(x)) for name, x in given.items()}
        if self.kind in ("aligned_ends", "counts") and not masked:
            made["alignment"] = self.spacing
        return made

    def smaller(self) -> list[Groups]:
        made = [replace(self, **fields) for fields in self._fewer()]
        return [groups for groups in made if groups != self]

    def _fewer(self) -> list[dict[str, Any]]:
        sizes, count = self.sizes, self.count
        tried: list[dict[str, Any]] = [{"rest": 0}, {"wide": False}]
        if count > 1:
            halves = (sizes[: count // 2], sizes[count // 2 :], sizes[1:], sizes[:-1])
            tried += [{"sizes": part} for part in halves]
        tried.append({"sizes": tuple(x // 2 for x in sizes)})
        for g, x in enumerate(sizes[:16]):
            tried += [{"sizes": (*sizes[:g], less, *sizes[g + 1 :])} for less in (0, 1, x // 2, x - 1) if 0 <= less < x]
        if self.kind == "counts":
            most = max(1, *sizes)
            tried += [{"spacing": x} for x in (most, -(-most // 128) * 128) if x < self.spacing]
        return tried


def is_bound(operand: Operand) -> bool:
    return operand.name in ("offs", "indptr", "starts", "sizes", "counts")


def draw_groups(config: random.Random, rng: random.Random, most: int, masked: bool, total: int) -> Groups:
    """Groups of about `most` elements at most, and `total` together."""
    kind = config.choice(KINDS) if not masked else "counts"
    alignment = config.choice((1, 8, 128))
    count = rng.choice((1, 2, 3, 4, 8, 8, 16)) if rng.random() < 0.97 else rng.choice((64, 257))
    sizes = [_size(rng, most) for _ in range(count)]
    if rng.random() < 0.3:  # skew
        sizes[rng.randrange(count)] = rng.randint(0, 4 * most)
    while sum(sizes) > total:
        sizes = [x // 2 for x in sizes]
    if kind == "counts":
        spacing = -(-max(1, *sizes) // alignment) * alignment
        while spacing * count > 2 * total + 128 * count:
            sizes = [x // 2 for x in sizes]
            spacing = -(-max(1, *sizes) // alignment) * alignment
    else:
        spacing = alignment if kind == "aligned_ends" else 1
    rest = 0 if masked else rng.choice((0, 0, 0, 1, 7, 64))
    return Groups(kind, tuple(sizes), rest, spacing, config.random() < 0.3)


def _size(rng: random.Random, most: int) -> int:
    match rng.randrange(6):
        case 0:
            return 0
        case 1:
            return rng.randint(0, 3)
        case 2:
            return min(most, rng.choice((63, 64, 65, 127, 128, 129, 256)))
    return rng.randint(0, most)


def hostile_bounds(rng: random.Random, groups: Groups) -> tuple[int, ...]:
    """Out of range, decreasing, overlapping, or anything."""
    extent, most = groups.extent, 2 * groups.count + 1
    extremes = (-1, -(2**31), 2**31 - 1, extent + 1, 2 * extent, -extent)
    if groups.wide:
        extremes += (2**63 - 1, -(2**63), 2**32, 2**40 + 1)
    near = [rng.randint(-3, extent + 3) for _ in range(most)]
    if rng.random() < 0.5:
        near = sorted(near, reverse=True)
    return tuple(rng.choice(extremes) if rng.random() < 0.3 else x for x in near)
