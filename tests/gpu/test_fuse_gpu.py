"""cleave.torch.fuse on CUDA tensors: beside the layers before, in graphs, under torch.compile, prepared."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", minversion="2.10")

from decoder import WIDTH, Model  # noqa: E402
from torch import Tensor, nn  # noqa: E402

import cleave  # noqa: E402
from cleave.torch import fuse, replace_linears  # noqa: E402

dtypes = pytest.mark.parametrize("dtype", ["int8", "float8_e4m3fn"])


@pytest.fixture(autouse=True)
def inference() -> Any:
    torch.manual_seed(0)
    with torch.no_grad():
        yield


def made(dtype: str) -> nn.Module:
    model = Model().cuda()
    replace_linears(model, dtype, skip="head")
    return model.bfloat16().eval()


def draw(batch: int = 2, tokens: int = 7) -> Tensor:
    return torch.randn(batch, tokens, WIDTH, device="cuda").bfloat16()


@dtypes
def test_beside_the_layers_before(dtype: str) -> None:
    model, x = made(dtype), draw(4, 300)
    before = model(x)
    report = fuse(model)
    assert not report.left
    y = model(x)
    assert (y - before).norm() < 0.05 * before.norm()
    assert torch.equal(model(x), y)
    report.undo()
    assert torch.equal(model(x), before)


@dtypes
def test_fused_before_it_moves(dtype: str) -> None:
    model, x = made(dtype), draw()
    before = model(x)
    model.cpu()
    report = fuse(model)
    y = model(x.cpu())
    assert (model.cuda()(x).cpu() - y).norm() < 0.02 * y.norm()
    report.undo()
    assert torch.equal(model(x), before)


@dtypes
def test_prepared_captured_and_replayed(dtype: str) -> None:
    model, x = made(dtype), draw()
    fuse(model)
    cleave.prepare(model, tokens=(14, 14))
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):  # what is not Cleave's wants a first run
        expected = model(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = model(x)
    for _ in range(20):
        y.fill_(float("nan"))
        graph.replay()
        assert torch.equal(y, expected)
    x.normal_()
    graph.replay()
    assert torch.equal(y, model(x))


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_compiles_as_one_graph(mode: str) -> None:
    torch.compiler.reset()
    model = made("float8_e4m3fn")
    fuse(model)
    compiled = torch.compile(model, fullgraph=True, mode=mode)
    for _ in range(4):
        x = draw()
        torch.compiler.cudagraph_mark_step_begin()
        y = compiled(x).clone()
        expected = model(x)
        assert (y - expected).norm() < 0.02 * expected.norm()
