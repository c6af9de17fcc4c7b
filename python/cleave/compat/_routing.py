"""Routers that write to arrays they are given, made of `cleave.moe.route`."""

from __future__ import annotations

from typing import Any

from .. import _core


def route_into(topk_weights: Any, topk_ids: Any, logits: Any, renormalize: bool, **options: Any) -> None:
    """As many experts as topk_ids [tokens, top_k] has columns, of whatever integers; topk_weights is float32."""
    if topk_weights.shape != topk_ids.shape or len(topk_ids.shape) != 2 or topk_ids.shape[0] != logits.shape[0]:
        raise ValueError(
            f"topk_weights is {tuple(topk_weights.shape)} and topk_ids {tuple(topk_ids.shape)}; both must be "
            f"[{logits.shape[0]}, top_k], with a row for each token"
        )
    weights, ids = _core.route(logits, topk_ids.shape[1], renormalize=renormalize, **options)
    topk_weights[...] = weights
    topk_ids[...] = ids
