"""Reductions of D by epilogue functions in torch: gradients against torch's own in float64, and torch.compile."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", minversion="2.10")

import cleave.torch  # noqa: E402


@cleave.epilogue
def bent(acc, bias: cleave.row, scale: cleave.scalar):
    """What is reduced is D: the derivative is torch's, of D."""
    x = cleave.tanh(acc * scale + bias)
    return cleave.outputs(d=x, norm=cleave.sum_of_squares(x, over="columns"), largest=cleave.absmax(x))


@cleave.epilogue
def cut(acc, bias: cleave.row, scale: cleave.scalar):
    """What is reduced is no output: the derivative reads the sum, which is made again."""
    x = acc * scale + bias
    return cleave.outputs(d=cleave.relu(x), of_bias=cleave.sum_of_squares(x, over="rows"), all=cleave.sum(acc * acc))


def expected(function: Any, a: Any, b: Any, bias: Any, scale: Any) -> tuple[Any, ...]:
    acc = a @ b
    keep = acc.dim() == 3
    if function is bent:
        x = torch.tanh(acc * scale + bias)
        return x, (x * x).sum(-1, keepdim=keep), x.abs().amax((-2, -1), keepdim=keep)
    x = acc * scale + bias
    return x.relu(), (x * x).sum(-2, keepdim=keep), (acc * acc).sum((-2, -1), keepdim=keep)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("batch", [(), (1,), (2,)])
@pytest.mark.parametrize("function", [bent, cut], ids=lambda function: function.__name__)
def test_gradients(function: Any, batch: tuple[int, ...], compiled: bool) -> None:
    torch.compiler.reset()  # else one code object meets too many kinds of arguments
    torch.manual_seed(0)
    tensors = [torch.randn(shape) for shape in ((*batch, 20, 30), (*batch, 30, 24), (24,), ())]
    tensors = [x.requires_grad_() for x in tensors]

    def run(a: Any, b: Any, bias: Any, scale: Any) -> Any:
        return cleave.torch.gemm(a, b, epilogue=function(bias=bias, scale=scale))

    call = torch.compile(run, fullgraph=True, backend="aot_eager") if compiled else run
    made = call(*tensors)
    exact = [x.detach().double().requires_grad_() for x in tensors]
    wanted = expected(function, *exact)
    weights = [torch.randn_like(x) for x in wanted]
    loss = wanted[0].new_zeros(())
    mine = made[0].new_zeros(())
    for got, want, weight in zip(made, wanted, weights, strict=True):
        assert got.shape == want.shape and got.dtype == torch.float32
        torch.testing.assert_close(got.double(), want, rtol=1e-4, atol=1e-4)
        if got.requires_grad:
            loss, mine = loss + (want * weight).sum(), mine + (got * weight.float()).sum()
    assert [x.requires_grad for x in made] == [True, True, function is cut]
    for got, want in zip(torch.autograd.grad(mine, tensors), torch.autograd.grad(loss, exact), strict=True):
        torch.testing.assert_close(got.double(), want, rtol=1e-3, atol=1e-3)


def test_a_backward_of_ones_own() -> None:
    @cleave.epilogue
    def scaled(acc, factor: cleave.scalar):
        return cleave.outputs(d=acc * factor, norm=cleave.sum_of_squares(acc, over="columns"))

    @scaled.backward
    def _(acc, factor, grad_d, grad_norm):
        return {"acc": grad_d * factor + 2.0 * acc * grad_norm}

    a, b = torch.randn(6, 8, requires_grad=True), torch.randn(8, 5)
    d, norm = cleave.torch.gemm(a, b, epilogue=scaled(factor=0.5))
    weight = torch.randn(6)
    (got,) = torch.autograd.grad(d.sum() + (norm * weight).sum(), a)
    acc = a @ b
    (want,) = torch.autograd.grad((acc * 0.5).sum() + ((acc * acc).sum(1) * weight).sum(), a)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


def test_arrays_that_the_package_makes() -> None:
    """cleave.gemm and cleave.conv2d, which make tensors by torch itself."""
    a, b = torch.randn(7, 8), torch.randn(8, 5)
    d, norm, largest = cleave.gemm(a, b, epilogue=bent(bias=torch.zeros(5), scale=1.0))
    assert largest.shape == () and largest == d.abs().max()
    torch.testing.assert_close(norm, (d * d).sum(1))
    x, w = (torch.randn(shape).to(memory_format=torch.channels_last) for shape in ((2, 4, 6, 5), (3, 4, 3, 3)))
    y, norm, largest = cleave.conv2d(x, w, padding=1, epilogue=bent(bias=torch.zeros(3), scale=1.0))
    assert largest.shape == () and largest == y.abs().max()
    torch.testing.assert_close(norm, (y * y).sum(1, keepdim=True))


def test_groups_compile() -> None:
    a, b, offs = torch.randn(12, 8), torch.randn(2, 8, 5), torch.tensor([3, 9], dtype=torch.int32)

    def run(a: Any, b: Any, offs: Any) -> Any:
        return cleave.torch.grouped_gemm(a, b, offs, epilogue=bent(bias=torch.zeros(5), scale=1.0))

    for made in (run(a, b, offs), torch.compile(run, fullgraph=True, backend="aot_eager")(a, b, offs)):
        d, norm, largest = made
        torch.testing.assert_close(norm, (d**2).sum(1))
        assert torch.equal(largest, torch.stack([d[:3].abs().max(), d[3:9].abs().max()]))


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("dimension", ["rows", "columns"])
def test_gradients_of_what_each_group_comes_to(dimension: str, compiled: bool) -> None:
    torch.compiler.reset()
    torch.manual_seed(1)
    rows = dimension == "rows"
    a = torch.randn((12, 8) if rows else (2, 5, 8), requires_grad=True)
    b = torch.randn((2, 8, 5) if rows else (8, 12), requires_grad=True)
    scale, offs = torch.randn((), requires_grad=True), torch.tensor([3, 9], dtype=torch.int32)

    @cleave.epilogue
    def summed(acc, scale: cleave.scalar):
        x = acc * scale
        return cleave.outputs(d=x, lines=cleave.sum_of_squares(x, over=dimension), all=cleave.sum(x * acc))

    def run(a: Any, b: Any, scale: Any) -> Any:
        return cleave.torch.grouped_gemm(a, b, offs, epilogue=summed(scale=scale))

    call = torch.compile(run, fullgraph=True, backend="aot_eager") if compiled else run
    made = call(a, b, scale)
    exact = [x.detach().double().requires_grad_() for x in (a, b, scale)]
    ends = [slice(0, 3), slice(3, 9)]
    parts = [exact[0][end] @ exact[1][g] if rows else exact[0][g] @ exact[1][:, end] for g, end in enumerate(ends)]
    along = 0 if rows else 1
    wanted = (
        torch.cat(parts, along) * exact[2],
        torch.stack([((x * exact[2]) ** 2).sum(along) for x in parts]),
        torch.stack([(x * x * exact[2]).sum() for x in parts]),
    )
    d = made[0][:9] if rows else made[0][:, :9]
    mine, loss = torch.zeros(()), torch.zeros(())
    for got, want in zip((d, *made[1:]), wanted, strict=True):
        torch.testing.assert_close(got.double(), want, rtol=1e-4, atol=1e-4)
        weight = torch.randn_like(want)
        mine, loss = mine + (got * weight.float()).sum(), loss + (want * weight).sum()
    for got, want in zip(torch.autograd.grad(mine, (a, b, scale)), torch.autograd.grad(loss, exact), strict=True):
        torch.testing.assert_close(got.double(), want, rtol=1e-3, atol=1e-3)
