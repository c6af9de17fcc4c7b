"""What bench/pairs.py measured: the microseconds of a job's kernels, shape by shape."""

from __future__ import annotations

import lzma
import zlib
from collections.abc import Iterator
from pathlib import Path

from .jobs import JOBS, Job, Shape

MEASURED = Path(__file__).with_name("measured")  # on an H200, packed
H200_GB_PER_S = 4917.0

MeasuredShape = tuple[Shape, dict[str, float]]  # with microseconds by kernel


def read_jobs(folder: Path) -> Iterator[tuple[Job, list[MeasuredShape]]]:
    for path in sorted(folder.glob("*.txt*")):
        yield JOBS[path.name.split(".")[0].replace("_", " ")], read_shapes(path)


def read_shapes(path: Path) -> list[MeasuredShape]:
    shapes: list[MeasuredShape] = []
    with lzma.open(path, "rt") if path.suffix == ".xz" else path.open() as lines:
        for line in lines:
            if "|" in line:
                m, n, k = map(int, line.split("|")[0].split())
                shapes.append(((m, n, k), {}))
            else:
                us, kernel = line.strip().split(" ", 1)
                shapes[-1][1][kernel] = float(us)
    return shapes


def hash_of_weights(shape: Shape) -> int:
    """What is left out of a fit is chosen by weights, never by M."""
    return zlib.crc32(repr(shape[1:]).encode())
