"""Boosted regression trees for what the planner's model leaves (plan/cost/product_residual.h), grown by LightGBM."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

# Each tree sees some of the pairs alone: a forest that is free to wander is right about these, and wrong beside them.
OPTIONS = {
    "objective": "regression",
    "learning_rate": 0.1,
    "num_leaves": 96,
    "min_data_in_leaf": 12,
    "lambda_l2": 5.0,
    "bagging_fraction": 0.6,
    "bagging_freq": 1,
    "deterministic": True,
    "force_row_wise": True,
    "num_threads": 1,
    "seed": 1,
    "verbosity": -1,
}
TREES = 100
Node = tuple[int | None, float]  # a test, feature <= value, before both of its branches; or a leaf, of no feature
Tree = list[Node]


def grow(features: np.ndarray, target: np.ndarray, weight: np.ndarray) -> list[Tree]:
    """Trees whose values add up to `target`, [n] of [n, features]."""
    import lightgbm

    data = lightgbm.Dataset(features.astype(np.float32), target, weight=weight)
    booster = lightgbm.train(OPTIONS, data, num_boost_round=TREES)
    return [list(_preorder(tree["tree_structure"])) for tree in booster.dump_model()["tree_info"]]


def _preorder(node: dict[str, Any]) -> Iterator[Node]:
    if "left_child" not in node:
        yield None, _short(node["leaf_value"])
        return
    yield node["split_feature"], _short(node["threshold"])
    yield from _preorder(node["left_child"])
    yield from _preorder(node["right_child"])


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def evaluate(trees: list[Tree], features: np.ndarray) -> np.ndarray:
    """The sums of the trees' values: factors of the model's times, as logarithms."""
    features = features.astype(np.float32)
    total = np.zeros(len(features))
    for tree in trees:
        total += _values(iter(tree), features)
    return total


def _values(nodes: Iterator[Node], features: np.ndarray) -> np.ndarray:
    feature, value = next(nodes)
    if feature is None:
        return np.full(len(features), value)
    holds = features[:, feature] <= np.float32(value)
    found = np.empty(len(features))
    found[holds] = _values(nodes, features[holds])
    found[~holds] = _values(nodes, features[~holds])
    return found


def text(tree: Tree, names: list[str]) -> str:
    """As plan/cost/fitted.cpp reads it."""
    return ", ".join(f"{value:g}" if at is None else f"{names[at]}<={value:g}" for at, value in tree) + ","
