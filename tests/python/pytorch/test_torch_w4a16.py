"""W4A16Linear on CPU tensors: products of 4-bit weights, state_dicts that round-trip, whole models."""

from __future__ import annotations

import copy
import io
import math
from typing import Any

import pytest

torch = pytest.importorskip("torch", minversion="2.10")
pytest.importorskip("cleave.torch", exc_type=ImportError)

from torch import nn  # noqa: E402

import cleave  # noqa: E402
from cleave.torch import W4A16Linear, replace_linears  # noqa: E402

DTYPES = [torch.bfloat16, torch.float16]
HALF_STEP = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}


def layer_with(zeros: bool = False, act_order: bool = False, dtype: Any = torch.bfloat16, **sizes: int) -> W4A16Linear:
    rows, columns, group = sizes.get("rows", 72), sizes.get("columns", 192), sizes.get("group", 32)
    torch.manual_seed(1)
    groups = columns // group
    weights = cleave.pack_weights(
        torch.randint(0, 16, (rows, columns), dtype=torch.uint8),
        group,
        scales=(torch.rand(groups, rows) * 0.1 + 0.01).to(dtype),
        zeros=torch.randint(0, 16, (groups, rows), dtype=torch.uint8) if zeros else None,
        g_idx=torch.arange(columns)[torch.randperm(columns)] // group if act_order else None,
    )
    return W4A16Linear.from_packed(weights, torch.randn(rows))


def expected(layer: W4A16Linear, x: Any) -> Any:
    y = x.double() @ cleave.dequantize_weights(layer.weights()).double().T
    return y if layer.bias is None else y + layer.bias.double()


def check(layer: W4A16Linear, x: Any) -> None:
    """Weights are rounded to x's type before they are multiplied, y after the sum."""
    y = layer(x)
    assert y.dtype == x.dtype and y.shape == (*x.shape[:-1], layer.out_features)
    magnitude = x.double().abs() @ cleave.dequantize_weights(layer.weights()).double().abs().T
    bound = HALF_STEP[x.dtype] * (expected(layer, x).abs() + magnitude) + 1e-4
    assert bool(((y.double() - expected(layer, x)).abs() <= bound).all())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("zeros", "act_order"), [(False, False), (True, False), (False, True), (True, True)])
def test_products(zeros: bool, act_order: bool, dtype: Any) -> None:
    layer = layer_with(zeros, act_order, dtype)
    for shape in ((1,), (5,), (2, 3), ()):
        check(layer, torch.randn(*shape, 192).to(dtype))
    check(layer, torch.randn(192, 7).to(dtype).t())  # not contiguous
    check(layer, torch.randn(7, 400).to(dtype)[:, 8:200])
    assert layer(torch.empty(0, 192, dtype=dtype)).shape == (0, 72)


@pytest.mark.parametrize(("columns", "group"), [(64, 64), (256, 128), (200, 200), (96, 32), (512, 256)])
def test_sizes_of_groups(columns: int, group: int) -> None:
    check(layer_with(columns=columns, group=group, rows=130), torch.randn(3, columns).bfloat16())


def test_a_linear_layer_becomes_one() -> None:
    linear = nn.Linear(256, 100).bfloat16()
    layer = W4A16Linear.from_linear(linear, 64)
    assert layer.group_size == 64 and layer.scales.dtype == torch.bfloat16 and torch.equal(layer.bias, linear.bias)
    assert layer.bias.data_ptr() != linear.bias.data_ptr()
    x = torch.randn(4, 256).bfloat16()
    check(layer, x)
    with torch.no_grad():
        full = linear(x).float()
    assert (layer(x).float() - full).norm() < 0.15 * full.norm()
    assert "format=int4, group_size=64, zeros=False, act_order=False, scales=torch.bfloat16, bias=True" in repr(layer)
    assert W4A16Linear.from_linear(nn.Linear(256, 8)).scales.dtype == torch.bfloat16


@pytest.mark.parametrize(("zeros", "act_order"), [(False, False), (True, True)])
def test_a_state_dict_round_trips(zeros: bool, act_order: bool) -> None:
    layer = layer_with(zeros, act_order)
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    same = W4A16Linear(192, 72, group_size=32, zeros=zeros, act_order=act_order)
    same.load_state_dict(torch.load(file))
    x = torch.randn(5, 192).bfloat16()
    assert torch.equal(same(x), layer(x))
    with torch.device("meta"):
        empty = W4A16Linear(192, 72, group_size=32, zeros=zeros, act_order=act_order)
    empty.load_state_dict(layer.state_dict(), assign=True)
    assert torch.equal(empty(x), layer(x)) and torch.equal(copy.deepcopy(layer)(x), layer(x))


def test_safetensors_have_all_of_it(tmp_path: Any) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    layer, same = layer_with(True, True), W4A16Linear(192, 72, group_size=32, zeros=True, act_order=True)
    safetensors.save_file(layer.state_dict(), tmp_path / "layer.safetensors")
    same.load_state_dict(safetensors.load_file(tmp_path / "layer.safetensors"))
    x = torch.randn(5, 192).bfloat16()
    assert torch.equal(same(x), layer(x))


def test_a_state_dict_with_a_column_twice_is_refused() -> None:
    layer = layer_with(False, True)
    state = layer.state_dict()
    state["perm"] = state["perm"].clone()
    state["perm"][1] = state["perm"][0]
    with pytest.raises(ValueError, match=r"perm\[1\] is .*, which is there before; each of the 192 columns"):
        layer.load_state_dict(state)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_mxfp4(dtype: Any) -> None:
    """Elements are what they stand for in either dtype, since scales are powers of two; x comes in any."""
    torch.manual_seed(0)
    linear = nn.Linear(160, 72)
    layer = W4A16Linear.from_linear(linear, format="mxfp4")
    assert layer.group_size == 32 and layer.scales.dtype == torch.uint8 and layer.bias.dtype == torch.bfloat16
    x = torch.randn(5, 160).to(dtype)
    check(layer, x)
    error = (layer(x).float() - linear(x.float())).detach().norm() / linear(x.float()).norm()
    assert error < 0.15
    same = W4A16Linear(160, 72, format="mxfp4")
    same.load_state_dict(layer.state_dict())
    assert torch.equal(same(x), layer(x))
    assert torch.equal(copy.deepcopy(layer).half().scales, layer.scales)
    tracked = x.clone().requires_grad_()
    layer(tracked).float().sum().backward()
    expected = cleave.dequantize_weights(layer.weights()).sum(0).expand(5, -1)
    torch.testing.assert_close(tracked.grad.float(), expected, rtol=2e-2, atol=2e-2)
    with pytest.raises(TypeError, match=r"x is torch\.float32, but the layer multiplies"):
        layer(x.float())
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(layer(x.float()), layer(x.bfloat16()))
    with pytest.raises(ValueError, match=r'scales is torch\.uint8, but the layer is of format "int4"'):
        W4A16Linear(160, 72, group_size=32).load_state_dict(layer.state_dict())


@pytest.mark.parametrize("by_row", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_nvfp4(dtype: Any, by_row: bool) -> None:
    """Also with a scale for each row beside those of groups, as layers that were joined have it."""
    torch.manual_seed(0)
    linear = nn.Linear(160, 72)
    layer = W4A16Linear.from_linear(linear, format="nvfp4")
    assert layer.group_size == 16 and layer.scales.dtype == torch.float8_e4m3fn
    if by_row:
        layer.global_scale = layer.global_scale * (torch.rand(72) + 0.5)
    x = torch.randn(5, 160).to(dtype)
    check(layer, x)
    if not by_row:
        error = (layer(x).float() - linear(x.float())).detach().norm() / linear(x.float()).norm()
        assert error < 0.12
    same = W4A16Linear(160, 72, format="nvfp4")
    same.load_state_dict(layer.state_dict())
    assert torch.equal(same(x), layer(x))
    half = copy.deepcopy(layer).half()
    assert half.scales.dtype == torch.float8_e4m3fn and half.global_scale.dtype == torch.float32
    tracked = x.clone().requires_grad_()
    layer(tracked).float().sum().backward()
    expected = cleave.dequantize_weights(layer.weights()).sum(0).expand(5, -1)
    torch.testing.assert_close(tracked.grad.float(), expected, rtol=2e-2, atol=2e-2)
    with pytest.raises(ValueError, match=r'scales is torch\.float8_e4m3fn, but the layer is of format "int4"'):
        W4A16Linear(160, 72, group_size=32).load_state_dict(layer.state_dict())
    torch.compiler.reset()  # else one code object meets too many kinds of arguments
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x), layer(x))


def test_a_layout_of_another_version_is_refused() -> None:
    model = nn.Sequential(layer_with())
    state = model.state_dict()
    state["0.version"] = torch.tensor(2, dtype=torch.int32)
    with pytest.raises(
        ValueError, match=r"0\.version is 2, .* reads packed weights of version 1; pack the weight anew"
    ):
        model.load_state_dict(state)
    del state["0.version"]
    with pytest.raises(RuntimeError, match=r'Missing key.*"0\.version"'):
        model.load_state_dict(state)


def test_another_form_of_the_weight_is_refused() -> None:
    state = layer_with(zeros=True).state_dict()
    with pytest.raises(RuntimeError, match="zeros"):
        W4A16Linear(192, 72, group_size=32).load_state_dict(state)
    with pytest.raises(RuntimeError, match="size mismatch for scales"):
        W4A16Linear(192, 72, group_size=64, zeros=True).load_state_dict(state)


def test_casts_leave_codes_alone() -> None:
    layer = layer_with(zeros=True, act_order=True)
    packed = layer.packed.clone()
    half = copy.deepcopy(layer).half()
    assert half.scales.dtype == half.bias.dtype == torch.float16
    assert torch.equal(half.packed, packed) and half.zeros.dtype == torch.uint8 and half.perm.dtype == torch.int32
    check(half, torch.randn(3, 192).half())
    wide = copy.deepcopy(layer).double()
    assert wide.scales.dtype == wide.bias.dtype == torch.bfloat16
    check(wide, torch.randn(3, 192).bfloat16())


def test_models_are_replaced() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(128, 96), nn.SiLU(), nn.Linear(96, 64), nn.Linear(64, 8)).bfloat16()
    before = copy.deepcopy(model)
    assert replace_linears(model, "int4", group_size=32, skip="3") == ["0", "2"]
    assert isinstance(model[0], W4A16Linear) and type(model[3]) is nn.Linear
    x = torch.randn(16, 128).bfloat16()
    with torch.no_grad():
        found, full = model(x).float(), before(x).float()
    assert (found - full).norm() < 0.25 * full.norm()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "int4", "activation": 0.1}, 'activation is given, but dtype is "int4"'),
        ({"dtype": "mxfp4", "activation": 0.1}, 'activation is given, but dtype is "mxfp4"'),
        ({"dtype": "int4", "granularity": "block_1x128"}, "granularity is given"),
        ({"dtype": "int4", "smooth": {"0": torch.ones(96)}}, "smooth is given"),
        ({"dtype": "int4", "use_fast_accum": True}, "use_fast_accum is given"),
        ({"dtype": "int8", "group_size": 32}, "group_size is 32, but dtype is 'int8'; it is for \"int4\""),
        ({"dtype": "int4"}, r"0: group_size is 128, which does not divide K = 96; pass 32 or -1.*; or skip='0'"),
        ({"dtype": "mxfp4", "group_size": 64}, '0: group_size is 64; in format "mxfp4" it is 32; or skip'),
        ({"dtype": "int3"}, 'dtype is \'int3\'; it must be "int8" or "float8_e4m3fn", .* weights of "int4"'),
    ],
)
def test_mistakes_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace_linears(nn.Sequential(nn.Linear(96, 64)), **options)


@pytest.mark.parametrize(("value", "dtype"), [(2.0**21, torch.bfloat16), (math.nan, torch.float16)])
def test_scales_that_kernels_cannot_multiply_are_not_loaded(value: float, dtype: Any) -> None:
    layer = layer_with(dtype=dtype)
    state = nn.Sequential(layer).state_dict()
    state["0.scales"][2, 5] = value
    with pytest.raises(ValueError, match=rf"0\.scales\[2, 5\] is .*; in {str(dtype)[6:]} they are finite"):
        nn.Sequential(layer_with(dtype=dtype)).load_state_dict(state)


def test_a_model_is_left_as_it_was_by_a_layer_that_does_not_fit() -> None:
    model = nn.Sequential(nn.Linear(128, 96), nn.Linear(96, 64))
    with pytest.raises(ValueError, match="1: group_size is 128"):
        replace_linears(model, "int4")
    assert [type(layer) for layer in model] == [nn.Linear, nn.Linear]


def test_mistakes_of_layers_are_named() -> None:
    with pytest.raises(ValueError, match=r"group_size is 96; .* it is 128, 64, 32, a multiple of 128, or -1"):
        W4A16Linear(128, 64, group_size=96)
    with pytest.raises(ValueError, match="group_size is 128, which does not divide K = 96; pass 32 or -1"):
        W4A16Linear(96, 64)
    with pytest.raises(TypeError, match="in_features is '96'; it must be an integer"):
        W4A16Linear("96", 64)
    with pytest.raises(TypeError, match=r"out_features is 64\.0; it must be an integer"):
        W4A16Linear(96, 64.0, group_size=32)
    with pytest.raises(ValueError, match='zeros is True, but format is "mxfp4"'):
        W4A16Linear(96, 64, format="mxfp4", zeros=True)
    with pytest.raises(ValueError, match='did you mean "mxfp4"'):
        W4A16Linear(96, 64, format="mx4")
    with pytest.raises(ValueError, match=r"dtype is torch\.float32; it must be torch\.bfloat16 or torch\.float16"):
        W4A16Linear(128, 64, dtype=torch.float32)
    with pytest.raises(ValueError, match=r"weights is \(2, 64, 128\), of experts; it must be of one layer"):
        W4A16Linear.from_packed(cleave.pack_weights(torch.randn(2, 64, 128)))
    layer = layer_with()
    for dtype in (torch.float32, torch.float16):
        with pytest.raises(TypeError, match=rf"x is {dtype}, but the layer multiplies torch.bfloat16; cast the layer"):
            layer(torch.randn(2, 192).to(dtype))
    for act_order in (False, True):
        for columns in (96, 384):
            with pytest.raises(
                ValueError, match=rf"x is \(2, {columns}\); its last dimension must be in_features, 192"
            ):
                layer_with(act_order=act_order)(torch.randn(2, columns).bfloat16())


def test_autocast_casts_activations() -> None:
    layer = layer_with()
    x = torch.randn(3, 192)
    with torch.autocast("cpu", torch.float16):
        assert torch.equal(layer(x), layer_with()(x.bfloat16()))


@pytest.mark.parametrize(("zeros", "act_order"), [(False, False), (True, True)])
def test_activations_have_gradients(zeros: bool, act_order: bool) -> None:
    layer = layer_with(zeros, act_order)
    x = torch.randn(2, 3, 192).bfloat16().requires_grad_()
    grad = torch.randn(2, 3, 72).bfloat16()
    layer(x).backward(grad)
    weight = cleave.dequantize_weights(layer.weights()).double()
    expected, magnitude = grad.double() @ weight, grad.double().abs() @ weight.abs()
    assert bool(((x.grad - expected).abs() <= 2.0**-8 * (expected.abs() + magnitude)).all())
    with torch.no_grad():
        assert torch.equal(layer(x), layer(x.detach()))
    assert layer(x.detach()).requires_grad is False


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_whole(backend: str) -> None:
    layer = layer_with(zeros=True, act_order=True)
    x = torch.randn(5, 192).bfloat16()
    torch.compiler.reset()  # else one code object meets too many kinds of arguments
    compiled = torch.compile(layer, fullgraph=True, backend=backend)
    assert torch.equal(compiled(x), layer(x))
    tracked, same = x.clone().requires_grad_(), x.clone().requires_grad_()
    compiled(tracked).sum().backward()
    layer(same).sum().backward()
    assert torch.equal(tracked.grad, same.grad)


@pytest.mark.parametrize(("zeros", "act_order"), [(False, False), (True, False), (False, True)])
def test_exported_by_itself(zeros: bool, act_order: bool) -> None:
    layer, x = layer_with(zeros, act_order), torch.randn(5, 192).bfloat16()
    assert torch.equal(torch.export.export(layer, (x,)).module()(x), layer(x))


def test_a_layer_without_values_is_refused() -> None:
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(128, 96))
    with pytest.raises(ValueError, match="0: weight is on the meta device, without values to pack"):
        replace_linears(model, "int4")
    empty = W4A16Linear(128, 96, device="meta")
    empty.load_state_dict(W4A16Linear.from_linear(nn.Linear(128, 96)).state_dict(), assign=True)
    assert empty(torch.randn(2, 128).bfloat16()).shape == (2, 96)
