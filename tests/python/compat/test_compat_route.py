"""Routers of cleave.compat.vllm and sgl_kernel, beside what vLLM and SGLang say they compute, in float64."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from cleave.compat import sgl_kernel, vllm  # noqa: E402

TOKENS, EXPERTS, TOP_K = 9, 32, 4


def drawn() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.randn(TOKENS, EXPERTS), torch.randn(EXPERTS)


def results(ids_dtype: torch.dtype = torch.int32) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.full((TOKENS, TOP_K), float("nan")), torch.full((TOKENS, TOP_K), -1, dtype=ids_dtype)


def check(
    weights: torch.Tensor, ids: torch.Tensor, scores: torch.Tensor, compared: torch.Tensor, renormalize: bool
) -> None:
    expected = compared.topk(TOP_K, dim=-1)[1]
    assert torch.equal(ids.long(), expected)
    of_chosen = scores.gather(1, expected)
    if renormalize:
        of_chosen = of_chosen / of_chosen.sum(1, keepdim=True)
    torch.testing.assert_close(weights.double(), of_chosen, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("renormalize", [False, True])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("name", ["softmax", "sigmoid"])
def test_vllm(name: str, biased: bool, renormalize: bool) -> None:
    logits, bias = drawn()
    weights, ids = results(torch.int64)
    numbers = torch.zeros(TOKENS, TOP_K, dtype=torch.int32)
    given = {"e_score_correction_bias": bias} if biased else {}
    getattr(vllm, f"topk_{name}")(weights, ids, numbers, logits, renormalize, **given)
    scores = logits.double().softmax(-1) if name == "softmax" else logits.double().sigmoid()
    check(weights, ids, scores, scores + bias if biased else scores, renormalize)
    assert numbers[3, 2] == 2 * TOKENS + 3 and torch.equal(
        numbers.flatten().sort()[0].long(), torch.arange(TOKENS * TOP_K)
    )


def test_vllm_scales_and_groups() -> None:
    logits, bias = drawn()
    weights, ids = results()
    vllm.topk_sigmoid(weights, ids, torch.zeros_like(ids), logits, True, routed_scaling_factor=2.5)
    torch.testing.assert_close(weights.sum(1), torch.full((TOKENS,), 2.5))
    weights, ids = vllm.grouped_topk(logits, 8, 3, TOP_K, True, 1.0, bias, 1)
    assert weights.dtype == torch.float32 and ids.dtype == torch.int32
    scores = logits.double().sigmoid()
    groups = (scores + bias).view(TOKENS, 8, -1)
    kept = torch.zeros(TOKENS, 8, dtype=torch.bool).scatter(1, groups.topk(2, dim=-1)[0].sum(-1).topk(3)[1], True)
    check(weights, ids, scores, groups.masked_fill(~kept[..., None], float("-inf")).flatten(1), True)
    assert vllm.grouped_topk(logits[:0], 8, 3, TOP_K, True, 1.0, bias, 1)[0].shape == (0, TOP_K)


@pytest.mark.parametrize("renormalize", [False, True])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("name", ["softmax", "sigmoid"])
def test_sgl_kernel(name: str, biased: bool, renormalize: bool) -> None:
    """Its softmax is of logits with their biases, its sigmoid of logits alone."""
    logits, bias = drawn()
    weights, ids = results()
    given = {"correction_bias": bias} if biased else {}
    getattr(sgl_kernel, f"topk_{name}")(weights, ids, logits, renormalize, **given)
    added = bias if biased else torch.zeros(EXPERTS)
    if name == "softmax":
        scores = (logits + added).double().softmax(-1)
        check(weights, ids, scores, scores, renormalize)
    else:
        scores = logits.double().sigmoid()
        check(weights, ids, scores, scores + added, renormalize)


def test_what_is_not_served() -> None:
    logits, bias = drawn()
    weights, ids = results()
    numbers = torch.zeros_like(ids)
    refused: tuple[tuple[Any, str], ...] = (
        (lambda: vllm.topk_softmax(weights, ids, numbers, logits, is_padding=bias > 0), "is_padding is given"),
        (lambda: vllm.grouped_topk(logits, 8, 3, TOP_K, True, 1.0, bias), "scoring_func is 0; 1 is served"),
        (lambda: sgl_kernel.topk_softmax(weights, ids, logits, moe_softcapping=30.0), "moe_softcapping is 30.0"),
        (lambda: sgl_kernel.topk_softmax(weights[1:], ids, logits), r"topk_weights is \(8, 4\) and topk_ids \(9, 4\)"),
        (lambda: sgl_kernel.topk_sigmoid(weights, ids, logits[1:]), r"must be \[8, top_k\]"),
    )
    for call, message in refused:
        with pytest.raises(ValueError, match=message):
            call()
