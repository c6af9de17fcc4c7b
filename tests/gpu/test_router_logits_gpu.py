"""cleave.moe.router_logits on the GPU: the host's bits, in any batch, in graphs, with static weights."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import cleave.torch  # noqa: E402

router_logits = cleave.moe.router_logits
ops = torch.ops.cleave

FLOATS = (torch.bfloat16, torch.float16, torch.float32)


@pytest.mark.parametrize("weight_dtype", FLOATS, ids=str)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_the_hosts_bits(dtype: torch.dtype, weight_dtype: torch.dtype) -> None:
    for tokens, experts, features in ((1, 128, 2048), (5, 33, 1030), (8, 512, 300), (70, 9, 129), (3, 2, 0)):
        torch.manual_seed(tokens)
        x, weight = torch.randn(tokens, features).to(dtype), torch.randn(experts, features).to(weight_dtype)
        expected = router_logits(x, weight)
        for static in (False, True):
            assert torch.equal(router_logits(x.cuda(), weight.cuda(), static_weight=static).cpu(), expected)


def test_lines_that_begin_anywhere() -> None:
    x, weight = torch.randn(20, 517, device="cuda").bfloat16(), torch.randn(40, 515, device="cuda")
    x, weight = x[:, 3:513], weight[:, 1:511]
    assert torch.equal(router_logits(x, weight), router_logits(x.contiguous(), weight.contiguous()))


def test_a_token_is_the_same_in_any_batch() -> None:
    x, weight = torch.randn(600, 4096, device="cuda").bfloat16(), torch.randn(256, 4096, device="cuda")
    of_all = router_logits(x, weight)
    for tokens in (1, 2, 3, 8, 64, 300):
        assert torch.equal(router_logits(x[100 : 100 + tokens], weight), of_all[100 : 100 + tokens])
    assert torch.equal(router_logits(x[:1], weight[7:8]), of_all[:1, 7:8])


@pytest.mark.parametrize("static", [False, True])
def test_a_graph_reads_what_the_kernel_before_wrote(static: bool) -> None:
    """Launches overlap: x is waited for, also where weights are read ahead."""
    x, weight = torch.randn(4, 6144, device="cuda").bfloat16(), torch.randn(128, 6144, device="cuda")
    ops.moe_router_logits(x, weight, static)
    ops.moe_route(torch.randn(4, 128, device="cuda"), 8)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = []
        for _ in range(20):
            x.mul_(-0.5)
            logits = ops.moe_router_logits(x, weight, static)
            made.append((x.clone(), logits, ops.moe_route(logits, 8)[1]))
    for _ in range(3):
        x.copy_(torch.randn_like(x))
        graph.replay()
        for each, logits, ids in made:
            expected = ops.moe_router_logits(each, weight)
            assert torch.equal(logits, expected) and torch.equal(ids, ops.moe_route(expected, 8)[1])
