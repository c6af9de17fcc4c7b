"""Gradients of convolutions and groups beside an epilogue function on the GPU, against torch's own in float64."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", minversion="2.10")

import cleave.torch  # noqa: E402

F = torch.nn.functional


@cleave.epilogue
def block(acc, row: cleave.row, residual: cleave.matrix, scale: cleave.scalar):
    pre = acc * scale + row
    return cleave.outputs(d=cleave.silu(pre) + residual, norm=cleave.sum_of_squares(pre, over="columns"))


def assert_gradients(got: Any, want: Any, tensors: list[Any], doubles: list[Any]) -> None:
    """Outputs are weighted at random; errors may be those of float16 operands."""
    # Positive, so that a scalar's gradient, a sum of thousands of rounded values, does not cancel.
    weights = [torch.randn_like(x).abs() / x.numel() ** 0.5 for x in want]
    mine = sum((x * w.to(x.dtype)).sum() for x, w in zip(got, weights, strict=True))
    theirs = sum((x * w).sum() for x, w in zip(want, weights, strict=True))
    gradients = torch.autograd.grad(mine, tensors), torch.autograd.grad(theirs, doubles)
    for i, (x, y) in enumerate(zip(*gradients, strict=True)):
        assert x.shape == y.shape
        atol = 1e-2 * y.abs().max().item()
        torch.testing.assert_close(x.double(), y, rtol=2e-2, atol=atol, msg=lambda said, i=i: f"tensor {i}: {said}")


def leaf(*shape: int, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    x = torch.randn(shape, device="cuda", dtype=dtype)
    return (x.to(memory_format=torch.channels_last) if x.dim() == 4 else x).requires_grad_()


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("stride", [1, 2])
def test_convolutions(stride: int, compiled: bool) -> None:
    torch.compiler.reset()
    torch.manual_seed(stride)
    x, w = leaf(2, 64, 14, 14), leaf(32, 64, 3, 3)
    size = 14 // stride
    row, residual = leaf(32, dtype=torch.float32), leaf(2, 32, size, size)
    scale = torch.tensor(0.05, device="cuda", requires_grad=True)
    tensors = [x, w, row, residual, scale]

    def run(x: Any, w: Any, row: Any, residual: Any, scale: Any) -> Any:
        function = block(row=row, residual=residual, scale=scale)
        return cleave.torch.conv2d(x, w, stride=stride, padding=1, epilogue=function)

    got = (torch.compile(run, fullgraph=True) if compiled else run)(*tensors)
    doubles = [t.detach().double().requires_grad_() for t in tensors]
    pre = F.conv2d(doubles[0], doubles[1], stride=stride, padding=1) * doubles[4] + doubles[2][:, None, None]
    assert_gradients(got, (F.silu(pre) + doubles[3], (pre * pre).sum(1, keepdim=True)), tensors, doubles)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("by_group", [False, True])
def test_groups_of_rows(by_group: bool, compiled: bool) -> None:
    torch.compiler.reset()
    torch.manual_seed(2)
    ends = torch.tensor([100, 100, 300], dtype=torch.int32, device="cuda")
    a, b = leaf(320, 128), leaf(3, 128, 64)
    row = leaf(*((3, 64) if by_group else (64,)), dtype=torch.float32)
    residual, scale = leaf(320, 64), leaf(*((3,) if by_group else ()), dtype=torch.float32)
    tensors = [a, b, row, residual, scale]

    def run(a: Any, b: Any, row: Any, residual: Any, scale: Any) -> Any:
        return cleave.torch.grouped_gemm(a, b, ends, epilogue=block(row=row, residual=residual, scale=scale))

    got = (torch.compile(run, fullgraph=True) if compiled else run)(*tensors)
    doubles = [t.detach().double().requires_grad_() for t in tensors]
    x, y, r, m, s = doubles
    parts = []
    for g, (begin, end) in enumerate(((0, 100), (100, 100), (100, 300))):
        pre = x[begin:end] @ y[g] * (s[g] if by_group else s) + (r[g] if by_group else r)
        parts.append((F.silu(pre) + m[begin:end], (pre * pre).sum(1)))
    want = tuple(torch.cat(part) for part in zip(*parts, strict=True))
    assert_gradients([made[:300] for made in got], want, tensors, doubles)
