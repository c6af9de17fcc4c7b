"""Groups of one dimension, drawn by hypothesis: where they lie, and how a call says so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from cleave.testing.group_sizes import ranges_of

BOUNDS = ("ends", "indptr", "starts", "aligned_ends", "counts")


@dataclass
class Groups:
    ranges: list[tuple[int, int]]
    extent: int  # of the dimension, at least the last end
    keywords: dict[str, Any]  # of cleave.grouped_gemm

    @property
    def count(self) -> int:
        return len(self.ranges)


def describe(kind: str, sizes: list[int], dtype: Any, rest: int = 0, spacing: int = 1) -> Groups:
    """Groups of these sizes, beside which `rest` elements belong to none."""

    def array(values: Any) -> np.ndarray:
        return np.array(list(values), dtype)

    match kind:
        case "ends":
            ranges = ranges_of(sizes)
            keywords = {"offs": array(end for _, end in ranges)}
        case "indptr":
            ranges = ranges_of(sizes, begin=rest)
            keywords = {"indptr": array([rest, *(end for _, end in ranges)])}
        case "starts":
            # The last group comes first, and what belongs to none after each.
            ranges = ranges_of([size + rest for size in reversed(sizes)])[::-1]
            ranges = [(begin, begin + size) for (begin, _), size in zip(ranges, sizes, strict=True)]
            keywords = {"starts": array(begin for begin, _ in ranges), "sizes": array(sizes)}
        case "aligned_ends":
            ranges = ranges_of(sizes, spacing)
            keywords = {"offs": array(end for _, end in ranges), "alignment": spacing}
        case "counts":
            ranges = [(g * spacing, g * spacing + size) for g, size in enumerate(sizes)]
            keywords = {"counts": array(sizes), "alignment": spacing}
            rest += spacing
    return Groups(ranges, max(end for _, end in ranges) + rest, keywords)


@st.composite
def groups(draw, kinds: tuple[str, ...] = BOUNDS) -> Groups:
    size = st.one_of(st.integers(0, 2), st.integers(0, 40))
    sizes = draw(st.lists(size, min_size=1, max_size=draw(st.sampled_from([1, 8, 8, 40]))))
    if draw(st.booleans()):  # skew
        sizes[draw(st.integers(0, len(sizes) - 1))] = draw(st.integers(100, 300))
    kind = draw(st.sampled_from(kinds))
    spacing = draw(st.sampled_from([1, 8, 128]))
    if kind == "counts":
        spacing = -(-max(1, *sizes) // spacing) * spacing
    dtype = draw(st.sampled_from([np.int32, np.int64]))
    return describe(kind, sizes, dtype, draw(st.sampled_from([0, 0, 1, 30])), spacing)
