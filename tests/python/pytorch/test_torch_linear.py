"""cleave.torch's layers on CPU tensors."""

from __future__ import annotations

import copy
import io
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", minversion="2.10")

from torch import nn  # noqa: E402

import cleave.torch  # noqa: E402
from cleave.torch import W8A8Linear, replace_linears  # noqa: E402

QMAX = {"int8": 127.0, "float8_e4m3fn": 448.0}
# Share of y's norm: roundings of activations and weights by half a step, or by 2^-4 of each value.
ERROR = {"int8": 0.02, "float8_e4m3fn": 0.05}

dtypes = pytest.mark.parametrize("dtype", QMAX)
both = pytest.mark.parametrize("static", [False, True], ids=["dynamic", "static"])


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def activation(x: torch.Tensor, dtype: str, static: bool) -> Any:
    return float(x.abs().max()) / QMAX[dtype] if static else "dynamic"


def relative_error(y: torch.Tensor, expected: torch.Tensor) -> float:
    y, expected = y.detach().double(), expected.detach().double()
    return float((y - expected).norm() / expected.norm())


@dtypes
@both
@pytest.mark.parametrize("x_dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("bias", [False, True])
def test_comes_close_to_the_linear_layer(dtype: str, static: bool, x_dtype: torch.dtype, bias: bool) -> None:
    linear = nn.Linear(384, 96, bias=bias)
    x = torch.randn(2, 7, 384)
    layer = W8A8Linear.from_linear(linear, dtype, activation(x, dtype, static))
    y = layer(x.to(x_dtype))
    assert y.shape == (2, 7, 96) and y.dtype == x_dtype
    assert relative_error(y, linear(x)) < ERROR[dtype]


@dtypes
def test_the_formula(dtype: str) -> None:
    """Exactly: quantised, multiplied, scaled, rounded once."""
    linear = nn.Linear(256, 96)
    smooth = 2.0 ** torch.randint(-2, 3, (256,))
    layer = W8A8Linear.from_linear(linear, dtype, smooth=smooth)
    x = torch.randn(5, 256)
    q, scale = torch.ops.cleave.quantize(x / smooth, layer.weight.dtype)
    w, w_scale = torch.ops.cleave.quantize(linear.weight.detach() * smooth, layer.weight.dtype)
    assert torch.equal(layer.weight.float(), w.float())
    assert torch.equal(layer.weight_scale, w_scale[:, 0])
    expected = (q.double() * scale) @ (w.double() * w_scale).t() + linear.bias
    torch.testing.assert_close(layer(x).double(), expected, rtol=1e-5, atol=1e-5)


@dtypes
@pytest.mark.parametrize(("granularity", "shape"), [("block_1x128", (200, 2)), ("block_128x128", (2, 2))])
def test_scales_of_blocks(dtype: str, granularity: str, shape: tuple[int, int]) -> None:
    """Exactly, too; and what is quantised already is taken as it is."""
    linear = nn.Linear(192, 200)
    layer = W8A8Linear.from_linear(linear, dtype, granularity=granularity)
    x = torch.randn(5, 192)
    q, scale = torch.ops.cleave.quantize(x, layer.weight.dtype, "block_1x128")
    assert layer.weight_scale.shape == shape
    rows = 200 // shape[0] if granularity == "block_1x128" else 128
    of_rows = layer.weight_scale.repeat_interleave(rows, 0)[:200]
    weight = layer.weight.double() * of_rows.repeat_interleave(128, 1)[:, :192]
    expected = (q.double() * scale.repeat_interleave(128, 1)[:, :192]) @ weight.t() + linear.bias
    torch.testing.assert_close(layer(x).double(), expected, rtol=1e-5, atol=1e-5)
    assert torch.equal(layer((q, scale, torch.float32)), layer(x))
    again = W8A8Linear(192, 200, dtype=dtype, granularity=granularity)
    again.load_state_dict(layer.state_dict())
    assert torch.equal(again(x), layer(x))
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x), layer(x))


def test_what_blocks_do_not_go_with() -> None:
    with pytest.raises(ValueError, match="activation is static, but granularity is 'block_128x128'"):
        W8A8Linear(64, 32, activation="static", granularity="block_128x128")
    with pytest.raises(ValueError, match="granularity is 'tensor'; it must be one of \"row\""):
        W8A8Linear(64, 32, granularity="tensor")
    with pytest.raises(ValueError, match=r"are \[3, 2\]; granularity 'row' needs \[32\]"):
        W8A8Linear.from_quantized(torch.zeros(32, 64, dtype=torch.int8), torch.ones(3, 2))


@dtypes
@both
def test_smoothing_helps_outlying_channels(dtype: str, static: bool) -> None:
    linear = nn.Linear(256, 96)
    x = torch.randn(64, 256)
    x[:, ::32] *= 100
    amax = x.abs().amax(0)
    smooth = amax.sqrt() / linear.weight.detach().abs().amax(0).sqrt()
    plain = W8A8Linear.from_linear(linear, dtype, activation(x, dtype, static))
    smoothed = W8A8Linear.from_linear(linear, dtype, activation(x / smooth, dtype, static), smooth=smooth)
    assert smoothed.smooth is not None
    error = relative_error(smoothed(x), linear(x))
    # Floats have relative precision, so there smoothing has less to mend.
    assert error < (0.5 if dtype == "int8" else 1.1) * relative_error(plain(x), linear(x))


@dtypes
@both
@pytest.mark.parametrize("smooth", [False, True])
def test_state_dict_round_trip(dtype: str, static: bool, smooth: bool) -> None:
    x = torch.randn(3, 64)
    layer = W8A8Linear.from_linear(
        nn.Linear(64, 32),
        dtype,
        activation(x, dtype, static),
        smooth=torch.rand(64) + 0.5 if smooth else None,
    )
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    empty = W8A8Linear(64, 32, dtype=dtype, activation="static" if static else "dynamic", smooth=smooth)
    empty.load_state_dict(torch.load(file))
    assert torch.equal(empty(x), layer(x))
    assert torch.equal(copy.deepcopy(layer)(x), layer(x))


def test_a_state_dict_of_another_kind_is_refused() -> None:
    layer = W8A8Linear.from_linear(nn.Linear(64, 32))
    with pytest.raises(RuntimeError, match="activation_scale"):
        W8A8Linear(64, 32, activation="static").load_state_dict(layer.state_dict())


@dtypes
def test_casting_leaves_the_8_bits_alone(dtype: str) -> None:
    layer = W8A8Linear.from_linear(nn.Linear(64, 32), dtype, 0.05, smooth=torch.ones(64))
    before = {name: buffer.clone() for name, buffer in layer.named_buffers()}
    layer.half()
    for name, buffer in layer.named_buffers():
        assert buffer.dtype == (torch.float16 if name == "bias" else before[name].dtype)
        if name != "bias":
            assert torch.equal(buffer.float(), before[name].float())
    assert layer(torch.ones(2, 64, dtype=torch.float16)).dtype == torch.float16
    assert layer.to("meta").weight.device.type == "meta"


def test_has_no_parameters() -> None:
    assert not list(W8A8Linear.from_linear(nn.Linear(64, 32)).parameters())


@pytest.mark.parametrize(
    "x",
    [
        torch.ones(64),
        torch.ones(0, 64),
        torch.ones(2, 0, 64),
        torch.ones(64, 3).t(),
        torch.ones(1, 64).expand(3, 64),
        torch.ones(3, 80)[:, :64],
        torch.ones(3, 65)[:, 1:],
        torch.ones(2, 3, 4, 64).transpose(1, 2),
    ],
    ids=lambda x: f"{tuple(x.shape)}-{x.stride()}",
)
def test_takes_what_linear_layers_take(x: torch.Tensor) -> None:
    linear = nn.Linear(64, 32)
    y = W8A8Linear.from_linear(linear)(x)
    assert y.shape == linear(x).shape
    torch.testing.assert_close(y, linear(x), rtol=0, atol=0.02)


def test_infinite_and_missing_values_stay_in_their_rows() -> None:
    layer = W8A8Linear.from_linear(nn.Linear(64, 32), "float8_e4m3fn")
    x = torch.randn(3, 64)
    x[1, 5] = float("nan")
    y = layer(x)
    assert y[1].isnan().all() and torch.equal(y[::2], layer(x[::2]))


def test_wrong_arguments() -> None:
    linear = nn.Linear(64, 32)
    with pytest.raises(ValueError, match='dtype is \'int4\'; it must be "int8" or "float8_e4m3fn"'):
        W8A8Linear.from_linear(linear, "int4")
    with pytest.raises(ValueError, match="activation is 'static'; it must be"):
        W8A8Linear.from_linear(linear, activation="static")
    with pytest.raises(ValueError, match="activation is 'token'; it must be"):
        W8A8Linear(64, 32, activation="token")
    with pytest.raises(ValueError, match=r"smooth is \(32,\); it must be \(64,\)"):
        W8A8Linear.from_linear(linear, smooth=torch.ones(32))
    with pytest.raises(ValueError, match="use_fast_accum is True, but dtype is int8"):
        W8A8Linear.from_linear(linear, use_fast_accum=True)
    for scale in (0.0, -1.0, float("inf"), True, torch.ones(2)):
        with pytest.raises(ValueError, match=r'activation is .*; it must be "dynamic", or one scale, positive'):
            W8A8Linear.from_linear(linear, activation=scale)
    with pytest.raises(TypeError, match="linear is Conv1d, whose weight is no matrix"):
        W8A8Linear.from_linear(nn.Conv1d(64, 32, 1))
    with pytest.raises(TypeError, match="x is a tuple of one; pass q and scale"):
        W8A8Linear.from_linear(linear)((torch.ones(2, 64, dtype=torch.int8),))
    with pytest.raises(ValueError, match="smooth has a value that is zero"):
        W8A8Linear.from_linear(linear, smooth=torch.arange(64.0))
    with pytest.raises(ValueError, match=r"x is \(2, 2, 32\); its last dimension must be in_features, 64"):
        W8A8Linear.from_linear(linear)(torch.ones(2, 2, 32))
    with pytest.raises(ValueError, match=r"x is \(.*63\); its last dimension must be in_features, 64"):
        W8A8Linear.from_linear(linear)(torch.ones(2, 63))


# --- compiled ---


@dtypes
@both
def test_compiles_as_one_graph(dtype: str, static: bool) -> None:
    x = torch.randn(2, 7, 64)
    model = nn.Sequential(nn.Linear(64, 48), nn.GELU(), nn.Linear(48, 16))
    replace_linears(model, dtype, activation(x, dtype, static))
    compiled = torch.compile(model, fullgraph=True, dynamic=True)
    for tokens in (7, 5, 11):
        x = torch.randn(2, tokens, 64)
        torch.testing.assert_close(compiled(x), model(x), rtol=0, atol=2e-2)


@pytest.mark.parametrize("options", [{}, {"activation": 0.1}, {"smooth": torch.ones(64)}], ids=str)
@pytest.mark.parametrize("bias", [True, False])
def test_export(bias: bool, options: dict[str, Any]) -> None:
    layer = W8A8Linear.from_linear(nn.Linear(64, 32, bias=bias), **options)
    x = torch.randn(3, 64)
    program = torch.export.export(layer, (x,), dynamic_shapes=({0: torch.export.Dim("tokens", min=2, max=512)},))
    x = torch.randn(9, 64)
    assert torch.equal(program.module()(x), layer(x))


def test_prepare() -> None:
    layer = W8A8Linear.from_linear(nn.Linear(64, 32))
    layer.prepare(16)
    layer.prepare(torch.ones(2, 3, 64))


# --- whole models ---


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 64)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(64, 64), nn.ReLU()) for _ in range(2))
        self.attention = nn.MultiheadAttention(64, 4, batch_first=True)
        self.head = nn.Linear(64, 10)
        self.tied = self.head

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.tied(x + self.attention(x, x, x, need_weights=False)[0])


def test_replace_linears() -> None:
    model = Model()
    tokens = torch.arange(10).reshape(2, 5)
    expected = model(tokens)
    assert replace_linears(model) == ["blocks.0.0", "blocks.1.0", "head", "tied"]
    assert type(model.blocks[0][0]) is W8A8Linear and model.tied is model.head
    assert type(model.attention.out_proj) is not W8A8Linear  # whose weight its parent reads
    assert relative_error(model(tokens), expected) < 0.05
    assert replace_linears(model) == []


@pytest.mark.parametrize("skip", ["head", ["head", "tied"], ["*ead"], lambda name, layer: layer.out_features == 10])
def test_skipped_layers(skip: Any) -> None:
    model = Model()
    replaced = replace_linears(model, "float8_e4m3fn", skip=skip)
    assert replaced == ["blocks.0.0", "blocks.1.0"]
    assert type(model.head) is type(model.tied) is nn.Linear


@pytest.mark.parametrize(
    ("skip", "meant"),
    [
        ("lm_head", "'lm_head', .* head"),
        (["head", "heda"], "'heda', .* head"),
        ("blocks", r"'blocks', .* blocks\.\* would be blocks\.0\.0"),
        ("out_proj", "'out_proj', .* mend it, or leave it out"),
    ],
)
def test_a_skip_that_matches_no_layer_is_refused(skip: Any, meant: str) -> None:
    model = Model()
    with pytest.raises(ValueError, match=f"skip has {meant}"):
        replace_linears(model, skip=skip)
    assert type(model.head) is nn.Linear


def test_settings_by_layer() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64))
    replace_linears(model, activation={"0": 0.05}, smooth={"1": torch.full((64,), 2.0)})
    assert model[0].activation_scale == pytest.approx(0.05) and model[0].smooth is None
    assert model[1].activation_scale is None and model[1].smooth is not None


@pytest.mark.parametrize("argument", ["activation", "smooth"])
def test_settings_of_no_layer_are_refused(argument: str) -> None:
    for name, meant in (("haed", "head"), ("tied", "head")):
        with pytest.raises(ValueError, match=f"{argument} has '{name}', which is no .*{meant}"):
            replace_linears(Model(), **{argument: {name: torch.ones(64)}})


@pytest.mark.parametrize("change", ["replace_linears", "replace_convs", "convert_to_float8_training", "fuse"])
def test_what_is_no_model_is_refused(change: str) -> None:
    with pytest.raises(TypeError, match="model is a NoneType; it must be a torch module"):
        getattr(cleave.torch, change)(None)
    with pytest.raises(TypeError, match="model is a NoneType; it must be a torch module"):
        cleave.torch.load_quantized(None, {})


def test_a_skip_that_is_no_pattern_is_refused() -> None:
    with pytest.raises(TypeError, match="skip is 5; it must be patterns of names, or a function of name and layer"):
        cleave.torch.replace_linears(nn.Sequential(nn.Linear(64, 32)), skip=5)


@pytest.mark.parametrize("x", [None, [1.0], np.ones((2, 128), np.float32)])
def test_an_input_that_is_no_tensor_is_refused(x: Any) -> None:
    linear = nn.Linear(128, 128)
    for layer in (W8A8Linear, cleave.torch.W4A16Linear, cleave.torch.W4A8Linear):
        with pytest.raises(TypeError, match=f"x is a {type(x).__name__}; it must be a torch tensor"):
            layer.from_linear(linear)(x)
    with pytest.raises(TypeError, match=f"x is a {type(x).__name__}; it must be a torch tensor"):
        cleave.torch.Float8Linear.from_float(linear)(x)


def test_a_lone_layer_has_no_parent() -> None:
    with pytest.raises(ValueError, match=r"use W8A8Linear\.from_linear"):
        replace_linears(nn.Linear(64, 32))
