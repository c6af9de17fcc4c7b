"""cleave.torch.Float8Linear, and GroupedLinear with a recipe, on CUDA tensors: what the CPU backend gives, graphs,
torch.compile."""

from __future__ import annotations

from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch", minversion="2.10")

from torch import Tensor, nn  # noqa: E402

from cleave.torch import Float8Linear, GroupedLinear, MoE  # noqa: E402

RECIPES = ("blockwise", "rowwise", "rowwise_with_gw_hp", "tensorwise")
recipes = pytest.mark.parametrize("recipe", RECIPES)


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def step(layer: Callable[..., Tensor], x: Tensor, dy: Tensor, *bounds: Tensor) -> list[Tensor]:
    x = x.detach().requires_grad_()
    y = layer(x, *bounds)
    module = getattr(layer, "_orig_mod", layer)
    return [y.detach().clone(), *torch.autograd.grad(y, [x, *module.parameters()], dy)]


# Sums of 8-bit floats have 14 bits in the tensor cores, which take 32 products at a time: a block of 128 is four sums,
# and what comes behind is float32's. Other recipes' stay there for all of K, and their float32 weight gradients may be
# of tf32.
BLOCK_SUMS, LONG_SUMS = 4 * 2.0**-14, 1e-3


def check(layer: nn.Module, x: Tensor, dy: Tensor, *bounds: Tensor) -> None:
    """As on the CPU, where operands are the same bit by bit: but for the sums, and one rounding."""
    sums = BLOCK_SUMS if layer.recipe == "blockwise" else LONG_SUMS
    made = step(layer.cuda(), x.cuda(), dy.cuda(), *(each.cuda() for each in bounds))
    expected = step(layer.cpu(), x, dy, *bounds)
    for one, other in zip(made, expected, strict=True):
        error = (one.cpu().double() - other.double()).norm()
        assert error <= (sums + (4e-3 if other.dtype == torch.bfloat16 else 0.0)) * other.double().norm()


@recipes
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("tokens", "k", "n"), [(1024, 512, 384), (304, 4096, 256), (33, 130, 70)])
def test_agrees_with_the_cpu(recipe: str, dtype: torch.dtype, tokens: int, k: int, n: int) -> None:
    for grad_dtype in ("float8_e4m3fn", "float8_e5m2"):
        layer = Float8Linear(k, n, recipe=recipe, grad_dtype=grad_dtype, dtype=dtype)
        check(layer, torch.randn(tokens, k).to(dtype), torch.randn(tokens, n).to(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bias", [False, True])
def test_groups_agree_with_the_cpu(dtype: torch.dtype, bias: bool) -> None:
    for ends in ((100, 100, 133, 290), (0, 0, 300, 300), (128, 256, 256, 256)):
        layer = GroupedLinear(4, 512, 384, bias, recipe="blockwise", dtype=dtype)
        x, dy = torch.randn(300, 512).to(dtype), torch.randn(300, 384).to(dtype)
        check(layer, x, dy, torch.tensor(ends, dtype=torch.int32))


@recipes
def test_a_captured_step_reads_what_there_is_by_then(recipe: str) -> None:
    layer = Float8Linear(512, 256, recipe=recipe, device="cuda", dtype=torch.bfloat16)
    x, dy = (torch.randn(128, n, device="cuda", dtype=torch.bfloat16) for n in (512, 256))
    step(layer, x, dy)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step(layer, x, dy)
    for _ in range(3):
        x.normal_(), dy.normal_()
        with torch.no_grad():
            layer.weight.normal_(std=0.02)
        graph.replay()
        for one, other in zip(captured, step(layer, x, dy), strict=True):
            assert torch.equal(one, other)


def test_a_captured_step_of_groups_serves_other_groups() -> None:
    layer = GroupedLinear(4, 512, 384, recipe="blockwise", device="cuda", dtype=torch.bfloat16)
    x, dy = (torch.randn(300, n, device="cuda", dtype=torch.bfloat16) for n in (512, 384))
    offs = torch.tensor((10, 100, 200, 300), dtype=torch.int32, device="cuda")
    step(layer, x, dy, offs)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step(layer, x, dy, offs)
    for ends in ((0, 0, 0, 300), (128, 129, 130, 131), (0, 0, 0, 0)):
        offs.copy_(torch.tensor(ends))
        graph.replay()
        for one, other in zip(captured, step(layer, x, dy, offs), strict=True):
            assert torch.equal(one, other)


@recipes
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_compiled_training(recipe: str, mode: str) -> None:
    torch.compiler.reset()
    layer = Float8Linear(512, 256, recipe=recipe, device="cuda", dtype=torch.bfloat16)
    compiled = torch.compile(layer, fullgraph=True, mode=mode)
    for _ in range(4):
        x, dy = (torch.randn(128, n, device="cuda", dtype=torch.bfloat16) for n in (512, 256))
        torch.compiler.cudagraph_mark_step_begin()
        made = step(compiled, x, dy)
        for one, other in zip(made, step(layer, x, dy), strict=True):
            torch.testing.assert_close(one, other, rtol=2e-2, atol=2e-2)


def test_a_mixture_repeats_bit_by_bit() -> None:
    moe = MoE(8, 2, 512, 768, recipe="blockwise", device="cuda", dtype=torch.bfloat16)
    x, dy = (torch.randn(777, 512, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    first = step(moe, x, dy)
    for _ in range(10):
        assert all(torch.equal(one, other) for one, other in zip(step(moe, x, dy), first, strict=True))
    with torch.no_grad():
        y = moe(x)
    assert (y - first[0]).norm() < 0.05 * first[0].norm()  # whose first product stores gates and ups
