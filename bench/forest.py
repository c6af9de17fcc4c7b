"""Boosted regression trees for what the planner's model leaves (src/plan/product_residual.h), grown by LightGBM."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

# Small trees that see a few shapes each, and not the same pairs: a forest that is free to wander is right about the
# pairs alone.
OPTIONS = {
    "objective": "regression",
    "lambda_l2": 5.0,
    "bagging_fraction": 0.6,
    "bagging_freq": 1,
    "deterministic": True,
    "force_row_wise": True,
    "num_threads": 1,
    "seed": 1,
    "verbosity": -1,
}
LEAF = 255
Node = tuple[int, int, float]  # as TreeNode


@dataclass(frozen=True)
class Growth:
    trees: int = 400
    leaves: int = 8
    least: int = 25  # pairs of a leaf
    rate: float = 0.06


def grow(features: np.ndarray, target: np.ndarray, weight: np.ndarray, growth: Growth = Growth()) -> list[list[Node]]:
    """Trees whose values add up to `target`, [n] of [n, features]."""
    import lightgbm

    data = lightgbm.Dataset(features.astype(np.float32), target, weight=weight)
    own = {"learning_rate": growth.rate, "num_leaves": growth.leaves, "min_data_in_leaf": growth.least}
    booster = lightgbm.train(OPTIONS | own, data, num_boost_round=growth.trees)
    return [list(_preorder(tree["tree_structure"])) for tree in booster.dump_model()["tree_info"]]


def _size(node: dict[str, Any]) -> int:
    return 1 + (_size(node["left_child"]) + _size(node["right_child"]) if "left_child" in node else 0)


def _preorder(node: dict[str, Any], left: int | None = None) -> Iterator[Node]:
    """`left`: nodes of the tree from this one on, which a leaf jumps over."""
    left = _size(node) if left is None else left
    if "left_child" not in node:
        yield LEAF, left, _short(node["leaf_value"])
        return
    smaller = 1 + _size(node["left_child"])
    yield node["split_feature"], smaller, _short(node["threshold"])
    yield from _preorder(node["left_child"], left - 1)
    yield from _preorder(node["right_child"], left - smaller)


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def evaluate(trees: list[list[Node]], features: np.ndarray) -> np.ndarray:
    """The sums of the trees' values: factors of the model's times, as logarithms."""
    features = features.astype(np.float32)
    total = np.zeros(len(features))
    for tree in trees:
        total += _values(tree, 0, features)
    return total


def _values(tree: list[Node], at: int, features: np.ndarray) -> np.ndarray:
    feature, step, value = tree[at]
    if feature == LEAF:
        return np.full(len(features), value)
    smaller = features[:, feature] <= np.float32(value)
    found = np.empty(len(features))
    found[smaller] = _values(tree, at + 1, features[smaller])
    found[~smaller] = _values(tree, at + step, features[~smaller])
    return found


def text(trees: list[list[Node]]) -> str:
    return ", ".join(f"{{{feature}, {step}, {value:g}}}" for tree in trees for feature, step, value in tree)
