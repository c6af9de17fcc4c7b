"""Gradients of cleave.torch.mixed_gemm: of activations, biases, c and what functions read, against float64."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", minversion="2.10")

from test_torch_mixed import FORMATS, K, M, N, operands  # noqa: E402

import cleave.torch  # noqa: E402

ROWS = (slice(0, 4), slice(4, 4), slice(4, 8))  # of experts; the last ones are nobody's


@cleave.epilogue
def modulated(acc, factor: cleave.row, shift: cleave.column):
    pre = cleave.silu(acc)
    return cleave.outputs(d=pre * factor + shift, norm=cleave.sum_of_squares(pre, over="columns"))


def exact_sums(a: Any, bias: Any, weights: Any, experts: bool, alpha: float) -> Any:
    """alpha * a @ W^T + bias in float64, of rows that belong to someone."""
    dtype = "float32" if weights.format == "nvfp4" else "bfloat16"
    table = cleave.dequantize_weights(weights, dtype).double().view(-1, N, K)
    parts = ROWS if experts else (slice(0, M),)
    return torch.cat([alpha * (a[rows] @ table[e].T) + bias.view(-1, N)[e] for e, rows in enumerate(parts)])


def tracked(*tensors: Any) -> list[Any]:
    return [x.detach().clone().requires_grad_() for x in tensors]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("experts", [False, True])
@pytest.mark.parametrize("format", FORMATS)
def test_functions(format: str, experts: bool, compiled: bool) -> None:
    a, weights, _ = operands(format, (3,) if experts else ())
    offs = {"offs": torch.tensor([4, 4, 8], dtype=torch.int32)} if experts else {}
    known = 8 if experts else M
    a, bias, factor, shift = tracked(
        a, torch.randn(3, N) if experts else torch.randn(N), torch.randn(N), torch.randn(M)
    )

    def layer(a: Any, bias: Any, factor: Any, shift: Any) -> Any:
        epilogue = modulated(factor=factor, shift=shift)
        return cleave.torch.mixed_gemm(a, weights, **offs, bias=bias, epilogue=epilogue, alpha=0.5, out_dtype="float32")

    torch.compiler.reset()
    run = torch.compile(layer, fullgraph=True, backend="aot_eager") if compiled else layer
    d, norm = run(a, bias, factor, shift)
    of_d, of_norm = torch.randn(M, N), torch.randn(M)
    made = torch.autograd.grad((d, norm), (a, bias, factor, shift), (of_d, of_norm))

    wide = tracked(*(x.double() for x in (a, bias, factor, shift)))
    pre = torch.nn.functional.silu(exact_sums(wide[0], wide[1], weights, experts, 0.5))
    outputs = pre * wide[2] + wide[3][:known, None], (pre * pre).sum(1)
    torch.testing.assert_close(d[:known].double(), outputs[0], rtol=1e-4, atol=1e-3)
    expected = torch.autograd.grad(outputs, wide, (of_d[:known].double(), of_norm[:known].double()))
    for one, other in zip(made, expected, strict=True):
        assert one.dtype in (torch.bfloat16, torch.float32)
        scale = other.abs().max().item()
        torch.testing.assert_close(one.double(), other, rtol=2**-7, atol=2**-7 * scale)


@pytest.mark.parametrize("activation", ["none", "relu", "silu", "gelu"])
@pytest.mark.parametrize("batched", [False, True])
def test_products_without_a_function(activation: str, batched: bool) -> None:
    a, weights, _ = operands("int4", (2,) if batched else ())
    a = torch.stack([a, -a]) if batched else a
    c = torch.randn(*a.shape[:-1], N).bfloat16()
    a, bias, c = tracked(a, torch.randn(N), c)
    options = {"activation": activation, "beta": 2.0}
    d = cleave.torch.mixed_gemm(a, weights, bias=bias, c=c, **options)
    with torch.no_grad():
        assert torch.equal(d, cleave.torch.mixed_gemm(a, weights, bias=bias, c=c, **options))
    grad = torch.randn_like(d)
    made = torch.autograd.grad(d, (a, bias, c), grad)
    wide = tracked(*(x.double() for x in (a, bias, c)))
    sums = wide[0] @ cleave.dequantize_weights(weights, "bfloat16").double().mT + wide[1] + 2 * wide[2]
    functions = {"none": lambda x: x, **{name: getattr(torch.nn.functional, name) for name in ("relu", "silu", "gelu")}}
    expected = torch.autograd.grad(functions[activation](sums), wide, grad.double())
    for one, other in zip(made, expected, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=2**-5, atol=2**-6 * other.abs().max().item())


def test_8_bit_activations() -> None:
    """a has no gradient then; bias has."""
    torch.manual_seed(1)
    weights = cleave.pack_weights(torch.randn(N, K).bfloat16(), 128, scale_dtype="float16")
    q, scale = cleave.quantize(torch.randn(M, K), "float8_e4m3fn")
    bias = torch.randn(N, requires_grad=True)
    d = cleave.torch.mixed_gemm(q, weights, scale_a=scale, bias=bias)
    grad = torch.randn_like(d)
    (made,) = torch.autograd.grad(d, bias, grad)
    torch.testing.assert_close(made, grad.float().sum(0), rtol=1e-6, atol=1e-6)


def test_gates_have_none_for_activations() -> None:
    torch.manual_seed(2)
    weights = cleave.pack_weights(torch.randn(2 * 64, K).bfloat16(), 32, gated=True)
    a, bias = torch.randn(M, K).bfloat16().requires_grad_(), torch.randn(2 * 64)
    with pytest.raises(RuntimeError, match="a requires grad, but gates of packed weights have no gradient for it"):
        cleave.torch.mixed_gemm(a, weights, bias=bias, activation="swiglu")
    assert cleave.torch.mixed_gemm(a.detach(), weights, bias=bias, activation="swiglu").shape == (M, 64)
