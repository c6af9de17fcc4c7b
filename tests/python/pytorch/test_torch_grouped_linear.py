"""GroupedLinear on CPU tensors: a loop over linear layers, gradients, and where an engine wants them."""

from __future__ import annotations

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch", minversion="2.10")

import grouped_reference  # noqa: E402
from grouped_reference import Range, bounds_of  # noqa: E402

from cleave.testing.group_sizes import ranges_of  # noqa: E402
from cleave.torch import GroupedLinear  # noqa: E402

SIZES = (5, 0, 1, 17)  # of 4 groups; there are 27 rows, the last 4 no group's
RANGES = ranges_of(SIZES)
TOTAL = 27
G, N, K = len(SIZES), 9, 7


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def loop(layer: GroupedLinear, x: torch.Tensor, ranges: list[Range]) -> torch.Tensor:
    """float64, differentiable in the layer's parameters."""
    bias = None if layer.bias is None else layer.bias.double()[:, None]
    return grouped_reference.product(x.double(), layer.weight.double().mT, ranges, bias)


@pytest.mark.parametrize("bias", [False, True])
def test_linear_is_a_loop_over_linears(bias: bool) -> None:
    layer = GroupedLinear(G, K, N, bias)
    x, offs = torch.randn(TOTAL, K, requires_grad=True), bounds_of(RANGES, "offs")["offs"]
    inputs = [x, *layer.parameters()]
    y, expected = layer(x, offs), loop(layer, x, RANGES)
    torch.testing.assert_close(y.double(), expected, rtol=1e-5, atol=1e-5)
    weights = torch.randn(y.shape)
    found = torch.autograd.grad((y * weights).sum(), inputs)
    for dx, wanted in zip(found, torch.autograd.grad((expected * weights).sum(), inputs), strict=True):
        torch.testing.assert_close(dx, wanted, rtol=1e-4, atol=1e-4)


def test_second_derivatives_of_linear() -> None:
    layer, offs = GroupedLinear(G, K, N), bounds_of(RANGES, "offs")["offs"]
    x = torch.randn(TOTAL, K, requires_grad=True)
    second = []
    for y in (layer(x, offs), loop(layer, x, RANGES)):
        (first,) = torch.autograd.grad((y**3).sum(), x, create_graph=True)
        second.append(torch.autograd.grad((first**2).sum(), layer.weight)[0])
    torch.testing.assert_close(*second, rtol=1e-4, atol=1e-2)


def test_linear_begins_like_nn_linear() -> None:
    layer = GroupedLinear(3, 400, 50)
    for parameter in layer.parameters():
        values = parameter.detach()
        assert values.abs().max() <= 0.05 and float(values.std()) == pytest.approx(0.0289, rel=0.2)
    assert GroupedLinear(3, 4, 5, device="meta", dtype=torch.half).weight.is_meta


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_linear_adds_to_main_grad(bias: bool, dtype: torch.dtype) -> None:
    plain = GroupedLinear(G, K, N, bias, dtype=dtype)
    fused = copy.deepcopy(plain)
    fused.accumulate_main_grad = True
    fused.weight.main_grad = torch.zeros_like(fused.weight, dtype=torch.float32)
    offs = bounds_of(RANGES, "offs")["offs"]
    total = torch.zeros(G, N, K, dtype=torch.float64)
    for _ in range(3):
        x = torch.randn(TOTAL, K, dtype=dtype, requires_grad=True)
        weights = torch.randn(TOTAL, N).to(dtype)
        (dx,) = torch.autograd.grad(plain(x, offs), x, weights)
        plain(x.detach(), offs).backward(weights)
        fused(x, offs).backward(weights)
        assert torch.equal(x.grad, dx)
        total += grouped_reference.product(weights.double().mT, x.detach().double(), RANGES)
    assert fused.weight.grad is None and not hasattr(fused.weight, "grad_added_to_main_grad")
    torch.testing.assert_close(fused.weight.main_grad.double(), total, rtol=1e-5, atol=1e-5)
    assert (fused.weight.main_grad[1] == 0).all()
    if bias:
        assert torch.equal(fused.bias.grad, plain.bias.grad)


@pytest.mark.parametrize("recipe", [None, "blockwise"])
def test_an_engine_s_hooks_see_a_gradient(recipe: str | None) -> None:
    """Megatron-LM's: one that waits for weight.grad, drops it, and leaves main_grad to the product that added to it."""
    layer = GroupedLinear(2, 128, 128, bias=False, recipe=recipe, accumulate_main_grad=True, dtype=torch.bfloat16)
    x, offs = torch.randn(48, 128, dtype=torch.bfloat16), torch.tensor([17, 17], dtype=torch.int32)
    weight = layer.weight
    weight.main_grad = torch.zeros_like(weight, dtype=torch.float32)
    seen = []

    def hook(parameter: torch.Tensor) -> None:
        seen.append(parameter.grad)
        if not parameter.grad_added_to_main_grad or getattr(parameter, "zero_out_wgrad", False):
            parameter.main_grad.add_(parameter.grad)
        parameter.grad = None

    weight.register_post_accumulate_grad_hook(hook)
    for step, options in enumerate(({}, {}, {"zero_out_wgrad": True}, {"overwrite_main_grad": True}), 1):
        weight.grad_added_to_main_grad = False
        for name, value in options.items():
            setattr(weight, name, value)
        layer(x, offs).sum().backward()
        assert len(seen) == step and seen[-1].shape == weight.shape and seen[-1].dtype == weight.dtype
        assert weight.grad is None and weight.grad_added_to_main_grad
        if step == 1:
            once = weight.main_grad.clone()
        torch.testing.assert_close(weight.main_grad, once * (1 if options.get("overwrite_main_grad") else step))
    assert once[0].any() and not once[1].any() and not seen[2].any()


@pytest.mark.parametrize("recipe", [None, "blockwise"])
def test_gradients_of_the_dtype_that_the_weight_asks_for(recipe: str | None) -> None:
    """Made in float32, and added up in it: not rounded to the weight's."""
    layer = GroupedLinear(2, 128, 128, bias=False, recipe=recipe, dtype=torch.bfloat16)
    if not hasattr(layer.weight, "grad_dtype"):
        pytest.skip("this torch has no Tensor.grad_dtype")
    x, offs = torch.randn(48, 128, dtype=torch.bfloat16), torch.tensor([17, 48], dtype=torch.int32)
    g = torch.randn_like(x)
    layer(x, offs).backward(g)
    rounded, layer.weight.grad = layer.weight.grad, None
    layer.weight.grad_dtype = torch.float32
    layer(x, offs).backward(g)
    once = layer.weight.grad.clone()
    assert once.dtype == torch.float32 and rounded.dtype == torch.bfloat16
    assert torch.equal(once.bfloat16(), rounded) and not torch.equal(once, rounded.float())
    layer(x, offs).backward(g)
    assert torch.equal(layer.weight.grad, 2 * once)


def test_main_grad_of_inputs_without_gradients() -> None:
    layer = GroupedLinear(G, K, N, bias=False, accumulate_main_grad=True)
    x, offs = torch.randn(TOTAL, K), bounds_of(RANGES, "offs")["offs"]
    with torch.no_grad():
        assert not layer(x, offs).requires_grad
    with pytest.raises(RuntimeError, match="weight has no main_grad; set"):
        layer(x, offs).sum().backward()
    layer.weight.main_grad = torch.zeros_like(layer.weight)
    layer(x, offs).sum().backward()
    expected = grouped_reference.product(torch.ones(N, TOTAL), x, RANGES)
    torch.testing.assert_close(layer.weight.main_grad, expected, rtol=1e-5, atol=1e-5)


def test_linear_state_dict() -> None:
    layer, other = GroupedLinear(G, K, N), GroupedLinear(G, K, N)
    other.load_state_dict(layer.state_dict())
    x, offs = torch.randn(TOTAL, K), bounds_of(RANGES, "offs")["offs"]
    assert torch.equal(layer(x, offs), other(x, offs))
    assert "num_groups=4, in_features=7, out_features=9, bias=True" in repr(layer)


@pytest.mark.parametrize("groups", [0, 1025, "4"])
def test_a_layer_has_as_many_groups_as_a_launch(groups: Any) -> None:
    with pytest.raises(ValueError, match=rf"num_groups is {groups!r}; it must be from 1 to 1024"):
        GroupedLinear(groups, 8, 16)


def test_layers_name_their_own_arguments() -> None:
    layer, offs = GroupedLinear(G, K, N), torch.zeros(G, dtype=torch.int32)
    with pytest.raises(ValueError, match=rf"x is \({TOTAL}, 3\); its last dimension must be in_features, {K}"):
        layer(torch.ones(TOTAL, 3), offs)
    with pytest.raises(ValueError, match=rf"offs is \({G - 1},\); it must be \({G},\), where each group ends"):
        layer(torch.ones(TOTAL, K), offs[1:])


def test_export() -> None:
    layer = GroupedLinear(G, K, N)
    x, offs = torch.randn(TOTAL, K), bounds_of(RANGES, "offs")["offs"]
    program = torch.export.export(layer, (x, offs))
    assert torch.equal(program.module()(x, offs), layer(x, offs))
