"""cleave.mixed_gemm of weights in NVFP4 on the CPU backend against float64; and what it refuses."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

torch = pytest.importorskip("torch", minversion="2.10")

import cleave  # noqa: E402
from cleave import _core  # noqa: E402

E4M3 = torch.float8_e4m3fn
MODES = ("auto", "none", "serial", "parallel", "cluster", "stream_k")
DTYPES = [torch.bfloat16, torch.float16]


def packed_of(*shape: int, global_scale: Any = 0.013) -> cleave.PackedWeights:
    """Codes and scales of all kinds: subnormal ones, the largest, both signs."""
    torch.manual_seed(0)
    *experts, rows, columns = shape
    codes = torch.randint(0, 16, shape, dtype=torch.uint8)
    scales = torch.randint(0, 127, (*experts, columns // 16, rows), dtype=torch.uint8).view(E4M3)
    if experts and not isinstance(global_scale, torch.Tensor):
        global_scale = torch.rand(*experts) + 0.5
    return cleave.pack_weights(codes, 16, "nvfp4", scales=scales, global_scale=global_scale)


def check(d: Any, x: Any, weights: cleave.PackedWeights) -> None:
    """D in float32: elements are exact, so that sums and the global scale alone are rounded."""
    weight = cleave.dequantize_weights(weights).double().mT
    bound = (x.double().abs() @ weight.abs()) * (x.shape[-1] + 4) * 2.0**-24
    assert d.dtype == torch.float32 and bool(((d.double() - x.double() @ weight).abs() <= bound).all())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("mode", MODES)
def test_products(mode: str, dtype: torch.dtype) -> None:
    for m, n, k in ((1, 1, 16), (5, 70, 208), (33, 130, 1040)):
        weights = packed_of(n, k)
        x = torch.randn(m, k).to(dtype)
        slices = 3 if mode in ("serial", "parallel", "cluster") and k > 500 else None
        check(cleave.mixed_gemm(x, weights, out_dtype="float32", split_k_mode=mode, split_k_slices=slices), x, weights)


def test_epilogues() -> None:
    """Bias and C are not scaled, sums are."""
    weights, x = packed_of(70, 208), torch.randn(5, 208).bfloat16()
    bias, c = torch.randn(70), torch.randn(5, 70)
    sums = cleave.mixed_gemm(x, weights, out_dtype="float32")
    d = cleave.mixed_gemm(x, weights, bias=bias, c=c, alpha=0.5, beta=2.0, activation="relu", out_dtype="float32")
    torch.testing.assert_close(d, (0.5 * sums + 2 * c + bias).relu(), rtol=1e-5, atol=1e-5)


def test_global_scales_of_rows() -> None:
    weights, x = packed_of(70, 64, global_scale=torch.rand(70) + 0.5), torch.randn(5, 64).half()
    assert weights.global_scale.shape == (70,)
    check(cleave.mixed_gemm(x, weights, out_dtype="float32"), x, weights)


@pytest.mark.parametrize("by_row", [False, True])
def test_experts(by_row: bool) -> None:
    weights = packed_of(3, 70, 96, global_scale=torch.rand(3, 70) + 0.5 if by_row else None)
    assert weights.global_scale.shape == ((3, 70) if by_row else (3,))
    x = torch.randn(3, 5, 96).bfloat16()
    d = cleave.mixed_gemm(x, weights, out_dtype="float32")
    check(d, x, weights)
    ends = torch.tensor([5, 10, 15], dtype=torch.int32)
    assert torch.equal(cleave.mixed_gemm(x.view(15, 96), weights, offs=ends, out_dtype="float32"), d.view(15, 70))
    assert torch.equal(cleave.unpack_weights(weights), cleave.unpack_weights(dataclasses.replace(weights)))


@pytest.mark.parametrize("by_row", [False, True])
def test_one_expert_serves_a_batch(by_row: bool) -> None:
    weights = packed_of(1, 70, 96, global_scale=torch.rand(1, 70) + 0.5 if by_row else None)
    for batch in (1, 3):
        x = torch.randn(batch, 5, 96).half()
        check(cleave.mixed_gemm(x, weights, out_dtype="float32"), x, weights)


def test_rows_of_batches_have_the_same_bits() -> None:
    weights, x = packed_of(70, 1040), torch.randn(40, 1040).half()
    whole = cleave.mixed_gemm(x, weights, deterministic="batch_invariant")
    for rows in (1, 7, 33):
        assert torch.equal(cleave.mixed_gemm(x[:rows], weights, deterministic="batch_invariant"), whole[:rows])


def call(**changes: Any) -> Any:
    weights = packed_of(70, 64)
    arguments = {
        "a": torch.ones(3, 64).half(),
        "packed": weights.packed,
        "scales": weights.scales,
        "global_scale": weights.global_scale,
        "out_features": 70,
        "group_size": 16,
        "format": "nvfp4",
    }
    return _core.mixed_gemm(**(arguments | changes))


def test_nan_scales_reach_their_rows_alone() -> None:
    scales = packed_of(70, 64).scales.clone()
    scales.view(torch.uint8)[1, 5] = 0x7F
    assert torch.equal(call(scales=scales).isnan().any(0).nonzero().flatten(), torch.tensor([5]))


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"global_scale": None}, ValueError, "global_scale is missing, but format is nvfp4, which has one; pass it"),
        ({"global_scale": torch.ones(3)}, ValueError, r"global_scale is \(3,\); it must be \(1,\), .* or \(70,\)"),
        ({"global_scale": torch.ones(1).double()}, TypeError, "global_scale is float64; it must be float32"),
        ({"group_size": 32, "scales": torch.ones(2, 70).to(E4M3)}, ValueError, "is nvfp4; its groups are of 16"),
        ({"scales": torch.ones(4, 70).half()}, TypeError, "scales is float16; it must be float8_e4m3fn"),
        ({"zeros": torch.ones(4, 70, dtype=torch.uint8)}, ValueError, "zeros is given, but format is nvfp4"),
        ({"format": "int4", "group_size": 64, "scales": torch.ones(1, 70).half()}, ValueError, "which has none; leave"),
    ],
)
def test_what_does_not_fit_is_said(changes: dict[str, Any], error: type[Exception], words: str) -> None:
    assert call().shape == (3, 70)
    with pytest.raises(error, match=words):
        call(**changes)


def test_global_scales_that_are_none_are_refused() -> None:
    for value, words in ((0.0, "has 0.0"), (torch.full((64,), float("nan")), "has nan"), (torch.ones(3), r"is \[3\]")):
        with pytest.raises(ValueError, match=f"global_scale {words}; it must be"):
            packed_of(64, 64, global_scale=value)


MEASURED = [  # one H200, us of 28672x4096: docs/notes/2026-11-four-bit-weights.md
    (1, "float8_e4m3fn", "256x16", 32.6),
    (16, "float8_e4m3fn", "256x16", 31.3),
    (64, "float8_e4m3fn", "128x64", 60.9),
    (256, "float8_e4m3fn", "128x64", 205.4),
    (256, "int8", "128x64", 285.3),
]


@pytest.mark.parametrize(("rows", "dtype", "tile", "us"), MEASURED)
def test_few_rows_of_8_bits_take_what_they_are_predicted_to(rows: int, dtype: str, tile: str, us: float) -> None:
    plan = cleave.plan_problem(rows, 28672, 4096, dtype=dtype, weights="nvfp4", device="h200")
    assert plan.kernel_name == f"sm90 {tile} transposed"
    assert plan.candidates[0]["predicted_us"] == pytest.approx(us, rel=0.06)
