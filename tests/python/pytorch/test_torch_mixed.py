"""cleave.torch.mixed_gemm, and epilogue functions of torch.ops.cleave.mixed_gemm and mixed_grouped_gemm."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

torch = pytest.importorskip("torch", minversion="2.10")

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

import cleave.torch  # noqa: E402

M, N, K = 10, 70, 128
FORMATS = {"int4": 32, "mxfp4": 32, "nvfp4": 16}


@cleave.epilogue
def normed(acc, factor: cleave.scalar, weight: cleave.column, residual: cleave.matrix):
    x = acc * factor * weight + residual
    return cleave.outputs(d=x, rounded=x.to("float16"), norm=cleave.sum_of_squares(x, over="columns"))


def operands(format: str, experts: tuple[int, ...] = ()) -> tuple[Any, Any, Any]:
    """a, the packed weight, and the function's inputs."""
    torch.manual_seed(0)
    weights = cleave.pack_weights(torch.randn(*experts, N, K).bfloat16(), FORMATS[format], format)
    inputs = {"factor": 0.5, "weight": torch.randn(M), "residual": torch.randn(M, N)}
    return torch.randn(M, K).bfloat16(), weights, inputs


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("experts", [False, True])
@pytest.mark.parametrize("format", FORMATS)
def test_functions(format: str, experts: bool, compiled: bool) -> None:
    a, weights, inputs = operands(format, (3,) if experts else ())
    bias = torch.randn(3, N) if experts else torch.randn(N)
    given: dict[str, Any] = {"bias": bias}
    if experts:
        given["offs"] = torch.tensor([4, 4, 8], dtype=torch.int32)

    def layer(a: Any, **inputs: Any) -> Any:
        return cleave.torch.mixed_gemm(a, weights, **given, epilogue=normed(**inputs), alpha=2.0)

    torch.compiler.reset()
    run = torch.compile(layer, fullgraph=True, backend="aot_eager") if compiled else layer
    table = cleave.dequantize_weights(weights, "float32" if format == "nvfp4" else a.dtype).double().view(-1, N, K)
    exact = torch.zeros(M, N, dtype=torch.float64)
    for e, rows in enumerate([slice(0, 4), slice(4, 4), slice(4, 8)] if experts else [slice(0, M)]):
        pre = 2 * (a[rows].double() @ table[e].T) + bias.view(-1, N)[e]
        exact[rows] = pre * 0.5 * inputs["weight"][rows, None] + inputs["residual"][rows]
    d, rounded, norm = run(a, **inputs)
    assert (d.dtype, rounded.dtype, norm.dtype) == (torch.bfloat16, torch.float16, torch.float32)
    # Sums are float32's, and what is made of them is rounded once.
    torch.testing.assert_close(rounded.double(), exact, rtol=2**-11, atol=1e-4)
    torch.testing.assert_close(d.double(), exact, rtol=2**-8, atol=1e-4)
    torch.testing.assert_close(norm.double(), (exact**2).sum(1), rtol=1e-4, atol=1e-4)
    same = cleave.mixed_gemm(a, weights, **given, epilogue=normed(**inputs), alpha=2.0)
    assert all(torch.equal(x, y) for x, y in zip((d, rounded, norm), same, strict=True))


def test_products_without_a_function() -> None:
    a, weights, _ = operands("int4")
    expected = cleave.mixed_gemm(a, weights, activation="relu", out_dtype="float32")
    assert torch.equal(cleave.torch.mixed_gemm(a, weights, activation="relu", out_dtype=torch.float32), expected)
    experts, offs = operands("nvfp4", (3,))[1], torch.tensor([4, 4, 8])
    assert torch.equal(cleave.torch.mixed_gemm(a, experts, offs=offs), cleave.mixed_gemm(a, experts, offs=offs))


def test_columns_in_another_order() -> None:
    torch.manual_seed(0)
    order = torch.randperm(K, dtype=torch.int32)
    codes, scales = torch.randint(0, 16, (N, K), dtype=torch.uint8), torch.rand(4, N).bfloat16()
    groups = (torch.arange(K) // 32)[order.argsort()].to(torch.int32)
    weights = cleave.pack_weights(codes, 32, scales=scales, g_idx=groups)
    assert weights.perm is not None
    a = torch.randn(M, K).bfloat16()
    function = normed(factor=1.0, weight=torch.ones(M), residual=torch.zeros(M, N))
    made = (module.mixed_gemm(a, weights, epilogue=function) for module in (cleave.torch, cleave))
    assert all(torch.equal(x, y) for x, y in zip(*made, strict=True))


def test_fakes() -> None:
    _, weights, inputs = operands("int4")
    experts = operands("int4", (3,))[1]
    with FakeTensorMode(allow_non_fake_inputs=True):
        rows, batch = torch.empty(M, K, dtype=torch.float16), torch.empty(3, M, K, dtype=torch.float16)
        made = cleave.torch.mixed_gemm(rows, weights, epilogue=normed(**inputs))
        assert [tuple(x.shape) for x in made] == [(M, N), (M, N), (M,)]
        assert [x.dtype for x in made] == [torch.float16, torch.float16, torch.float32]
        offs = torch.empty(3, dtype=torch.int32)
        made = cleave.torch.mixed_gemm(rows, experts, offs=offs, epilogue=normed(**inputs), out_dtype=torch.float32)
        assert [tuple(x.shape) for x in made] == [(M, N), (M, N), (M,)] and made[0].dtype == torch.float32
        made = cleave.torch.mixed_gemm(batch, experts, epilogue=normed(**inputs))
        assert [tuple(x.shape) for x in made] == [(3, M, N), (3, M, N), (3, M, 1)]


def test_what_is_refused() -> None:
    a, weights, inputs = operands("int4")
    tracked = dataclasses.replace(weights, scales=weights.scales.clone().requires_grad_())
    with pytest.raises(RuntimeError, match=r"scales requires grad, but has no gradient here; pass scales.detach\(\)"):
        cleave.torch.mixed_gemm(a, tracked, epilogue=normed(**inputs))
    with torch.no_grad():
        cleave.torch.mixed_gemm(a, tracked, epilogue=normed(**inputs))
    gate = cleave.epilogue(lambda acc: cleave.silu(acc.gate) * acc.up)
    with pytest.raises(ValueError, match="the epilogue joins gates and ups, but weights is packed without gated=True"):
        cleave.torch.mixed_gemm(a, weights, epilogue=gate)
    with pytest.raises(ValueError, match="activation is given beside an epilogue function"):
        cleave.torch.mixed_gemm(a, weights, epilogue=normed(**inputs), activation="relu")
    with pytest.raises(ValueError, match="activation is 'gelo'; it must be one of none, relu"):
        cleave.torch.mixed_gemm(a.clone().requires_grad_(), weights, activation="gelo")
    with pytest.raises(TypeError, match="weights is Tensor; it must be a PackedWeights"):
        cleave.torch.mixed_gemm(a, torch.ones(N, K))
