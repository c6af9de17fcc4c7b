"""cleave.torch.RMSNormQuantize on CPU tensors, and W8A8Linear of what it gives."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", minversion="2.10")

from torch import nn  # noqa: E402

from cleave.torch import Quantized, RMSNormQuantize, W8A8Linear  # noqa: E402

dtypes = pytest.mark.parametrize("dtype", ["int8", "float8_e4m3fn"])
ERROR = {"int8": 0.02, "float8_e4m3fn": 0.05}


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def rms_norm() -> nn.RMSNorm:
    norm = nn.RMSNorm(256, 1e-5)
    nn.init.normal_(norm.weight, 1.0, 0.3)
    return norm


def relative_error(y: torch.Tensor, expected: torch.Tensor) -> float:
    return float((y.double() - expected.double()).norm() / expected.double().norm())


@dtypes
@pytest.mark.parametrize("x_dtype", [torch.bfloat16, torch.float32])
def test_norm_then_two_layers(dtype: str, x_dtype: torch.dtype) -> None:
    norm, linears = rms_norm(), [nn.Linear(256, 96, bias=bias) for bias in (True, False)]
    quantizing = RMSNormQuantize.from_norm(norm, dtype)
    layers = [W8A8Linear.from_linear(linear, dtype) for linear in linears]
    x, residual = torch.randn(2, 7, 256).to(x_dtype), torch.randn(2, 7, 256)
    with torch.no_grad():
        normed, total = quantizing(x, residual)
        assert isinstance(normed, Quantized) and normed.q.shape == x.shape and normed.dtype == x_dtype
        assert torch.equal(total, x.float() + residual)
        for layer, linear in zip(layers, linears, strict=True):
            y = layer(normed)
            assert y.shape == (2, 7, 96) and y.dtype == x_dtype
            assert relative_error(y, linear(norm(total))) < ERROR[dtype]
            assert torch.equal(layer((normed.q, normed.scale)), layer(normed._replace(dtype=torch.bfloat16)))
        alone = quantizing(x)
        assert relative_error(layers[0](alone), linears[0](norm(x.float()))) < ERROR[dtype]


def test_zero_centered_and_smooth() -> None:
    norm = rms_norm()
    smooth = 2.0 ** torch.randint(-2, 3, (256,))
    layer = W8A8Linear.from_linear(nn.Linear(256, 96), smooth=smooth)
    less_one = nn.RMSNorm(256, 1e-5)
    with torch.no_grad():
        less_one.weight.copy_(norm.weight - 1)
        x = torch.randn(9, 256)
        y = layer(RMSNormQuantize.from_norm(norm, smooth=smooth)(x))
        assert relative_error(y, layer(norm(x))) < 0.005
        again = layer(RMSNormQuantize.from_norm(less_one, zero_centered=True, smooth=smooth)(x))
        torch.testing.assert_close(again, y, rtol=1e-4, atol=1e-4)
    assert (RMSNormQuantize(8, zero_centered=True).weight == 0).all() and (RMSNormQuantize(8).weight == 1).all()


class LessOne(nn.RMSNorm):
    """As Gemma has it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.rms_norm(x, self.normalized_shape, self.weight + 1, self.eps)


@pytest.mark.parametrize(
    ("norm", "message"),
    [
        (nn.LayerNorm(256), "norm is LayerNorm, which is no RMS norm of rows"),
        (nn.LayerNorm(256, bias=False), "norm is LayerNorm, which makes of rows what no RMS norm"),
        (nn.RMSNorm((4, 64)), "norm is RMSNorm, which is no RMS norm of rows"),
        (LessOne(256, 1e-5), "norm is LessOne, which adds 1 to its weight; pass zero_centered=True"),
        (nn.RMSNorm(256, elementwise_affine=False), "norm is RMSNorm, which has no weight"),
    ],
)
def test_other_norms_are_refused(norm: nn.Module, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RMSNormQuantize.from_norm(norm)


def test_wrong_inputs() -> None:
    norm = RMSNormQuantize(256)
    with pytest.raises(ValueError, match=r"x is \(2, 2, 128\); its last dimension must be hidden_size, 256"):
        norm(torch.ones(2, 2, 128))
    with pytest.raises(ValueError, match=r"residual is \(4, 256\); it must be \(2, 2, 256\), as x is"):
        norm(torch.ones(2, 2, 256), torch.ones(4, 256))
    for scale in (0.0, -1.0, float("nan"), True):
        with pytest.raises(ValueError, match=r'activation is .*; it must be "dynamic", or one scale, positive'):
            RMSNormQuantize.from_norm(nn.RMSNorm(256), activation=scale)


def test_rows_that_share_memory_are_copied() -> None:
    norm, row = RMSNormQuantize.from_norm(rms_norm()), torch.randn(256)
    assert torch.equal(norm(row.expand(3, 256)).q, norm(row.expand(3, 256).contiguous()).q)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_without_an_eps_it_is_torchs(dtype: torch.dtype) -> None:
    norm, layer = nn.RMSNorm(256).to(dtype), W8A8Linear.from_linear(nn.Linear(256, 96).to(dtype))
    x = (torch.randn(5, 256) * 1e-3).to(dtype)
    with torch.no_grad():
        assert relative_error(layer(RMSNormQuantize.from_norm(norm)(x)), layer(norm(x))) < 0.01


@dtypes
def test_with_a_given_scale(dtype: str) -> None:
    """What the layer's own static quantisation gives of the norm in float32."""
    norm, x, residual = rms_norm(), torch.randn(2, 7, 256), torch.randn(2, 7, 256)
    scale = 4.0 / (127 if dtype == "int8" else 448)
    layer = W8A8Linear.from_linear(nn.Linear(256, 96), dtype, scale)
    quantizing = RMSNormQuantize.from_norm(norm, dtype, activation=scale)
    with torch.no_grad():
        normed, total = quantizing(x, residual)
        assert torch.equal(total, x + residual) and normed.scale.shape == (1,)
        assert relative_error(layer(normed), layer(norm(total))) < 0.005
        assert relative_error(layer(quantizing(x)), layer(norm(x))) < 0.005
    assert quantizing.half().activation_scale.dtype == torch.float32 and quantizing.weight.dtype == torch.float16
    again = RMSNormQuantize(256, 1e-5, dtype=dtype, activation="static", weight_dtype=torch.float16)
    again.load_state_dict(quantizing.state_dict())
    assert torch.equal(again(x).q.float(), quantizing(x).q.float())
    with pytest.raises(ValueError, match="activation is 'token'; it must be"):
        RMSNormQuantize(8, activation="token")
    with pytest.raises(ValueError, match="granularity is 'tensor'; norms find scales by 'row' or 'block_1x128'"):
        RMSNormQuantize(8, granularity="tensor")
    with pytest.raises(ValueError, match="activation is static, but granularity is 'block_1x128'; pass"):
        RMSNormQuantize(8, granularity="block_1x128", activation="static")


def test_names_of_transformers() -> None:
    class LlamaRMSNorm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight, self.variance_epsilon = nn.Parameter(torch.ones(64).bfloat16()), 1e-5

    made = RMSNormQuantize.from_norm(LlamaRMSNorm(), "float8_e4m3fn")
    assert made.eps == 1e-5 and made.weight.dtype == torch.bfloat16 and not made.weight.requires_grad
    settings = "eps=1e-05, dtype=torch.float8_e4m3fn, granularity=row, activation=dynamic, zero_centered=False"
    assert repr(made) == f"RMSNormQuantize(64, {settings})"
    again = RMSNormQuantize(64, 1e-5, dtype="float8_e4m3fn")
    again.load_state_dict(made.state_dict())


def test_compiles_in_one_graph() -> None:
    norm, layer = RMSNormQuantize.from_norm(rms_norm()), W8A8Linear.from_linear(nn.Linear(256, 96))

    def forward(x: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        normed, total = norm(x, residual)
        return layer(normed), total

    x, residual = torch.randn(5, 256), torch.randn(5, 256)
    with torch.no_grad():
        made = torch.compile(forward, fullgraph=True, backend="aot_eager")(x, residual)
        assert all(torch.equal(one, other) for one, other in zip(made, forward(x, residual), strict=True))


def test_refuses() -> None:
    layer = W8A8Linear.from_linear(nn.Linear(256, 96))
    normed = RMSNormQuantize.from_norm(rms_norm(), "float8_e4m3fn")(torch.randn(3, 256))
    with pytest.raises(ValueError, match=r"x is quantised to torch\.float8_e4m3fn, but the weight is torch\.int8"):
        layer(normed)
    with pytest.raises(ValueError, match="dtype is 'int4'; it must be"):
        RMSNormQuantize(8, dtype="int4")
    with pytest.raises(ValueError, match="norm is RMSNorm, which has no weight"):
        RMSNormQuantize.from_norm(nn.RMSNorm(8, elementwise_affine=False))
