"""Functions of acc.gate and acc.up with gradients, and MoE's SwiGLU in its products, on the GPU, against float64."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", minversion="2.10")

from swiglu_checks import exact_with_bounds, gradients, layer, operands, unfused  # noqa: E402

import cleave.torch  # noqa: E402


@cleave.epilogue
def limited(acc, limit: cleave.scalar, shift: cleave.row):
    gate = cleave.minimum(acc.gate, limit)
    return gate * cleave.sigmoid(1.702 * gate) * (cleave.clamp(acc.up, -limit, limit) + 1.0) + shift


def exactly(a: Any, b: Any, shift: Any) -> Any:
    gate, up = (a @ b).chunk(2, -1)
    gate = gate.clamp(max=0.5)
    return gate * torch.sigmoid(1.702 * gate) * (up.clamp(-0.5, 0.5) + 1) + shift


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(("m", "n", "k"), [(512, 768, 256), (17, 24, 256), (4096, 512, 1024)])
def test_gradients_of_gates(m: int, n: int, k: int, compiled: bool) -> None:
    shapes = (m, k), (k, 2 * n), (n,)
    tensors = [(torch.randn(shape, device="cuda") / k**0.25).bfloat16().requires_grad_() for shape in shapes]

    def run(a: Any, b: Any, shift: Any) -> Any:
        return cleave.torch.gemm(a, b, epilogue=limited(limit=0.5, shift=shift))

    torch.compiler.reset()
    d = (torch.compile(run, fullgraph=True) if compiled else run)(*tensors)
    doubles = [x.detach().double().requires_grad_() for x in tensors]
    wanted = exactly(*doubles)
    weight = torch.randn_like(d)
    made = torch.autograd.grad(d, tensors, weight), torch.autograd.grad(wanted, doubles, weight.double())
    for got, want in zip((d, *made[0]), (wanted, *made[1]), strict=True):
        assert (got.double() - want).norm() <= 2**-7 * want.norm()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_swiglu_of_a_mixture(dtype: Any) -> None:
    moe, (rows, offs, grad) = layer(dtype).cuda(), operands(dtype, device="cuda")
    exact = exact_with_bounds(moe, rows, grad)
    for got, (value, bound) in zip(gradients(moe, rows, offs, grad), exact, strict=True):
        assert ((got.double() - value).abs() <= bound).all()


def test_swiglu_of_a_mixture_in_8_bits() -> None:
    moe = layer(recipe="blockwise", hidden=128, features=128).cuda()
    rows, offs, grad = operands(features=128, device="cuda")
    exact = exact_with_bounds(moe, rows, grad)
    made = (gradients(each, rows, offs, grad) for each in (moe, unfused(moe)))
    for got, other, (value, _) in zip(*made, exact, strict=True):
        error, usual = ((x.double() - value).norm() / value.norm() for x in (got, other))
        assert error < 0.1 and error < 1.05 * usual
