"""torch.ops.cleave under torch.autocast: operands of any floats are cast, as those of torch's own products are."""

from __future__ import annotations

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch", minversion="2.10")
pytest.importorskip("cleave.torch", exc_type=ImportError)

import cleave.torch  # noqa: E402

ops = torch.ops.cleave
both = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


@cleave.epilogue
def doubled(acc: Any, r: cleave.matrix) -> Any:
    return acc * 2 + r


@both
def test_products_are_those_of_cast_operands(dtype: Any) -> None:
    a, b, bias = torch.randn(6, 8), torch.randn(8, 5).bfloat16(), torch.randn(5)
    weights, offs = torch.randn(3, 8, 5), torch.tensor([1, 4, 6], dtype=torch.int32)
    r = torch.randn(6, 5)
    with torch.autocast("cpu", dtype):
        made = [ops.gemm(a, b, bias), ops.gemm(b=b, a=a), ops.grouped_gemm(a, weights, offs)]
        made.append(cleave.torch.gemm(a, b, epilogue=doubled(r=r)))
    x, y = a.to(dtype), b.to(dtype)
    expected = [ops.gemm(x, y, bias), ops.gemm(x, y), ops.grouped_gemm(x, weights.to(dtype), offs)]
    expected.append(cleave.torch.gemm(x, y, epilogue=doubled(r=r)))
    for d, same in zip(made, expected, strict=True):
        assert d.dtype == dtype and torch.equal(d, same)


@both
def test_convolutions_are_those_of_cast_operands(dtype: Any) -> None:
    x = torch.randn(2, 8, 6, 6).to(memory_format=torch.channels_last)
    w = torch.randn(16, 8, 3, 3).to(memory_format=torch.channels_last)
    with torch.autocast("cpu", dtype):
        y = ops.conv(x, w)
    assert torch.equal(y, ops.conv(x.to(dtype), w.to(dtype)))


def test_gradients_have_the_parameters_types() -> None:
    a, b = torch.randn(6, 8, requires_grad=True), torch.randn(8, 5, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        d = ops.gemm(a, b)
    d.float().square().sum().backward()
    x, y = (t.detach().bfloat16().requires_grad_() for t in (a, b))
    ops.gemm(x, y).float().square().sum().backward()
    assert a.grad.dtype == b.grad.dtype == torch.float32
    assert torch.equal(a.grad, x.grad.float()) and torch.equal(b.grad, y.grad.float())


@both
@pytest.mark.parametrize("recipe", [None, "blockwise"])
def test_grouped_layers_train_weights_of_float32(dtype: Any, recipe: str | None) -> None:
    """The layer of cast weights, but that the gradients of weights are not rounded."""
    layer = cleave.torch.GroupedLinear(3, 128, 128, bias=False, recipe=recipe)
    x, g = torch.randn(48, 128, requires_grad=True), torch.randn(48, 128).to(dtype)
    offs = torch.tensor([11, 11, 48], dtype=torch.int32)
    with torch.autocast("cpu", dtype):
        y = layer(x, offs)
    y.backward(g)
    cast, given = copy.deepcopy(layer).to(dtype), x.detach().to(dtype).requires_grad_()
    cast.zero_grad()
    expected = cast(given, offs)
    expected.backward(g)
    if recipe is None:  # whose weights are quantised as they are
        assert torch.equal(y, expected) and torch.equal(x.grad, given.grad.float())
    torch.testing.assert_close(y, expected, rtol=0.05, atol=0.05)
    made, rounded = layer.weight.grad, cast.weight.grad
    assert made.dtype == torch.float32 and torch.equal(made.to(dtype), rounded)
    assert not torch.equal(made, rounded.float())


def test_experts_train_weights_of_float32() -> None:
    moe = cleave.torch.MoE(4, 2, 16, 8)
    x = torch.randn(24, 16)
    made = []
    for cast in (False, True):
        moe.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=cast):
            y = moe(x)
        y.float().square().sum().backward()
        made.append([y.float(), *(p.grad.clone() for p in moe.parameters())])
    for y, z in zip(*made, strict=True):
        assert y.dtype == z.dtype == torch.float32 and (y - z).norm() < 0.03 * y.norm()


def test_8_bits_scales_and_an_out_stay() -> None:
    q, scale = cleave.quantize(torch.randn(6, 128), "int8", "row")
    b, scale_b = cleave.quantize(torch.randn(5, 128), "int8", "row")
    a, out = torch.randn(6, 8), torch.empty(6, 5)
    free = ops.scaled_gemm(q, b.t(), scale, scale_b.t(), None, torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(ops.scaled_gemm(q, b.t(), scale, scale_b.t(), None, torch.float32), free)
        ops.gemm.out(a, torch.randn(8, 5), out=out)  # as torch.mm(out=): float32
        with torch.autocast("cpu", enabled=False):
            assert ops.gemm(a, a.t()).dtype == torch.float32


def test_compiled() -> None:
    a, b = torch.randn(6, 8), torch.randn(8, 5)

    def product(a: Any, b: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return ops.gemm(a, b)

    compiled = torch.compile(product, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(a, b), product(a, b)) and compiled(a, b).dtype == torch.bfloat16
