"""Products with packed weights whose D becomes 8 bits: the bits of `cleave.quantize` behind the product."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", minversion="2.10")

import cleave  # noqa: E402

TYPES = {"int8": "float32", "float8_e4m3fn": "bfloat16"}  # and what D is before it is quantised


def weight_of(*shape: int, gated: bool = False, format: str = "int4") -> cleave.PackedWeights:
    group = 16 if format == "nvfp4" else 32
    return cleave.pack_weights(torch.randn(shape).bfloat16() / 8, group, format, gated=gated)


def check(found: tuple[Any, ...], d: Any, dtype: str, granularity: str, **form: Any) -> None:
    for made, expected in zip(found, cleave.quantize(d, dtype, granularity, **form), strict=True):
        assert made.dtype == expected.dtype and made.stride() == expected.stride()
        assert torch.equal(made.float(), expected.float())


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("granularity", ["block_1x128", "block_128x128", "row", "tensor"])
@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("format", ["int4", "nvfp4"])
def test_the_bits_of_quantize(format: str, gated: bool, granularity: str, dtype: str) -> None:
    pytest.importorskip("cleave.torch", exc_type=ImportError)
    torch.manual_seed(0)
    weights = weight_of(288, 96, gated=gated, format=format)
    x, bias = torch.randn(130, 96).bfloat16(), torch.randn(288)
    options = {"bias": bias, "activation": "swiglu" if gated else "relu"}
    # Lines of 128 find their scales of sums that nothing has rounded.
    before = "float32" if granularity == "block_1x128" else TYPES[dtype]
    apart = cleave.mixed_gemm(x, weights, out_dtype=before, **options)
    by_torch = cleave.torch.mixed_gemm(x, weights, out_scale=granularity, out_dtype=getattr(torch, dtype), **options)
    check(by_torch, apart, dtype, granularity)
    found = cleave.mixed_gemm(x, weights, out_scale=granularity, out_dtype=dtype, **options)
    check(found, apart, dtype, granularity)


@pytest.mark.parametrize("granularity", ["block_1x128", "row"])
def test_experts(granularity: str) -> None:
    torch.manual_seed(0)
    weights, x = weight_of(3, 256, 64, gated=True, format="mxfp4"), torch.randn(20, 64).bfloat16()
    offs = torch.tensor([4, 4, 17], dtype=torch.int32)

    @cleave.epilogue
    def gate(acc: Any) -> Any:
        return cleave.silu(acc.gate) * acc.up

    before = "float32" if granularity == "block_1x128" else "bfloat16"
    apart = cleave.mixed_gemm(x, weights, offs=offs, epilogue=gate(), out_dtype=before)
    found = cleave.mixed_gemm(
        x, weights, offs=offs, epilogue=gate(), out_dtype="float8_e4m3fn", out_scale=granularity, scale_major="mn"
    )
    check(found, apart, "float8_e4m3fn", granularity, scale_major="mn")


def test_activations_of_8_bits_become_8_bits() -> None:
    q, scale = cleave.quantize(torch.randn(9, 96), "float8_e4m3fn")
    weights = cleave.pack_weights(torch.randn(256, 96), format="nvfp4")
    d = cleave.mixed_gemm(q, weights, scale_a=scale, out_dtype="float32")
    out, scale_out = torch.empty(9, 256, dtype=torch.int8), torch.empty(9, 2)
    cleave.mixed_gemm(q, weights, scale_a=scale, out=out, out_scale="block_1x128", scale_out=scale_out)
    check((out, scale_out), d, "int8", "block_1x128")


@pytest.mark.parametrize("options", [{}, {"deterministic": "batch_invariant"}, {"split_k_mode": "cluster"}])
@pytest.mark.parametrize("activation", ["none", "swiglu"])
def test_a_kernel_behind_the_product_quantises(activation: str, options: dict[str, Any]) -> None:
    for dtype, scaling in (("bfloat16", "none"), ("float8_e4m3fn", "row")):
        plan = cleave.plan_problem(
            16, 4096, 4096, dtype=dtype, scaling=scaling, weights="int4", out_dtype="int8", out_scale="block_1x128",
            activation=activation, device="h200", **options,
        )  # fmt: skip
        assert "transposed" in plan.kernel_name and "apart" in plan.kernel_name
        assert "halves" not in plan.kernel_name


def test_what_is_refused() -> None:
    x, weights = torch.randn(3, 64).bfloat16(), weight_of(64, 64)
    with pytest.raises(ValueError, match="out_scale is given, but b is packed weights of several products"):
        cleave.mixed_gemm(x.expand(2, 3, 64), weight_of(2, 64, 64), out_scale="block_1x128", out_dtype="int8")
    with pytest.raises(ValueError, match='out_scale="row" is for products whose D is a matrix'):
        cleave.mixed_gemm(x.expand(2, 3, 64), weight_of(2, 64, 64), out_scale="row", out_dtype="int8")
    with pytest.raises(TypeError, match="out_dtype"):
        cleave.mixed_gemm(x, weights, out_scale="row", out_dtype="bfloat16")
