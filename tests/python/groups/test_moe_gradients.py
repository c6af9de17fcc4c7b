"""The gradients of torch.ops.cleave's steps of a mixture of experts, against torch's own."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", minversion="2.10")

import cleave.torch  # noqa: E402

ops = torch.ops.cleave
TOKENS, TOP_K, EXPERTS, FEATURES = 30, 3, 7, 10


def routing(lowest: int) -> tuple[torch.Tensor, torch.Tensor]:
    """ids and indices; ids below 0 are dropped."""
    torch.manual_seed(0)
    ids = torch.randint(lowest, EXPERTS, (TOKENS, TOP_K))
    return ids, ops.moe_sort_tokens(ids, EXPERTS)[1]


def rows_of(x: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    kept = (indices >= 0)[:, None]
    return torch.where(kept, x[torch.where(indices < 0, ~indices, indices).long() // TOP_K], 0)


def tokens_of(y: torch.Tensor, indices: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    slots = torch.where(indices < 0, ~indices, indices).long()
    weighted = y * torch.where(indices < 0, 0, weights.flatten()[slots])[:, None]
    return torch.zeros(TOKENS, FEATURES).index_add(0, slots // TOP_K, weighted)


def check(made: torch.Tensor, expected: torch.Tensor, *inputs: torch.Tensor) -> None:
    torch.testing.assert_close(made, expected)
    grad = torch.randn_like(expected)
    gradients = (torch.autograd.grad(result, inputs, grad) for result in (made, expected))
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("lowest", [0, -2])
def test_permute_and_gather(lowest: int) -> None:
    ids, indices = routing(lowest)
    x = torch.randn(TOKENS, FEATURES, requires_grad=True)
    expected = rows_of(x, indices)
    check(ops.moe_permute(x, ids, EXPERTS)[0], expected, x)
    check(ops.moe_gather(x, indices), rows_of(x, indices), x)


@pytest.mark.parametrize("lowest", [0, -2])
def test_unpermute(lowest: int) -> None:
    _, indices = routing(lowest)
    y = torch.randn(TOKENS * TOP_K, FEATURES, requires_grad=True)
    weights = torch.rand(TOKENS, TOP_K, requires_grad=True)
    check(ops.moe_unpermute(y, indices, weights), tokens_of(y, indices, weights), y, weights)
    ones = torch.ones(TOKENS, TOP_K)
    check(ops.moe_unpermute(y, indices, None, TOP_K), tokens_of(y, indices, ones), y)


def test_round_trip_of_a_strided_gradient() -> None:
    ids, _ = routing(0)
    x = torch.randn(TOKENS, FEATURES, requires_grad=True)
    rows, _, indices = ops.moe_permute(x, ids, EXPERTS)
    grad = torch.randn(FEATURES, TOKENS).t()
    ops.moe_unpermute(rows, indices, None, TOP_K).backward(grad)
    torch.testing.assert_close(x.grad, TOP_K * grad)


def test_grouped_quantisation_is_that_of_cleave() -> None:
    torch.manual_seed(0)
    x, offs = torch.randn(300, 40), torch.tensor([100, 100, 290])
    made = ops.quantize_grouped(x, offs, torch.float8_e4m3fn)
    expected = cleave.quantize(x, "float8_e4m3fn", "block_1x128", transpose=True, offs=offs)
    for one, other in zip(made, expected, strict=True):
        assert one.stride() == other.stride()
        assert torch.equal(one.float(), other.float())


@pytest.mark.parametrize("scoring_func", ["softmax", "sigmoid"])
@pytest.mark.parametrize("renormalize", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_route(scoring_func: str, renormalize: bool, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    logits = torch.randn(TOKENS, 20).to(dtype).requires_grad_()
    bias = torch.randn(20)
    options = {"scoring_func": scoring_func, "renormalize": renormalize, "routed_scaling_factor": 2.5}
    weights, ids = ops.moe_route(logits, TOP_K, bias, **options)
    assert weights.requires_grad and not ids.requires_grad
    scores = logits.double().softmax(1) if scoring_func == "softmax" else logits.double().sigmoid()
    expected = scores.gather(1, ids.long())
    if renormalize:
        expected = expected / expected.sum(1, keepdim=True)
    check(weights, 2.5 * expected.float(), logits)
