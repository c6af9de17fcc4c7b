"""cleave.torch.Float8SwiGLU on CPU tensors, against products and quantisations apart."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", minversion="2.10")

from torch import Tensor, nn  # noqa: E402

import cleave  # noqa: E402
from cleave.torch import Float8Linear, Float8SwiGLU, Gate  # noqa: E402

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
_ops = torch.ops.cleave


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def step(layer: Any, x: Tensor, dy: Tensor, *parameters: Tensor) -> list[Tensor]:
    x = x.detach().requires_grad_()
    y = layer(x)
    return [y.detach(), *torch.autograd.grad(y, [x, *parameters], dy)]


def rows(x: Tensor, dtype: torch.dtype, kind: str = "block_1x128") -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return _ops.quantize_transposed(x, dtype, kind, scale_major="mn" if kind == "block_1x128" else "k")


def product(a: tuple[Tensor, ...], b: tuple[Tensor, ...], dtype: torch.dtype = torch.float32) -> Tensor:
    return _ops.scaled_gemm(a[0], b[0].t(), a[1], b[1].t(), None, dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("grad_dtype", [E4M3, E5M2], ids=str)
def test_is_what_its_steps_make(dtype: torch.dtype, grad_dtype: torch.dtype) -> None:
    layer = Float8SwiGLU(256, 384, 160, dtype=dtype, grad_dtype=grad_dtype)
    x, dy = torch.randn(96, 256).to(dtype), torch.randn(96, 160).to(dtype)
    y, dx, of_gate_up, of_down = step(layer, x, dy, *layer.parameters())

    of_x, first = rows(x, E4M3), rows(layer.gate_up.weight.detach(), E4M3, "block_128x128")
    second = rows(layer.down.weight.detach(), E4M3, "block_128x128")
    gate, up = (half.contiguous() for half in product(of_x, first).chunk(2, -1))
    hidden = cleave.gemm(
        torch.cat((gate, up), 1), torch.eye(2 * 384), activation="swiglu", out_dtype="float32"
    )  # as epilogues compute it: products with ones and zeros are exact
    assert torch.equal(y, product(rows(hidden, E4M3), second, dtype))

    gates, ups = (half.to(dtype).double().requires_grad_() for half in (gate, up))
    of_dy = rows(dy, grad_dtype)
    again = nn.functional.silu(gates) * ups
    of_sums = torch.cat(torch.autograd.grad(again, (gates, ups), product(of_dy, second[2:]).double()), 1).to(dtype)
    sums = rows(of_sums, grad_dtype)
    expected = {
        "dx": (dx, product(sums, first[2:], dtype)),
        "gate_up": (of_gate_up, product(sums[2:], of_x[2:], dtype)),
        "down": (of_down, product(of_dy[2:], rows(again.detach().to(dtype), E4M3)[2:], dtype)),
    }
    for name, (made, wanted) in expected.items():  # an element may be rounded to a neighbour, in 16 bits and in 8
        error = (made.double() - wanted.double()).norm() / wanted.double().norm()
        assert error <= 2.0**-8, name


@pytest.mark.parametrize("shape", [(2, 3, 256), (0, 256), (1, 256)])
def test_shapes(shape: tuple[int, ...]) -> None:
    layer = Float8SwiGLU(256, 128, dtype=torch.bfloat16)
    x, dy = torch.randn(shape).bfloat16(), torch.randn(shape).bfloat16()
    y, dx, *of_weights = step(layer, x, dy, *layer.parameters())
    assert y.shape == dx.shape == x.shape
    assert [each.shape for each in of_weights] == [(256, 256), (256, 128)]


@pytest.mark.parametrize("needed", ["x", "gate_up.weight", "down.weight"])
def test_one_gradient_alone(needed: str) -> None:
    layer, x = Float8SwiGLU(128, 256, dtype=torch.bfloat16), torch.randn(32, 128).bfloat16()
    dy = torch.randn(32, 128).bfloat16()
    _, *gradients = step(layer, x, dy, *layer.parameters())
    named = dict(zip(("x", "gate_up.weight", "down.weight"), gradients, strict=True))
    for name, parameter in layer.named_parameters():
        parameter.requires_grad_(name == needed)
    x.requires_grad_(needed == "x")
    of = x if needed == "x" else layer.get_parameter(needed)
    (made,) = torch.autograd.grad(layer(x), of, dy)
    assert torch.equal(made, named[needed])


def test_compiles_to_one_graph() -> None:
    layer, x, dy = Float8SwiGLU(128, 256, dtype=torch.bfloat16), torch.randn(32, 128), torch.randn(32, 128)
    x, dy = x.bfloat16(), dy.bfloat16()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    made = step(compiled, x, dy, *layer.parameters())
    for one, other in zip(made, step(layer, x, dy, *layer.parameters()), strict=True):
        assert torch.equal(one, other)


def test_adds_to_main_grad() -> None:
    options = {"dtype": torch.bfloat16}
    layer, added = Float8SwiGLU(128, 256, **options), Float8SwiGLU(128, 256, accumulate_main_grad=True, **options)
    added.load_state_dict(layer.state_dict())
    x, dy = torch.randn(32, 128).bfloat16(), torch.randn(32, 128).bfloat16()
    for weight in added.parameters():
        weight.main_grad = torch.ones_like(weight, dtype=torch.float32)
    layer(x).backward(dy)
    added(x).backward(dy)
    for one, other in zip(added.parameters(), layer.parameters(), strict=True):
        assert one.grad is None
        torch.testing.assert_close(one.main_grad - 1, other.grad.float(), rtol=2**-7, atol=1e-3)


@pytest.mark.parametrize(
    "options", [{"recipe": "rowwise"}, {"recipe": "tensorwise"}, {"hidden": 144}, {"dtype": torch.float32}], ids=str
)
def test_otherwise_layers_run_one_after_the_other(options: dict[str, Any]) -> None:
    dtype, hidden = options.pop("dtype", torch.bfloat16), options.pop("hidden", 256)
    layer = Float8SwiGLU(128, hidden, dtype=dtype, **options)
    x, dy = torch.randn(32, 128).to(dtype), torch.randn(32, 128).to(dtype)
    made = step(layer, x, dy, *layer.parameters())
    apart = step(lambda x: layer.down(Gate()(layer.gate_up(x))), x, dy, *layer.parameters())
    assert all(torch.equal(one, other) for one, other in zip(made, apart, strict=True))


def test_without_gradients_and_under_autocast() -> None:
    layer, x = Float8SwiGLU(128, 256), torch.randn(32, 128)
    wide = nn.functional.silu((x @ layer.gate_up.weight.T)[:, :256]) * (x @ layer.gate_up.weight.T)[:, 256:]
    wide = wide @ layer.down.weight.T
    with torch.no_grad():
        assert (layer(x) - wide).norm() <= 0.1 * wide.norm()
    with torch.autocast("cpu", torch.bfloat16):
        y = layer(x)
    assert y.dtype == torch.bfloat16 and (y - wide).norm() <= 0.1 * wide.norm()


def test_shares_the_parameters_of_the_layers_it_is_made_of() -> None:
    gate_up, down = nn.Linear(64, 256, bias=False), nn.Linear(128, 64, bias=False)
    layer = Float8SwiGLU.from_float(gate_up, down, grad_dtype="float8_e5m2")
    assert layer.gate_up.weight is gate_up.weight and layer.down.weight is down.weight
    assert isinstance(layer.down, Float8Linear) and layer.down.grad_dtype == E5M2
    with pytest.raises(ValueError, match="256 outputs and down 64 inputs; gate_up must have"):
        Float8SwiGLU.from_float(gate_up, nn.Linear(64, 64, bias=False))
    with pytest.raises(ValueError, match="has a bias"):
        Float8SwiGLU.from_float(nn.Linear(64, 256), down)
