"""python -m bench.fit: fit the planner's model to measured pairs, and write its constants.

The pairs are those of bench/pairs.py (bench/measured, packed), on an H200. What is fitted is the order of a shape's
kernels: each shape counts alike, its fast kernels more than its slow ones, and what all of them are off by hardly.
First comes the regret (how much slower than the fastest is the kernel that the model takes) of shapes left out of
the fit, two halves in turns: what is said of the model. Needs scipy; no GPU.
"""

from __future__ import annotations

import argparse
import lzma
import sys
import textwrap
import zlib
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from cleave import _core

from .jobs import JOBS, Shape

MEASURED = Path(__file__).with_name("measured")
CONSTANTS = Path(__file__).parent.parent / "src/plan/product_constants.cpp"
H200_GB_PER_S = 4917.0
KINDS = ("k_major", "strips", "eight", "promoted")

# Where a fit begins, and from where it strays at most so many times up or down: constants that mean something
# are right for kernels that were not measured, too.
START = {
    "launch": 3.3, "multiply": 1.1, "pingpong": 0.95, "narrow": 0.1, "shared_memory": 0.7, "block": 20, "row": 1.4,
    "row_outside": 4.5, "row_received": 2, "latency": 0.9, "l2": 17, "l2_apart": 1.3, "misaligned": 0.7,
    "shared_line": 0.04, "memory": 0.88, "read_again": 0.2, "power": 0.7, "power_l2": 0.04, "norm": 2.8, "tile": 200,
    "store_tma": 5, "store_row": 40, "store_column": 50, "later_tile": 2, "share": 100, "in_step": 0.08,
    "cluster": 0.15, "cluster_bytes": 30, "parallel": 1.3, "partial_bytes": 23, "stream": 1.6, "stream_blocks": 1.1,
    "promote": 1, "promote_singly": 1.5,
}  # fmt: skip
STRAY = 3.0

SHARPNESS = 5.0  # of a kernel's weight, by how much slower it is than the fastest
COMMON = 0.3  # weight of what all kernels of a shape are off by
PRIOR = 0.02  # and of leaving where the fit began, by logarithms


@dataclass
class Pairs:
    """Measured kernels with one kind of mainloop. `shape`: which shape each belongs to."""

    model: _core.ProductModel
    us: list[float] = field(default_factory=list)
    shape: list[int] = field(default_factory=list)
    left_out: list[bool] = field(default_factory=list)
    job: list[str] = field(default_factory=list)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.fit", description=__doc__)
    parser.add_argument("--folder", type=Path, default=MEASURED, help="of the pairs")
    parser.add_argument("--check", action="store_true", help="print the regret of the shipped constants, and no more")
    arguments = parser.parse_args(argv)
    pairs = read(arguments.folder)
    fitted = {}
    for kind, of_kind in sorted(pairs.items()):
        report("shipped", of_kind, of_kind.model.predict(_core.ProductModel.constants(kind)))
        if arguments.check:
            continue
        us = np.zeros(len(of_kind.us))
        half = np.array(of_kind.left_out)
        for out in (False, True):
            constants = fit(of_kind, half != out)
            us[half == out] = np.array(of_kind.model.predict(constants.tolist()))[half == out]
        report("left out", of_kind, us)
        fitted[kind] = fit(of_kind, np.ones(len(half), bool))
    if fitted:
        CONSTANTS.write_text(source(fitted))
        print("wrote", CONSTANTS)
    return 0


def read(folder: Path) -> dict[int, Pairs]:
    """By kind of mainloop."""
    pairs: dict[int, Pairs] = defaultdict(lambda: Pairs(_core.ProductModel(H200_GB_PER_S)))
    number = 0
    for path in sorted(folder.glob("*.txt*")):
        job = JOBS[path.name.split(".")[0].replace("_", " ")]
        with lzma.open(path, "rt") if path.suffix == ".xz" else path.open() as lines:
            for line in lines:
                if "|" in line:
                    m, n, k = map(int, line.split("|")[0].split())
                    planned = job.case((m, n, k)).plan("h100")
                    kind = mainloop_kind(planned)
                    number += 1
                    continue
                us, kernel = line.strip().split(" ", 1)
                of_kind = pairs[kind]
                if of_kind.model.add(planned, kernel) != kind:
                    continue  # the portable kernel, whose model is another
                of_kind.us.append(float(us))
                of_kind.shape.append(number)
                of_kind.left_out.append(is_left_out((m, n, k)))
                of_kind.job.append(job.name)
    return pairs


def mainloop_kind(planned: object) -> int:
    return _core.ProductModel(H200_GB_PER_S).add(planned, planned.candidates[0]["kernel"])


def is_left_out(shape: Shape) -> bool:
    """By weights, never by M."""
    return zlib.crc32(repr(shape[1:]).encode()) % 2 == 0


def fit(pairs: Pairs, used: np.ndarray, most_steps: int = 40) -> np.ndarray:
    from scipy.optimize import least_squares

    us = np.array(pairs.us)
    start = np.log([START[name] for name in _core.ProductModel.constant_names()])
    shapes, shape = np.unique(np.array(pairs.shape), return_inverse=True)
    best = np.full(len(shapes), np.inf)
    np.minimum.at(best, shape, us)
    weight = np.exp(-SHARPNESS * (us / best[shape] - 1)) * used
    total = np.bincount(shape, weight)
    weight /= np.where(total > 0, total, 1)[shape]

    def residuals(logs: np.ndarray) -> np.ndarray:
        off = np.clip(np.log(pairs.model.predict(np.exp(logs).tolist())) - np.log(us), -1, 1)
        common = np.bincount(shape, weight * off)
        order = (off - common[shape]) * np.sqrt(weight)
        return np.concatenate([order, COMMON * common, PRIOR * (logs - start)])

    bounds = start - np.log(STRAY), start + np.log(STRAY)
    found = least_squares(residuals, start, bounds=bounds, loss="soft_l1", f_scale=0.1, max_nfev=most_steps)
    return np.exp(found.x)


def regrets(pairs: Pairs, predicted: list[float]) -> dict[str, list[float]]:
    """How much slower than the fastest is the kernel that the model takes: job by job, shape by shape."""
    us, by_model, shape, job = (np.array(x) for x in (pairs.us, predicted, pairs.shape, pairs.job))
    found: dict[str, list[float]] = defaultdict(list)
    for number in np.unique(shape):
        of_shape = np.flatnonzero(shape == number)
        chosen = us[of_shape][np.argmin(by_model[of_shape])]
        found[str(job[of_shape[0]])].append(chosen / us[of_shape].min() - 1)
    return found


def report(what: str, pairs: Pairs, predicted: list[float]) -> None:
    for job, of_job in regrets(pairs, predicted).items():
        figures = f"{np.mean(of_job):.3f}, 90th {np.quantile(of_job, 0.9):.3f}, worst {np.max(of_job):.3f}"
        print(f"{what:9}{job:18}{len(of_job):4} shapes, regret {figures}", flush=True)


def source(fitted: dict[int, np.ndarray]) -> str:
    names = _core.ProductModel.constant_names()
    tables = []
    for kind, constants in sorted(fitted.items()):
        values = ", ".join(f".{name} = {value:.4g}" for name, value in zip(names, constants, strict=True))
        lines = textwrap.wrap(values, 116, initial_indent=" " * 4, subsequent_indent=" " * 4, break_on_hyphens=False)
        tables.append(f"    // {KINDS[kind]}\n    {{\n" + "\n".join(lines) + "\n    },")
    return HEAD + "\n".join(tables) + TAIL


HEAD = """// Written by python -m bench.fit.
#include "plan/product_constants.h"

namespace cleave {
namespace {

// clang-format off
constexpr ProductConstants kFitted[kMainloopKinds] = {
"""
TAIL = """
};
// clang-format on

}  // namespace

const ProductConstants& product_constants(MainloopKind kind) {
  return kFitted[size_t(kind)];
}

}  // namespace cleave
"""

if __name__ == "__main__":
    sys.exit(main())
