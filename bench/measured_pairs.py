"""What bench/pairs.py measured: the microseconds of a job's kernels, shape by shape."""

from __future__ import annotations

import lzma
import zlib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from .jobs.every import EVERY_JOB, AnyJob, Shape

# Packed, on an H200. Those in lines_of_256_bytes are from when TMA asked L2 for such lines: what memory bounds is up to
# 9 % faster since. A fit takes both, and errs less on shapes it has not seen than with the newer ones alone. Those in
# early_loads are small products, measured since tiles of one warpgroup are loaded before the CTA meets; those in
# few_filters are convolutions, measured since pixels may be columns.
MEASURED = Path(__file__).with_name("measured")

MeasuredShape = tuple[Shape, dict[str, float]]  # with microseconds by kernel


def read_jobs(folder: Path) -> Iterator[tuple[AnyJob, list[MeasuredShape]]]:
    """Each job once, with what all files of its name have."""
    shapes: defaultdict[str, list[MeasuredShape]] = defaultdict(list)
    for path in sorted(folder.rglob("*.txt*")):
        shapes[path.name.split(".")[0].replace("_", " ")] += read_shapes(path)
    for name, of_job in sorted(shapes.items()):
        yield EVERY_JOB[name], of_job


def read_shapes(path: Path) -> list[MeasuredShape]:
    shapes: list[MeasuredShape] = []
    with lzma.open(path, "rt") if path.suffix == ".xz" else path.open() as lines:
        for line in lines:
            if "|" in line:
                shapes.append((tuple(map(int, line.split("|")[0].split())), {}))
            else:
                us, kernel = line.strip().split(" ", 1)
                shapes[-1][1][kernel] = float(us)
    return shapes


def hash_of_weights(weights: tuple[int, ...], seed: int = 0) -> int:
    """What is left out of a fit is chosen by what a job's `weights` say of a shape, never by M."""
    return zlib.crc32(repr(weights).encode(), seed)
