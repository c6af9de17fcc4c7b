"""python -m bench.fit: fit the planner's model to measured pairs, and write its constants and its trees.

The pairs are those of bench/pairs.py (bench/measured, packed), on an H200. What is fitted is the order of a shape's
kernels: each shape counts alike, its fast kernels more than its slow ones, and what all of them are off by hardly.
Trees then learn what the constants leave (forest.py). Sizes of groups are known here, and not to the planner, which
takes the mean over likely ones (plan/choice/likely_steps.h). First comes the regret (how much slower than the fastest
is the kernel that the planner takes) of shapes left out of the fit, a fifth of the weights in turn: what is said of the
model.
Two ways to divide weights (--seed) differ by 0.1 to 0.5 points, so that one alone says little of a change.
Needs scipy and LightGBM (pip install lightgbm); no GPU.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cleave import _core
from cleave.testing.grouped_case import GroupedCase

from . import forest
from .measured_pairs import MEASURED, hash_of_weights, read_jobs

FITTED = Path(__file__).parent.parent / "src/plan/cost/fitted"
FOLDS = 5
KINDS = ("k_major", "strips", "eight", "promoted", "conv", "grouped")
CONSTANTS = 4  # of KINDS have constants to fit, the others only trees

# Where a fit begins, and from where it strays at most so many times up or down: constants that mean something
# are right for kernels that were not measured, too.
START = {
    "launch": 3.3, "multiply": 1.1, "pingpong": 0.95, "narrow": 0.1, "shared_memory": 0.7, "block": 20, "row": 1.4,
    "row_outside": 4.5, "row_received": 2, "latency": 0.9, "l2": 17, "l2_apart": 1.3, "misaligned": 0.7,
    "shared_line": 0.04, "memory": 0.88, "read_again": 0.2, "power": 0.7, "power_l2": 0.04, "norm": 2.8, "tile": 200,
    "store_tma": 5, "store_row": 40, "store_column": 50, "later_tile": 2, "share": 100, "in_step": 0.08,
    "cluster": 0.15, "cluster_bytes": 30, "parallel": 1.3, "partial_bytes": 23, "stream": 1.6, "stream_blocks": 1.1,
    "promote": 1, "promote_singly": 1.5, "copy": 60,
}  # fmt: skip
STRAY = 3.0

SHARPNESS = 5.0  # of a kernel's weight, by how much slower it is than the fastest
SHARPNESS_OF_OTHERS = 1.2  # whose model is off by more
RARE = 0.75  # power by which the shapes of a job that has few count more, for trees
COMMON = 0.3  # weight of what all kernels of a shape are off by
PRIOR = 0.02  # and of leaving where the fit began, by logarithms
MOST_LEFT = 0.5  # for trees to learn, by logarithms
# Convolutions' trees learn that share of what all kernels of a shape are off by, too: direct kernels compete, whose
# models are others.
MOST_LEFT_OF_CONVOLUTIONS, COMMON_LEFT = 1.0, 0.5


@dataclass
class Pairs:
    """Measured kernels of one of KINDS. `shape`: which shape each belongs to."""

    kind: int
    model: _core.ProductModel
    us: list[float] = field(default_factory=list)
    shape: list[int] = field(default_factory=list)
    weights: list[int] = field(default_factory=list)
    job: list[str] = field(default_factory=list)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.fit", description=__doc__)
    parser.add_argument("--folder", type=Path, default=MEASURED, help="of the pairs")
    parser.add_argument("--kinds", nargs="+", default=KINDS, choices=KINDS, help="what is fitted, or checked")
    parser.add_argument("--keep-constants", action="store_true", help="grow the trees alone, beside those that ship")
    parser.add_argument("--check", action="store_true", help="print the regret of the shipped constants, and no more")
    parser.add_argument("--seed", type=int, default=0, help="of how the weights are divided into fifths")
    arguments = parser.parse_args(argv)
    pairs = read(arguments.folder, arguments.seed)
    fitted, grown = {}, {}
    for kind, of_kind in sorted(pairs.items()):
        if KINDS[kind] not in arguments.kinds:
            continue
        report("shipped", of_kind, of_kind.model.predict_shipped())
        if arguments.check:
            continue
        by_constants, us = np.zeros((2, len(of_kind.us)))
        fold = np.array(of_kind.weights) % FOLDS
        for out in range(FOLDS):
            constants = constants_of(of_kind, kind, fold != out, arguments.keep_constants)
            trees = grow(of_kind, constants, fold != out)
            by_constants[fold == out] = as_planned(of_kind, constants, [])[fold == out]
            us[fold == out] = as_planned(of_kind, constants, trees)[fold == out]
        report("left out, without trees", of_kind, by_constants)
        report("left out", of_kind, us)
        everything = np.ones(len(fold), bool)
        fitted[kind] = constants_of(of_kind, kind, everything, arguments.keep_constants)
        grown[kind] = grow(of_kind, fitted[kind], everything)
    fitted = {kind: constants for kind, constants in fitted.items() if kind < CONSTANTS}
    if len(fitted) == CONSTANTS:
        (FITTED / "constants.txt").write_text(constants_text(fitted))
    elif fitted and not arguments.keep_constants:
        print("Constants and trees of products are written together: nothing of them was written.")
        grown = {kind: trees for kind, trees in grown.items() if kind >= CONSTANTS}
    for kind, trees in grown.items():
        (FITTED / f"trees_{KINDS[kind]}.txt").write_text(forest_text(trees))
    return 0


def read(folder: Path, seed: int = 0) -> dict[int, Pairs]:
    """By kind of mainloop: a convolution's kernels may be those of products."""
    pairs: dict[int, Pairs] = {}
    measured = [(job, *shape) for job, shapes in read_jobs(folder) for shape in shapes]
    for number, (job, shape, us_of_kernels) in enumerate(measured):
        case = job.case(shape)
        planned, sizes = case.plan("h100"), sizes_of(case)
        asked = _core.ProductModel()
        for kernel, us in us_of_kernels.items():
            kind = asked.add(planned, kernel)
            if kind < 0:
                continue  # the portable and the direct kernel, whose models are others
            of_kind = pairs.setdefault(kind, Pairs(kind, _core.ProductModel()))
            of_kind.model.add(planned, kernel, sizes)
            of_kind.us.append(us)
            of_kind.shape.append(number)
            of_kind.weights.append(hash_of_weights(job.weights(shape), seed))
            of_kind.job.append(job.name)
    return pairs


def sizes_of(case: Any) -> list[int]:
    """Sizes of groups."""
    return [end - begin for begin, end in case.ranges] if isinstance(case, GroupedCase) else []


def constants_of(pairs: Pairs, kind: int, used: np.ndarray, kept: bool) -> np.ndarray:
    if kind >= CONSTANTS:
        return np.array(_core.ProductModel.constants(0))  # which its model does not look at
    return np.array(_core.ProductModel.constants(kind)) if kept else fit(pairs, kind, used)


def fit(pairs: Pairs, kind: int, used: np.ndarray, most_steps: int = 40) -> np.ndarray:
    from scipy.optimize import least_squares

    us = np.array(pairs.us)
    start = np.log([START[name] for name in _core.ProductModel.constant_names()])
    shape, weight = weighted(pairs, used)

    def residuals(logs: np.ndarray) -> np.ndarray:
        off = np.clip(np.log(pairs.model.predict(np.exp(logs).tolist())) - np.log(us), -1, 1)
        common = np.bincount(shape, weight * off)
        order = (off - common[shape]) * np.sqrt(weight)
        return np.concatenate([order, COMMON * common, PRIOR * (logs - start)])

    bounds = start - np.log(STRAY), start + np.log(STRAY)
    shipped = np.clip(np.log(_core.ProductModel.constants(kind)), *bounds)
    options = {"bounds": bounds, "loss": "soft_l1", "f_scale": 0.1, "ftol": 1e-3, "max_nfev": most_steps}
    found = least_squares(residuals, shipped, **options)
    return np.exp(found.x)


def weighted(pairs: Pairs, used: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each pair's number of its shape, and its weight among the shape's."""
    us = np.array(pairs.us)
    shapes, shape = np.unique(np.array(pairs.shape), return_inverse=True)
    best = np.full(len(shapes), np.inf)
    np.minimum.at(best, shape, us)
    sharpness = SHARPNESS if pairs.kind < CONSTANTS else SHARPNESS_OF_OTHERS
    weight = np.exp(-sharpness * (us / best[shape] - 1)) * used
    total = np.bincount(shape, weight)
    return shape, weight / np.where(total > 0, total, 1)[shape]


def grow(pairs: Pairs, constants: np.ndarray, used: np.ndarray) -> list[forest.Tree]:
    """Trees for what the constants leave between a shape's kernels."""
    shape, weight = weighted(pairs, used)
    off = np.log(pairs.us) - np.log(pairs.model.predict(constants.tolist()))
    common, most = np.bincount(shape, weight * off)[shape], MOST_LEFT
    if KINDS[pairs.kind] == "conv":
        common, most = common * (1 - COMMON_LEFT), MOST_LEFT_OF_CONVOLUTIONS
    left = np.clip(off - common, -most, most)
    features = np.array(pairs.model.features(constants.tolist()))
    if pairs.kind < CONSTANTS:
        weight = weight * rarity(pairs)
    scale = used.sum() / weight.sum()
    return forest.grow(features[used], left[used], weight[used] * scale)


def rarity(pairs: Pairs) -> np.ndarray:
    """A convolution of one tap is a product of other sizes than layers of language models are, and there are few."""
    shapes_of = {job: len({s for s, j in zip(pairs.shape, pairs.job, strict=True) if j == job}) for job in {*pairs.job}}
    return np.array([(max(shapes_of.values()) / shapes_of[job]) ** RARE for job in pairs.job])


def as_planned(pairs: Pairs, constants: np.ndarray, trees: list[forest.Tree]) -> np.ndarray:
    """What the planner would predict with them."""
    values, us = constants.tolist(), []
    for likely in range(_core.ProductModel.most_likely() if KINDS[pairs.kind] == "grouped" else 1):
        features = np.array(pairs.model.features(values, likely))
        us.append(np.array(pairs.model.predict(values, likely)) * np.exp(forest.evaluate(trees, features)))
    return np.mean(us, axis=0)


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
        figures = f"{np.mean(of_job):.3f}, 99th {np.quantile(of_job, 0.99):.3f}, worst {np.max(of_job):.3f}"
        print(f"{what:26}{job:18}{len(of_job):4} shapes, regret {figures}", flush=True)


def constants_text(fitted: dict[int, np.ndarray]) -> str:
    names = _core.ProductModel.constant_names()
    tables = []
    for kind, constants in sorted(fitted.items()):
        values = ", ".join(f".{name} = {value:.4g}" for name, value in zip(names, constants, strict=True))
        tables.append(f"// {KINDS[kind]}\n{wrapped(f'{{{values}}},')}")
    return "".join(tables)


def forest_text(trees: list[forest.Tree]) -> str:
    names = _core.ProductModel.feature_names()
    return "".join(wrapped(forest.text(tree, names)) for tree in trees)


def wrapped(values: str) -> str:
    return "\n".join(textwrap.wrap(values, 120, break_on_hyphens=False)) + "\n"


if __name__ == "__main__":
    sys.exit(main())
