"""cleave.moe.route on the GPU: the CPU backend's choice, streams of graphs, gradients."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import cleave.torch  # noqa: E402

route = cleave.moe.route
ops = torch.ops.cleave

DEEPSEEK_V3 = {"scoring_func": "sigmoid", "n_group": 8, "topk_group": 4, "routed_scaling_factor": 2.5}
FORMS: tuple[tuple[int, int, bool, dict[str, Any]], ...] = (  # experts, top_k, bias
    (8, 2, False, {}),
    (128, 8, False, {}),
    (128, 8, False, {"renormalize": False}),
    (60, 4, False, {"renormalize": False, "routed_scaling_factor": 1.5}),
    (1, 1, False, {"scoring_func": "sigmoid"}),
    (512, 32, True, {}),
    (33, 32, True, {"scoring_func": "sigmoid", "renormalize": False}),
    (256, 8, True, DEEPSEEK_V3),
    (512, 10, True, DEEPSEEK_V3),
    (160, 6, False, {"n_group": 8, "topk_group": 3, "group_score": "max", "renormalize": False}),
    (64, 2, False, {"n_group": 32, "topk_group": 1}),
)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("tokens", [0, 1, 3, 64, 1025])
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_as_on_the_host(form: tuple[int, int, bool, dict[str, Any]], tokens: int, dtype: torch.dtype) -> None:
    """Ids are the same but among scores that differ by last bits of an exponential."""
    experts, top_k, biased, options = form
    torch.manual_seed(tokens)
    logits = torch.randn(tokens, experts).to(dtype)
    bias = torch.randn(experts) if biased else None
    expected_weights, expected = route(logits, top_k, bias=bias, **options)
    on_gpu = None if bias is None else bias.cuda()
    weights, ids = route(logits.cuda(), top_k, bias=on_gpu, **options)
    again = route(logits.cuda(), top_k, bias=on_gpu, **options)
    assert torch.equal(again[0], weights) and torch.equal(again[1], ids)
    same = (ids.cpu() == expected).all(1)
    compares_logits = not biased and options.get("group_score", "top2_sum" if "n_group" in options else "max") == "max"
    assert same.all() if compares_logits else (~same).sum() <= 1 + tokens // 50
    torch.testing.assert_close(weights.cpu()[same], expected_weights[same], rtol=4e-6, atol=1e-12)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_whatever_the_logits_are_ids_are_experts(form: tuple[int, int, bool, dict[str, Any]]) -> None:
    experts, top_k, biased, options = form
    torch.manual_seed(0)
    bits = torch.randint(-(2**31), 2**31, (500, experts), dtype=torch.int64).to(torch.int32)
    logits = bits.view(torch.float32)  # every kind of float
    logits[0], logits[1], logits[2] = float("nan"), float("-inf"), 0.0
    bias = torch.full((experts,), float("nan"), device="cuda") if biased else None
    ids = route(logits.cuda(), top_k, bias=bias, **options)[1].cpu().sort(1).values
    assert ids.min() >= 0 and ids.max() < experts
    assert top_k == 1 or (ids[:, 1:] != ids[:, :-1]).all()
    if not biased:
        assert ids[2].tolist() == list(range(top_k)), "of equal ones the first"


def test_a_token_is_the_same_in_any_batch() -> None:
    torch.manual_seed(0)
    logits, bias = torch.randn(300, 256, device="cuda"), torch.randn(256, device="cuda")
    of_all = route(logits, 8, bias=bias, **DEEPSEEK_V3)
    for token in (0, 150, 299):
        for one, all_ in zip(route(logits[token : token + 1], 8, bias=bias, **DEEPSEEK_V3), of_all, strict=True):
            assert torch.equal(one, all_[token : token + 1])


def test_a_graph_routes_what_it_finds() -> None:
    logits = torch.randn(64, 128, device="cuda")
    ops.moe_permute(logits, ops.moe_route(logits, 8)[1], 128)  # compiles their kernels
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        weights, ids = ops.moe_route(logits, 8)
        rows, offs, _ = ops.moe_permute(logits, ids, 128)
    for seed in range(3):
        torch.manual_seed(seed)
        logits.normal_()
        graph.replay()
        expected = ops.moe_route(logits, 8)
        assert torch.equal(weights, expected[0]) and torch.equal(ids, expected[1])
        made = ops.moe_permute(logits, ids, 128)
        assert torch.equal(rows, made[0]) and torch.equal(offs, made[1])


@pytest.mark.parametrize("options", [{}, {"renormalize": False}, {"scoring_func": "sigmoid"}], ids=str)
def test_gradients_are_repeatable(options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    logits = torch.randn(200, 64, device="cuda", requires_grad=True)
    grad = torch.randn(200, 6, device="cuda")

    def gradient() -> torch.Tensor:
        return torch.autograd.grad(ops.moe_route(logits, 6, **options)[0], logits, grad)[0]

    made = gradient()
    assert torch.equal(made, gradient())
    on_host = logits.detach().cpu().requires_grad_()
    expected = torch.autograd.grad(ops.moe_route(on_host, 6, **options)[0], on_host, grad.cpu())[0]
    torch.testing.assert_close(made.cpu(), expected)
