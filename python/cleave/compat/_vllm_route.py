"""topk_softmax, topk_sigmoid and grouped_topk of vllm._custom_ops."""

from __future__ import annotations

from typing import Any

from .. import _core
from ._routing import route_into


def topk_softmax(
    topk_weights: Any,
    topk_ids: Any,
    token_expert_indices: Any,
    gating_output: Any,
    renormalize: bool = False,
    e_score_correction_bias: Any = None,
    is_padding: Any = None,
) -> None:
    """Writes the best experts of gating_output [tokens, experts], their softmax over all, or over the best if
    renormalize, and each choice's number, choice by choice. e_score_correction_bias, float32, is for the choice alone.
    is_padding must be left out.
    """
    _refuse_padding(is_padding)
    route_into(topk_weights, topk_ids, gating_output, renormalize, bias=e_score_correction_bias)
    _number(token_expert_indices)


def topk_sigmoid(
    topk_weights: Any,
    topk_ids: Any,
    token_expert_indices: Any,
    gating_output: Any,
    renormalize: bool = False,
    e_score_correction_bias: Any = None,
    routed_scaling_factor: float = 1.0,
    is_padding: Any = None,
) -> None:
    """The same of the sigmoids, times routed_scaling_factor."""
    _refuse_padding(is_padding)
    form = {"scoring_func": "sigmoid", "routed_scaling_factor": routed_scaling_factor}
    route_into(topk_weights, topk_ids, gating_output, renormalize, bias=e_score_correction_bias, **form)
    _number(token_expert_indices)


def grouped_topk(
    scores: Any,
    num_expert_group: int,
    topk_group: int,
    topk: int,
    renormalize: bool,
    routed_scaling_factor: float,
    bias: Any,
    scoring_func: int = 0,
) -> tuple[Any, Any]:
    """Weights, float32, and ids, int32, of DeepSeek-V3's router. scoring_func is 1: scores are logits, whose sigmoids
    are taken; bias is float32."""
    if scoring_func != 1:
        raise ValueError(f"scoring_func is {scoring_func}; 1 is served, the sigmoid of logits: pass it, and the logits")
    return _core.route(
        scores,
        topk,
        bias=bias,
        scoring_func="sigmoid",
        n_group=num_expert_group,
        topk_group=topk_group,
        renormalize=renormalize,
        routed_scaling_factor=routed_scaling_factor,
    )


def _refuse_padding(is_padding: Any) -> None:
    if is_padding is not None:
        raise ValueError("is_padding is given; all tokens are routed: leave it out, and drop ids that are padding's")


def _number(token_expert_indices: Any) -> None:
    """Every token's first choice, then every token's second, and so on."""
    import torch

    tokens, top_k = token_expert_indices.shape
    numbers = torch.arange(tokens * top_k, dtype=torch.int32, device=token_expert_indices.device)
    token_expert_indices.copy_(numbers.view(top_k, tokens).t())
