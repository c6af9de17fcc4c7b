"""What `cleave.prepare` has prepared runs with any number of tokens, inside a capture from the first call on."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", minversion="2.10")

import cleave  # noqa: E402
from cleave.torch import GroupedLinear, MoE, W8A8Linear  # noqa: E402


def captured(call):
    """What `call` makes, captured without a call before, which would be refused had anything to be compiled."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        made = call()
    graph.replay()
    torch.cuda.synchronize()
    return made


@pytest.mark.parametrize("activation", ["dynamic", 0.05])
def test_a_quantised_layer(activation):
    linear = torch.nn.Linear(1024, 1536, device="cuda", dtype=torch.bfloat16)
    layer = W8A8Linear.from_linear(linear, "int8", activation)
    made = cleave.prepare(torch.nn.Sequential(layer), (1, 700))
    assert made.products == 2
    assert made.kernels <= 30
    for tokens in (1, 2, 17, 63, 64, 100, 257, 699, 700):
        x = torch.randn(tokens, 1024, device="cuda", dtype=torch.bfloat16)
        with torch.no_grad():
            y = captured(lambda x=x: layer(x))
            expected = linear(x).float()
        assert (y.float() - expected).norm() < 0.03 * expected.norm()


def test_experts():
    layer = GroupedLinear(8, 512, 768, device="cuda", dtype=torch.bfloat16)
    cleave.prepare(layer, (1, 500))
    for tokens in (1, 33, 256, 499):
        x = torch.randn(tokens, 512, device="cuda", dtype=torch.bfloat16)
        ends = torch.linspace(0, tokens, 9, device="cuda")[1:].int()
        with torch.no_grad():
            y = captured(lambda x=x, ends=ends: layer(x, ends))
        groups = torch.repeat_interleave(torch.arange(8, device="cuda"), ends.diff(prepend=ends.new_zeros(1)))
        expected = torch.einsum("tk,tnk->tn", x.double(), layer.weight[groups].double()) + layer.bias[groups]
        assert (y.double() - expected).norm() < 0.01 * expected.norm()


def test_a_mixture():
    moe = MoE(8, 2, 256, 512, device="cuda", dtype=torch.bfloat16)
    cleave.prepare(moe, (1, 5000))
    for tokens in (3, 50, 300, 5000):  # the last one's choices are sorted by two kernels
        x = torch.randn(tokens, 256, device="cuda", dtype=torch.bfloat16)
        with torch.no_grad():
            y = captured(lambda x=x: moe(x))
            assert torch.equal(y, moe(x))


def test_a_product():
    n, k = 1152, 2048
    b = torch.randn(n, k, device="cuda", dtype=torch.bfloat16).t()
    example = torch.empty(16, k, device="cuda", dtype=torch.bfloat16)
    cleave.prepare(cleave.plan_gemm(example, b), (1, 1000))
    for m in (1, 7, 16, 17, 500, 1000):
        a = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
        d = captured(lambda a=a: torch.ops.cleave.gemm(a, b))
        expected = a.double() @ b.double()
        assert (d.double() - expected).norm() < 0.01 * expected.norm()
