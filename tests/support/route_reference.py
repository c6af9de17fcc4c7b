"""cleave.moe.route in float64, token by token; what ties and NaNs do is said in words of order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Routing:
    """The options of cleave.moe.route, by its names."""

    top_k: int = 1
    scoring_func: str = "softmax"
    n_group: int = 1
    topk_group: int = 1
    group_score: str = "top2_sum"
    renormalize: bool = True
    routed_scaling_factor: float = 1.0

    def chosen(self, logits: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
        """Ids [tokens, top_k], the best first; of equals the first."""
        left_out = self.topk_group < self.n_group
        compared = logits.astype(np.float64)
        if bias is not None or (left_out and self.group_score == "top2_sum"):
            compared = self.scores(logits) + (0.0 if bias is None else bias)
        if left_out:
            tokens, experts = logits.shape
            groups = compared.reshape(tokens, self.n_group, experts // self.n_group)
            best = np.sort(groups, axis=2)[:, :, ::-1]
            of_groups = best[:, :, 0] + best[:, :, 1] if self.group_score == "top2_sum" else best[:, :, 0]
            kept = np.zeros(of_groups.shape, bool)
            np.put_along_axis(kept, first(of_groups, self.topk_group), True, axis=1)
            compared = np.where(kept[:, :, None], groups, -np.inf).reshape(tokens, experts)
        return first(compared, self.top_k)

    def scores(self, logits: np.ndarray) -> np.ndarray:
        x = logits.astype(np.float64)
        if self.scoring_func == "sigmoid":
            return 1 / (1 + np.exp(-x))
        parts = np.exp(x - x.max(axis=1, keepdims=True, initial=-np.inf))
        return parts / parts.sum(axis=1, keepdims=True)

    def weights(self, logits: np.ndarray, ids: np.ndarray) -> np.ndarray:
        weights = np.take_along_axis(self.scores(logits), ids.astype(np.int64), axis=1)
        if self.renormalize:
            weights = weights / weights.sum(axis=1, keepdims=True)
        return weights * self.routed_scaling_factor


def first(values: np.ndarray, count: int) -> np.ndarray:
    """The columns of the largest, in order."""
    return np.argsort(-values, axis=1, kind="stable")[:, :count]
