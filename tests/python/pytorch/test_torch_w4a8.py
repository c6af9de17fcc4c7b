"""W4A8Linear on CPU tensors, and torch.ops.cleave.mixed_gemm of activations in 8 bits."""

from __future__ import annotations

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch", minversion="2.10")
pytest.importorskip("cleave.torch", exc_type=ImportError)

from torch import nn  # noqa: E402

import cleave  # noqa: E402
from cleave.torch import W4A8Linear, replace_linears  # noqa: E402

BYTES = ("float8_e4m3fn", "int8")
# What rounding activations to 8 bits, with a scale per token, costs the product's norm.
ROUNDING = {"float8_e4m3fn": 0.04, "int8": 0.015}


def check(layer: W4A8Linear, x: Any) -> None:
    y = layer(x)
    expected = x.double() @ cleave.dequantize_weights(layer.weights()).double().T
    if layer.bias is not None:
        expected = expected + layer.bias.double()
    assert y.dtype == x.dtype and y.shape == expected.shape
    name = str(layer.activation_dtype).removeprefix("torch.")
    assert (y.double() - expected).norm() <= ROUNDING[name] * expected.norm()


@pytest.mark.parametrize("activation_dtype", BYTES)
def test_products(activation_dtype: str) -> None:
    torch.manual_seed(0)
    for bias in (False, True):
        layer = W4A8Linear.from_linear(nn.Linear(256, 100, bias), 64, activation_dtype=activation_dtype)
        assert layer.scales.dtype == torch.float16
        for dtype in (torch.bfloat16, torch.float16, torch.float32):
            for shape in ((1,), (5,), (2, 3), ()):
                check(layer, torch.randn(*shape, 256).to(dtype))
        check(layer, torch.randn(256, 7).t())  # not contiguous
        assert layer(torch.empty(0, 256)).shape == (0, 100)


@pytest.mark.parametrize("activation_dtype", BYTES)
@pytest.mark.parametrize("format", ["mxfp4", "nvfp4"])
def test_floats(format: str, activation_dtype: str) -> None:
    layer = W4A8Linear.from_linear(nn.Linear(256, 100), format=format, activation_dtype=activation_dtype)
    check(layer, torch.randn(4, 256))
    same = W4A8Linear(256, 100, format=format, activation_dtype=activation_dtype)
    same.load_state_dict(layer.state_dict())
    x = torch.randn(5, 256)
    assert torch.equal(same(x), layer(x))


@pytest.mark.parametrize("activation_dtype", BYTES)
@pytest.mark.parametrize("act_order", [False, True])
def test_packed_weights_with_zeros(act_order: bool, activation_dtype: str) -> None:
    torch.manual_seed(0)
    rows, columns, group = 72, 192, 32
    scales = (torch.rand(columns // group, rows) * 0.1 + 0.01).bfloat16()
    weights = cleave.pack_weights(
        torch.randint(0, 16, (rows, columns), dtype=torch.uint8),
        group,
        scales=scales,
        zeros=torch.randint(0, 16, (columns // group, rows), dtype=torch.uint8),
        g_idx=torch.arange(columns)[torch.randperm(columns)] // group if act_order else None,
    )
    layer = W4A8Linear.from_packed(weights, torch.randn(rows), activation_dtype)
    assert torch.equal(layer.scales.bfloat16(), scales)  # cast, exactly
    check(layer, torch.randn(5, columns).bfloat16())
    same = W4A8Linear(
        columns, rows, activation_dtype=activation_dtype, group_size=group, zeros=True, act_order=act_order
    )
    same.load_state_dict(layer.state_dict())
    x = torch.randn(5, columns)
    assert torch.equal(same(x), layer(x)) and torch.equal(copy.deepcopy(layer)(x), layer(x))


def test_casts_leave_the_scales() -> None:
    layer = W4A8Linear.from_linear(nn.Linear(64, 8), 64)
    scales = layer.scales.clone()
    for cast, dtype in ((layer.bfloat16, torch.bfloat16), (layer.half, torch.float16)):
        cast()
        assert torch.equal(layer.scales, scales) and layer.bias.dtype == dtype


def test_models() -> None:
    model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 10))
    assert replace_linears(model, "int4", group_size=32, activation_dtype="int8", skip="2") == ["0"]
    layer = model[0]
    assert isinstance(layer, W4A8Linear) and layer.activation_dtype == torch.int8 and layer.group_size == 32
    assert "format=int4, group_size=32" in repr(layer) and "activation_dtype=torch.int8" in repr(layer)


def test_compiled() -> None:
    torch.compiler.reset()
    layer = W4A8Linear.from_linear(nn.Linear(64, 40), 32)
    x = torch.randn(3, 64)
    assert torch.equal(torch.compile(layer, fullgraph=True, backend="aot_eager")(x), layer(x))


def test_operators() -> None:
    packed = cleave.pack_weights(torch.randn(40, 64), 32, scale_dtype="float16")
    q, scale = cleave.quantize(torch.randn(6, 64), torch.float8_e4m3fn)
    d = cleave.torch.mixed_gemm(q, packed, scale_a=scale)
    assert d.dtype == torch.bfloat16 and torch.equal(d, cleave.mixed_gemm(q, packed, scale_a=scale))
    experts = cleave.pack_weights(torch.randn(2, 40, 64), 32, scale_dtype="float16")
    offs = torch.tensor([2, 5])
    made = (module.mixed_gemm(q, experts, scale_a=scale, offs=offs) for module in (cleave.torch, cleave))
    assert all(torch.equal(x, y) for x, y in zip(*made, strict=True))


def test_what_is_refused() -> None:
    linear = nn.Linear(64, 8)
    with pytest.raises(ValueError, match='activation_dtype is \'int4\'; it must be "int8" or "float8_e4m3fn"'):
        W4A8Linear.from_linear(linear, 64, activation_dtype="int4")
    with pytest.raises(ValueError, match=r"x is \(3, 60\); its last dimension must be in_features, 64"):
        W4A8Linear.from_linear(linear, 64)(torch.randn(3, 60))
    with pytest.raises(ValueError, match="activation_dtype is 'int8', but dtype is 'int8'"):
        replace_linears(nn.Sequential(linear), "int8", activation_dtype="int8")
    tiny = cleave.pack_weights(torch.randn(8, 64) * 2.0**-20, 32, scale_dtype="bfloat16")
    with pytest.raises(ValueError, match=r"scales that float16 has not, of less than 2\^-17"):
        W4A8Linear.from_packed(tiny)
