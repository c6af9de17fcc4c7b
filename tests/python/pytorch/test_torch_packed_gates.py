"""Layers and experts of packed weights whose products join gates and ups: on CPU tensors, made one by one and by
`fuse`, beside layers that are apart."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", minversion="2.10")
pytest.importorskip("cleave.torch", exc_type=ImportError)

from torch import Tensor, nn  # noqa: E402
from torch.nn.functional import silu  # noqa: E402

import cleave  # noqa: E402
from cleave.torch import (  # noqa: E402
    Gate,
    GatedMLP,
    W4A8Experts,
    W4A8Linear,
    W4A8SwiGLU,
    W4A16Experts,
    W4A16Linear,
    W4A16SwiGLU,
    W8A8Linear,
    W8A8SwiGLU,
    fuse,
)

WIDTH, HIDDEN = 128, 72
FORMATS = {"int4": 32, "mxfp4": 32, "nvfp4": 16}


class MLP(nn.Module):
    def __init__(self, gate: nn.Module, up: nn.Module, down: nn.Module) -> None:
        super().__init__()
        self.gate, self.up, self.down = gate, up, down

    def forward(self, x: Tensor) -> Tensor:
        return self.down(silu(self.gate(x)) * self.up(x))


class Chunked(nn.Module):
    def __init__(self, gate_up: nn.Module, down: nn.Module, first: int = 0) -> None:
        super().__init__()
        self.gate_up, self.down, self.first = gate_up, down, first

    def forward(self, x: Tensor) -> Tensor:
        parts = self.gate_up(x).chunk(2, dim=-1)
        return self.down(parts[1 - self.first] * silu(parts[self.first]))


class Model(nn.Module):
    def __init__(self, mlp: nn.Module) -> None:
        super().__init__()
        self.mlp = mlp

    def forward(self, x: Tensor) -> Tensor:
        return self.mlp(x)


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, WIDTH).bfloat16()


def with_zeros_and_act_order(rows: int, order: Tensor) -> W4A16Linear:
    groups = WIDTH // 32
    codes, zeros = (torch.randint(0, 16, shape, dtype=torch.uint8) for shape in ((rows, WIDTH), (groups, rows)))
    scales = (torch.rand(groups, rows) / 32 + 0.01).bfloat16()
    return W4A16Linear.from_packed(cleave.pack_weights(codes, 32, scales=scales, zeros=zeros, g_idx=order))


def pair(kind: str) -> list[nn.Module]:
    """A gate and an up."""
    if kind == "zeros and act-order":
        order = torch.arange(WIDTH)[torch.randperm(WIDTH)] % (WIDTH // 32)
        return [with_zeros_and_act_order(HIDDEN, order) for _ in range(2)]
    linears = [nn.Linear(WIDTH, HIDDEN).bfloat16() for _ in range(2)]
    linears[1].weight.data *= 3  # so that nvfp4 has global scales that differ
    if kind == "rows":
        return [W4A16Linear.from_linear(linear, -1) for linear in linears]
    if kind in FORMATS:
        return [W4A16Linear.from_linear(linear, FORMATS[kind], kind) for linear in linears]
    return [W4A8Linear.from_linear(linear, 32, activation_dtype=kind) for linear in linears]


@pytest.mark.parametrize("kind", [*FORMATS, "rows", "zeros and act-order", "int8", "float8_e4m3fn"])
@torch.inference_mode()
def test_fuse(kind: str) -> None:
    """The gate is applied to float32 sums, so y is as near to float64 as before or nearer; undone, bits are as ever."""
    gate, up = pair(kind)
    model, x = Model(MLP(gate, up, nn.Linear(HIDDEN, WIDTH).bfloat16())), draw(2, 5)
    before, weights = model(x), [cleave.dequantize_weights(each.weights()) for each in (gate, up)]
    states = [{name: tensor.clone() for name, tensor in each.state_dict().items()} for each in (gate, up)]
    report = fuse(model)
    assert report.done == [("mlp", "gate and up: one product, with SwiGLU in it")] and not report.left
    assert type(model.mlp) is GatedMLP
    joined = model.mlp.gate_up
    assert type(joined) is (W4A16SwiGLU if kind not in ("int8", "float8_e4m3fn") else W4A8SwiGLU)
    assert torch.equal(cleave.dequantize_weights(joined.weights()), torch.cat(weights))
    assert gate.packed is None and joined.out_features == HIDDEN
    parts = zip(weights, states, strict=True)
    gates, ups = (x.double() @ weight.double().T + (state.get("bias", 0)) for weight, state in parts)
    expected, error = silu(gates) * ups, 0.06 if isinstance(joined, W4A8Linear) else 0.01
    assert (joined(x).double() - expected).norm() < error * expected.norm()
    assert (model(x).float() - before.float()).norm() < 0.02 * before.float().norm()
    report.undo()
    assert torch.equal(model(x), before) and model.mlp.gate is gate
    for layer, state in zip((gate, up), states, strict=True):
        assert layer.state_dict().keys() == state.keys()
        for name, tensor in layer.state_dict().items():
            assert torch.equal(tensor, state[name]), name


@pytest.mark.parametrize("kind", ["int4", "nvfp4", "int8 weights"])
@torch.inference_mode()
def test_one_layer_of_gates_and_ups(kind: str) -> None:
    linear = nn.Linear(WIDTH, 2 * HIDDEN).bfloat16()
    if kind == "int8 weights":
        layer = W8A8Linear.from_linear(linear, "int8")
    else:
        layer = W4A16Linear.from_linear(linear, FORMATS[kind], kind)
    model, x = Model(Chunked(layer, nn.Linear(HIDDEN, WIDTH).bfloat16())), draw(2, 5)
    before, state = model(x), {name: tensor.clone() for name, tensor in layer.state_dict().items()}
    report = fuse(model)
    assert report.done == [("mlp", "gate_up: one product, with SwiGLU in it")]
    assert type(model.mlp.gate_up) is (W8A8SwiGLU if kind == "int8 weights" else W4A16SwiGLU)
    assert (model(x).float() - before.float()).norm() < 0.02 * before.float().norm()
    report.undo()
    assert torch.equal(model(x), before) and model.mlp.gate_up is layer
    assert all(torch.equal(tensor, state[name]) for name, tensor in layer.state_dict().items())
    ups_first = Model(Chunked(layer, model.mlp.down, first=1))
    assert not fuse(ups_first).done


def test_what_fuse_leaves_alone() -> None:
    kinds = {
        "they differ in group_size": [W4A16Linear(WIDTH, HIDDEN, group_size=group) for group in (32, 64)],
        "they differ in zeros": [W4A16Linear(WIDTH, HIDDEN, zeros=zeros) for zeros in (True, False)],
        "they differ in format": [W4A16Linear(WIDTH, HIDDEN, group_size=32, format=f) for f in ("int4", "mxfp4")],
        "their outputs are no multiple of 8": [W4A16Linear(WIDTH, 20) for _ in range(2)],
        "they are of different classes": [W4A16Linear(WIDTH, HIDDEN), W4A8Linear(WIDTH, HIDDEN)],
        "up: no layer in 8 or 4 bits": [W4A16Linear(WIDTH, HIDDEN), nn.Linear(WIDTH, HIDDEN)],
    }
    for why, (gate, up) in kinds.items():
        report = fuse(Model(MLP(gate, up, nn.Linear(gate.out_features, WIDTH))))
        assert not report.done and [left[0] for left in report.left] == ["mlp"]
        assert why in report.left[0][1]


def joined_of(kind: type[W4A16Linear] | type[W4A8Linear], **options: Any) -> Any:
    return kind.from_linear(nn.Linear(WIDTH, 2 * HIDDEN).bfloat16(), 32, **options)


@pytest.mark.parametrize("kind", [W4A16SwiGLU, W4A8SwiGLU])
def test_state_dicts_say_that_rows_take_turns(kind: Any) -> None:
    layer, x = joined_of(kind), draw(3)
    same = kind(WIDTH, 2 * HIDDEN, group_size=32)
    same.load_state_dict(layer.state_dict())
    assert torch.equal(same(x), layer(x)) and same(x).shape == (3, HIDDEN) and int(layer.gate_rows) == 8
    base = kind.__mro__[1]
    apart = base(WIDTH, 2 * HIDDEN, group_size=32)
    for strict in (True, False):
        with pytest.raises(ValueError, match="packed is packed with gated=True, but the layer is not"):
            apart.load_state_dict(layer.state_dict(), strict=strict)
        with pytest.raises(ValueError, match="packed is not packed with gated=True, but the layer is of such"):
            same.load_state_dict(apart.state_dict(), strict=strict)


def test_compiles_in_one_graph_without_gradients() -> None:
    layer, x = joined_of(W4A16SwiGLU), draw(3)
    torch.compiler.reset()  # else one code object meets too many kinds of arguments
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        assert torch.equal(compiled(x), layer(x))
    with pytest.raises(RuntimeError, match="no gradient"):
        layer(x.requires_grad_())


def test_a_weight_of_the_other_kind_is_refused() -> None:
    w = torch.randn(32, 64).bfloat16()
    gated, plain = (cleave.pack_weights(w, 32, gated=gated) for gated in (True, False))
    with pytest.raises(ValueError, match="W4A16Linear joins no gates and ups; pass it to W4A16SwiGLU"):
        W4A16Linear.from_packed(gated)
    with pytest.raises(ValueError, match="W4A16SwiGLU joins gates and ups, but weights is packed without gated"):
        W4A16SwiGLU.from_packed(plain)
    with pytest.raises(ValueError, match="must be a multiple of 16"):
        W4A16SwiGLU(64, 24)


EXPERTS = 4


def packed_experts(format: str, gated: bool, **options: Any) -> list[cleave.PackedWeights]:
    generator = torch.Generator().manual_seed(1)
    shapes = (EXPERTS, 2 * 96, WIDTH), (EXPERTS, WIDTH, 96)
    weights = [torch.randn(shape, generator=generator).bfloat16() / 8 for shape in shapes]
    return [
        cleave.pack_weights(w, FORMATS[format], format, gated=g, **options)
        for w, g in zip(weights, (gated, False), strict=True)
    ]


def experts_of(kind: Any, format: str, gated: bool, gate: Gate, bias: bool) -> Any:
    generator = torch.Generator().manual_seed(2)
    biases = [torch.randn(EXPERTS, rows, generator=generator) if bias else None for rows in (2 * 96, WIDTH)]
    options = {"scale_dtype": "float16"} if kind is W4A8Experts and format == "int4" else {}
    return kind.from_packed(*packed_experts(format, gated, **options), *biases, gate=gate)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("gate", [Gate(), Gate(limit=0.5), Gate(1.702, 1.0, 7.0), Gate(alpha=2.0)], ids=str)
@pytest.mark.parametrize(
    ("kind", "format"),
    [*((W4A16Experts, format) for format in FORMATS), (W4A8Experts, "int4"), (W4A8Experts, "mxfp4")],
)
def test_experts(kind: Any, format: str, gate: Gate, bias: bool) -> None:
    """A gate in the product is the gate after it; by fuse and back, the experts are what they were."""
    apart, gated = (experts_of(kind, format, turns, gate, bias) for turns in (False, True))
    x, ids, weights = draw(9), torch.randint(0, EXPERTS + 1, (9, 2)), torch.rand(9, 2)
    y, expected = gated(x, ids, weights), apart(x, ids, weights)
    assert (y.float() - expected.float()).norm() < (0.03 if kind is W4A8Experts else 0.01) * expected.float().norm()
    model = Model(apart)
    report = fuse(model)
    assert report.done == [("mlp", "the gate in the first product")] and apart.gate_up.gated
    assert torch.equal(apart(x, ids, weights), y)
    state = apart.state_dict()
    assert all(torch.equal(tensor, state[name]) for name, tensor in gated.state_dict().items())
    report.undo()
    assert torch.equal(apart(x, ids, weights), expected)
    with pytest.raises(ValueError, match=r"gate_up\.packed is packed with gated=True, but the layer is not"):
        apart.load_state_dict(gated.state_dict())


def test_empty_experts_and_a_gated_down() -> None:
    gated = experts_of(W4A16Experts, "mxfp4", True, Gate(), False)
    empty = W4A16Experts(EXPERTS, WIDTH, 96, format="mxfp4", gated=True)
    empty.load_state_dict(gated.state_dict())
    x, ids, weights = draw(5), torch.randint(0, EXPERTS, (5, 2)), torch.rand(5, 2)
    torch.compiler.reset()  # else one code object meets too many kinds of arguments
    compiled = torch.compile(empty, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x, ids, weights), gated(x, ids, weights))
    gate_up, down = packed_experts("mxfp4", True)
    turned = cleave.pack_weights(cleave.dequantize_weights(down), format="mxfp4", gated=True)
    with pytest.raises(ValueError, match="down is packed with gated=True, but nothing joins its rows"):
        W4A16Experts.from_packed(gate_up, turned)
