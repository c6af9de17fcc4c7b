"""cleave.torch.Float8Linear, and GroupedLinear and MoE with a recipe, on CPU tensors; examples/float8/train.py."""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch", minversion="2.10")

from functorch.compile import min_cut_rematerialization_partition  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch._dynamo.backends.common import aot_autograd  # noqa: E402

import cleave  # noqa: E402
from cleave.torch import (  # noqa: E402
    Float8Linear,
    GroupedLinear,
    MoE,
    convert_to_float8_training,
    replace_linears,
)

RECIPES = ("blockwise", "rowwise", "rowwise_with_gw_hp", "tensorwise")
GRANULARITY = {"blockwise": ("block_1x128", "block_128x128"), "tensorwise": ("tensor", "tensor")}  # else rows
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
# Half a step, as a share of a value and of the smallest normal scale: of 3 and of 2 bits of mantissa.
ROUNDOFF = {E4M3: (2.0**-4, 2.0**-10), E5M2: (2.0**-3, 2.0**-17)}
LARGEST = {E4M3: 448.0, E5M2: 57344.0}
EPS = {torch.float32: 2.0**-24, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}

recipes = pytest.mark.parametrize("recipe", RECIPES)
dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
grads = pytest.mark.parametrize("grad_dtype", [E4M3, E5M2], ids=str)


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def granularity(recipe: str, of_weight: bool) -> str:
    return GRANULARITY.get(recipe, ("row", "row"))[of_weight]


def dequantised(x: Tensor, dtype: torch.dtype, kind: str) -> Tensor:
    """x as 8 bits have it, in float64: by cleave.quantize, element by element."""
    q, scale = cleave.quantize(x.contiguous(), dtype, kind)
    scale = scale.double()
    if kind.startswith("block"):
        tall = 128 if kind == "block_128x128" else 1
        scale = scale.repeat_interleave(tall, 0).repeat_interleave(128, 1)[: x.shape[0], : x.shape[1]]
    return q.double() * scale


def rounding(x: Tensor, dtype: torch.dtype, kind: str) -> Tensor:
    """What an element of x may be off by in 8 bits: half a step of its own, or of the scale's subnormals."""
    share, least = ROUNDOFF[dtype]
    magnitude = x.double().abs()
    if kind == "tensor":
        largest = magnitude.max().expand_as(magnitude)
    elif kind == "row":
        largest = magnitude.amax(1, keepdim=True).expand_as(magnitude)
    else:
        tall = 128 if kind == "block_128x128" else 1
        largest = torch.zeros_like(magnitude)
        for i, j in itertools.product(range(0, x.shape[0], tall), range(0, x.shape[1], 128)):
            if tall == 1:
                largest[:, j : j + 128] = magnitude[:, j : j + 128].amax(1, keepdim=True)
            else:
                largest[i : i + tall, j : j + 128] = magnitude[i : i + tall, j : j + 128].max()
    return (share * magnitude + least * largest / LARGEST[dtype]) * (1 + 1e-6)


def bound(a: Tensor, b: Tensor, off_a: Tensor, off_b: Tensor, dtype: torch.dtype) -> Tensor:
    """How far a @ b.T may be off whose operands are off by so much, summed in float32 and rounded once."""
    a, b = a.double().abs(), b.double().abs()
    of_operands = off_a @ b.T + a @ off_b.T + off_a @ off_b.T
    largest = (a + off_a) @ (b + off_b).T
    return of_operands + largest * (a.shape[1] + 8) * EPS[torch.float32] + (a @ b.T + of_operands) * EPS[dtype]


def run(layer: nn.Module, x: Tensor, dy: Tensor) -> list[Tensor]:
    """y, dx, and the gradients of the parameters."""
    x = x.detach().requires_grad_()
    y = layer(x)
    return [y.detach(), *torch.autograd.grad(y, [x, *layer.parameters()], dy)]


# --- Float8Linear ---


@recipes
@grads
@pytest.mark.parametrize(
    ("tokens", "k", "n", "dtype"), [(96, 256, 144, torch.float32), (33, 130, 70, torch.bfloat16)], ids=str
)
def test_within_the_bounds_of_float64(
    recipe: str, grad_dtype: torch.dtype, tokens: int, k: int, n: int, dtype: torch.dtype
) -> None:
    layer = Float8Linear(k, n, dtype=dtype, recipe=recipe, grad_dtype=grad_dtype)
    x = (torch.randn(tokens, k) * torch.randn(tokens, 1).exp()).to(dtype)
    dy = (torch.randn(tokens, n) * torch.randn(tokens, 1).exp() * 1e-3).to(dtype)
    w, b = layer.weight.detach(), layer.bias.detach()
    y, dx, dw, db = run(layer, x, dy)
    of_tokens, of_weight = granularity(recipe, False), granularity(recipe, True)

    limit = bound(x, w, rounding(x, E4M3, of_tokens), rounding(w, E4M3, of_weight), dtype)
    exact = x.double() @ w.double().T + b.double()
    assert ((y.double() - exact).abs() <= limit + b.double().abs() * 2 * EPS[dtype]).all()

    off_dy = rounding(dy, grad_dtype, of_tokens)
    limit = bound(dy, w.T, off_dy, rounding(w, E4M3, of_weight).T, dtype)
    if of_weight == "row":  # of the weight transposed
        limit = bound(dy, w.T, off_dy, rounding(w.T, E4M3, "row"), dtype)
    assert ((dx.double() - dy.double() @ w.double()).abs() <= limit).all()

    off_dy, off_x = rounding(dy.T, grad_dtype, of_tokens), rounding(x.T, E4M3, of_tokens)
    if recipe == "rowwise_with_gw_hp":
        off_dy, off_x = torch.zeros_like(off_dy), torch.zeros_like(off_x)
    assert ((dw.double() - dy.double().T @ x.double()).abs() <= bound(dy.T, x.T, off_dy, off_x, dtype)).all()
    torch.testing.assert_close(db, dy.double().sum(0).to(dtype), rtol=2 * EPS[dtype] + 1e-5, atol=1e-6)


@recipes
@grads
def test_the_formula(recipe: str, grad_dtype: torch.dtype) -> None:
    """Exactly: each operand quantised along what is summed over, multiplied, scaled, rounded once."""
    layer = Float8Linear(256, 192, recipe=recipe, grad_dtype=grad_dtype)
    x, dy = torch.randn(160, 256), torch.randn(160, 192)
    w = layer.weight.detach()
    y, dx, dw, _ = run(layer, x, dy)
    of_tokens, of_weight = granularity(recipe, False), granularity(recipe, True)
    expected_y = dequantised(x, E4M3, of_tokens) @ dequantised(w, E4M3, of_weight).T + layer.bias
    expected_dx = dequantised(dy, grad_dtype, of_tokens) @ dequantised(w.T, E4M3, of_weight).T
    expected_dw = dequantised(dy.T, grad_dtype, of_tokens) @ dequantised(x.T, E4M3, of_tokens).T
    if recipe == "rowwise_with_gw_hp":
        expected_dw = dy.double().T @ x.double()
    for made, expected in ((y, expected_y), (dx, expected_dx), (dw, expected_dw)):
        torch.testing.assert_close(made.double(), expected, rtol=1e-5, atol=2e-5)


@recipes
def test_only_the_gradients_that_are_wanted(recipe: str) -> None:
    layer = Float8Linear(128, 64, recipe=recipe)
    x, dy = torch.randn(32, 128), torch.randn(32, 64)
    everything = run(layer, x, dy)
    layer.weight.requires_grad_(False)
    tracked = x.clone().requires_grad_()
    dx, db = torch.autograd.grad(layer(tracked), [tracked, layer.bias], dy)
    assert torch.equal(dx, everything[1]) and torch.equal(db, everything[3])
    layer.weight.requires_grad_(True)
    (dw,) = torch.autograd.grad(layer(x), [layer.weight], dy)
    assert torch.equal(dw, everything[2])
    with torch.no_grad():
        y = layer(x)
    assert torch.equal(y, everything[0]) and not y.requires_grad


def test_float32_masters_get_the_sums_under_autocast() -> None:
    layer, x = Float8Linear(128, 64), torch.randn(2, 16, 128)
    with torch.autocast("cpu", torch.bfloat16):
        y = layer(x)
    assert y.dtype == torch.bfloat16 and y.shape == (2, 16, 64)
    y.sum().backward()
    assert layer.weight.grad.dtype == layer.bias.grad.dtype == torch.float32
    assert not torch.equal(layer.weight.grad, layer.weight.grad.bfloat16().float())


@pytest.mark.parametrize(
    "x",
    [
        torch.ones(64),
        torch.ones(0, 64),
        torch.ones(2, 0, 64),
        torch.ones(64, 3).t(),
        torch.ones(1, 64).expand(3, 64),
        torch.ones(2, 3, 4, 64).transpose(1, 2),
    ],
    ids=lambda x: f"{tuple(x.shape)}-{x.stride()}",
)
def test_takes_what_linear_layers_take(x: Tensor) -> None:
    layer = Float8Linear(64, 32)
    dy = torch.randn(*x.shape[:-1], 32)
    linear = nn.Linear(64, 32)
    linear.load_state_dict(layer.state_dict())
    for one, other in zip(run(layer, x, dy), run(linear, x, dy), strict=True):
        assert one.shape == other.shape and (one - other).norm() <= 0.06 * other.norm()


def test_state_dict_is_that_of_linear_layers() -> None:
    linear = nn.Linear(64, 32, dtype=torch.bfloat16)
    layer = Float8Linear(64, 32, dtype=torch.bfloat16)
    assert isinstance(layer, nn.Linear)
    layer.load_state_dict(linear.state_dict())
    assert layer.state_dict().keys() == linear.state_dict().keys() and torch.equal(layer.weight, linear.weight)
    made = Float8Linear.from_float(linear.eval(), "tensorwise")
    assert made.weight is linear.weight and made.bias is linear.bias and not made.training
    assert "recipe=tensorwise, grad_dtype=torch.float8_e5m2" in repr(made)
    assert Float8Linear.from_float(nn.Linear(64, 32, bias=False)).bias is None


def test_a_nan_stays_with_its_token_and_a_step_repeats() -> None:
    layer, x = Float8Linear(128, 64), torch.randn(40, 128)
    dy = torch.randn(40, 64)
    first = run(layer, x, dy)
    assert all(torch.equal(one, other) for one, other in zip(run(layer, x, dy), first, strict=True))
    x[7, 3] = float("nan")
    y = run(layer, x, dy)[0]
    assert y[7].isnan().all() and torch.equal(y[8:], first[0][8:]) and torch.equal(y[:7], first[0][:7])


def test_wrong_arguments() -> None:
    with pytest.raises(ValueError, match="recipe is 'block'; it must be 'blockwise' or 'rowwise' or"):
        Float8Linear(64, 32, recipe="block")
    with pytest.raises(ValueError, match="grad_dtype is 'e5m2'; it must be 'float8_e4m3fn' or 'float8_e5m2'"):
        Float8Linear(64, 32, grad_dtype="e5m2")
    with pytest.raises(ValueError, match=r"x is \(3, 63\); its last dimension must be in_features, 64"):
        Float8Linear(64, 32)(torch.ones(3, 63))
    with pytest.raises(ValueError, match=r"use Float8Linear\.from_float"):
        convert_to_float8_training(nn.Linear(64, 32))
    with pytest.raises(RuntimeError, match="once_differentiable"):
        x = torch.randn(16, 64, requires_grad=True)
        (dx,) = torch.autograd.grad(Float8Linear(64, 32)(x).square().sum(), [x], create_graph=True)
        dx.sum().backward()


@pytest.mark.parametrize(
    ("recipe", "backend"), [*((recipe, "aot_eager") for recipe in RECIPES), (RECIPES[0], "inductor")]
)
def test_compiles_as_one_graph(recipe: str, backend: str) -> None:
    torch.compiler.reset()
    layer = Float8Linear(128, 64, recipe=recipe, dtype=torch.bfloat16)
    compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend=backend)
    for tokens in (32, 48):
        x, dy = torch.randn(2, tokens, 128).bfloat16(), torch.randn(2, tokens, 64).bfloat16()
        y, dx, dw, db = run(compiled, x, dy)
        expected = run(layer, x, dy)
        assert all(torch.equal(one, other) for one, other in zip((y, dx, dw), expected, strict=False))
        torch.testing.assert_close(db, expected[3], rtol=2e-2, atol=1e-2)


def test_layers_that_read_the_same_quantise_it_once_when_compiled() -> None:
    """torch.compile sees that the operators' results depend on nothing else."""
    counted: list[str] = []

    def backend(graph: Any, _: Any) -> Any:
        counted.extend(str(node.target) for node in graph.graph.nodes if "quantize" in str(node.target))
        return graph

    layers = nn.ModuleList(Float8Linear(128, 64) for _ in range(3))
    options = {"fw_compiler": backend, "partition_fn": min_cut_rematerialization_partition}  # as inductor has it
    compiled = torch.compile(lambda x: sum(layer(x) for layer in layers), backend=aot_autograd(**options))
    compiled(torch.randn(32, 128))
    assert len(counted) == 1 + len(layers)


# --- groups ---

GROUPS, TOKENS, FEATURES, OUTPUTS = 5, 300, 160, 256
OFFS = (100, 100, 133, 250, 290)  # an empty one, and rows of nobody


def offsets() -> Tensor:
    return torch.tensor(OFFS, dtype=torch.int32)


@dtypes
@grads
@pytest.mark.parametrize("bias", [False, True])
def test_groups_are_layers_of_their_own(dtype: torch.dtype, grad_dtype: torch.dtype, bias: bool) -> None:
    """Bit by bit, but for what padding to whole blocks does to the sums of weight gradients."""
    layer = GroupedLinear(GROUPS, FEATURES, OUTPUTS, bias, recipe="blockwise", grad_dtype=grad_dtype, dtype=dtype)
    x = torch.randn(TOKENS, FEATURES).to(dtype).requires_grad_()
    dy = torch.randn(TOKENS, OUTPUTS).to(dtype)
    y = layer(x, offsets())
    dx, dw, *db = torch.autograd.grad(y, [x, *layer.parameters()], dy)
    assert not y[OFFS[-1] :].any() and not dx[OFFS[-1] :].any() and not dw[1].any()
    for group, (begin, end) in enumerate(itertools.pairwise((0, *OFFS))):
        one = Float8Linear(FEATURES, OUTPUTS, bias, dtype=dtype, grad_dtype=grad_dtype)
        with torch.no_grad():
            one.weight.copy_(layer.weight[group])
            if bias:
                one.bias.copy_(layer.bias[group])
        if begin == end:
            continue
        made = run(one, x[begin:end], dy[begin:end])
        torch.testing.assert_close(y[begin:end].detach(), made[0], rtol=1e-6, atol=0)
        torch.testing.assert_close(dx[begin:end], made[1], rtol=1e-6, atol=0)
        torch.testing.assert_close(dw[group], made[2], rtol=1e-5 + EPS[dtype], atol=1e-5)
        for found in db:
            torch.testing.assert_close(found[group], made[3], rtol=1e-2, atol=1e-2)


@recipes
def test_layers_add_to_main_grad(recipe: str) -> None:
    """In float32, the gradients that a weight that asks for it gets."""
    layer = Float8Linear(128, 64, recipe=recipe, accumulate_main_grad=True, dtype=torch.bfloat16)
    x, dy = torch.randn(48, 128, dtype=torch.bfloat16), torch.randn(48, 64, dtype=torch.bfloat16)
    with pytest.raises(RuntimeError, match="weight has no main_grad; set"):
        layer(x).backward(dy)
    layer.bias.grad, layer.weight.main_grad = None, torch.zeros_like(layer.weight, dtype=torch.float32)
    for _ in range(2):
        layer(x).backward(dy)
    assert layer.weight.grad is None and layer.bias.grad is not None
    plain = Float8Linear.from_float(layer, recipe)
    plain(x).backward(dy)
    made = layer.weight.main_grad / 2
    torch.testing.assert_close(made, plain.weight.grad.float(), rtol=2**-8, atol=1e-6)
    assert not torch.equal(made, made.bfloat16().float())
    layer.weight.main_grad.zero_()
    torch.compile(layer, backend="aot_eager")(x).backward(dy)
    torch.testing.assert_close(layer.weight.main_grad, made)


def test_groups_add_to_main_grad() -> None:
    layer = GroupedLinear(
        GROUPS, FEATURES, OUTPUTS, False, recipe="blockwise", accumulate_main_grad=True, dtype=torch.bfloat16
    )
    x, dy = torch.randn(TOKENS, FEATURES).bfloat16(), torch.randn(TOKENS, OUTPUTS).bfloat16()
    with pytest.raises(RuntimeError, match="weight has no main_grad; set"):
        layer(x, offsets()).backward(dy)
    layer.weight.main_grad = torch.zeros_like(layer.weight, dtype=torch.float32)
    for _ in range(2):
        layer(x, offsets()).backward(dy)
    assert layer.weight.grad is None
    layer.accumulate_main_grad = False
    layer(x, offsets()).backward(dy)
    torch.testing.assert_close(layer.weight.main_grad / 2, layer.weight.grad.float(), rtol=5e-3, atol=1e-4)


def test_groups_compile_as_one_graph() -> None:
    layer = GroupedLinear(GROUPS, FEATURES, OUTPUTS, False, recipe="blockwise")
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    x, dy = torch.randn(TOKENS, FEATURES), torch.randn(TOKENS, OUTPUTS)

    def step(layer: Callable[..., Tensor]) -> list[Tensor]:
        y = layer(x, offsets())
        return [y.detach(), *torch.autograd.grad(y, list(layer.parameters()), dy)]

    assert all(torch.equal(one, other) for one, other in zip(step(compiled), step(layer), strict=True))


def test_wrong_groups() -> None:
    with pytest.raises(ValueError, match="recipe is 'rowwise'; products of groups have 'blockwise', or None"):
        GroupedLinear(2, 64, 128, recipe="rowwise")
    with pytest.raises(ValueError, match="out_features is 96 with recipe 'blockwise'; it must be a multiple of 128"):
        GroupedLinear(2, 64, 96, recipe="blockwise")


def test_mixture() -> None:
    """Close to the one of float32, in all gradients; SwiGLU in the product is the same but for one rounding."""
    plain = MoE(6, 2, 128, 256)
    in_8_bits = MoE(6, 2, 128, 256, recipe="blockwise")
    in_8_bits.load_state_dict(plain.state_dict())
    x, dy = torch.randn(64, 128), torch.randn(64, 128)
    for one, other in zip(run(in_8_bits, x, dy), run(plain, x, dy), strict=True):
        assert (one - other).norm() < 0.12 * other.norm()
    with torch.no_grad():
        inference = in_8_bits(x)
    torch.testing.assert_close(inference, in_8_bits(x), rtol=1e-4, atol=1e-3)


# --- whole models ---


def test_conversion() -> None:
    model = nn.ModuleDict(
        {
            "first": nn.Linear(64, 64),
            "narrow": nn.Linear(64, 10),
            "experts": MoE(4, 2, 128, 128),
            "head": nn.Linear(64, 64),
            "attention": nn.MultiheadAttention(64, 4),
        }
    )
    parameters = [id(parameter) for parameter in model.parameters()]
    names = list(model.state_dict())
    replaced = convert_to_float8_training(model, grad_dtype="float8_e5m2", skip="head")
    assert replaced == ["first", "experts.gate_up", "experts.down"]
    assert type(model["first"]) is Float8Linear and model["first"].grad_dtype == E5M2
    assert model["experts"].gate_up.recipe == "blockwise" and model["experts"].down.grad_dtype == E5M2
    assert type(model["head"]) is nn.Linear and type(model["narrow"]) is nn.Linear
    assert [id(parameter) for parameter in model.parameters()] == parameters and list(model.state_dict()) == names
    assert convert_to_float8_training(nn.Sequential(nn.Linear(64, 64), MoE(4, 2, 128, 128)), "rowwise") == ["0"]
    with pytest.raises(ValueError, match=r"skip has 'heda', .* head"):
        convert_to_float8_training(model, skip="heda")


def test_routers_keep_their_dtype_in_8_bit_models_too() -> None:
    model = nn.Sequential(MoE(4, 2, 128, 128))
    assert replace_linears(model) == []
    assert model(torch.randn(8, 128)).shape == (8, 128)


# --- examples/float8/train.py ---


@pytest.fixture
def train() -> ModuleType:
    path = Path(__file__).parents[3] / "examples" / "float8" / "train.py"
    spec = importlib.util.spec_from_file_location("train", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("recipe", ["blockwise", "rowwise"])
def test_losses_fall_as_those_of_bfloat16_do(
    train: ModuleType, capsys: pytest.CaptureFixture[str], recipe: str
) -> None:
    small = ["--layers", "1", "--width", "64", "--heads", "2", "--batch", "2", "--context", "32"]
    train.main(["--recipe", recipe, "--steps", "40", "--rate", "5e-3", *small])
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[2:-1]]
    losses = [(float(ours), float(beside)) for _, ours, beside, _ in rows]
    assert len(losses) == 20 and losses[-1][0] < 0.8 * losses[0][0]
    assert all(abs(ours / beside - 1) < 0.02 for ours, beside in losses)


def test_training_fails_if_losses_differ(train: ModuleType) -> None:
    train.TOLERANCE = -1.0
    with pytest.raises(SystemExit, match="the losses of the last 1 steps differ by more than"):
        train.main(["--steps", "2", "--layers", "1", "--batch", "1", "--width", "32"])
