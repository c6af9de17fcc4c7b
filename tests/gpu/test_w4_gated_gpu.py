"""Packed weights whose gates and ups the product joins, on the GPU, against float64: formats, modes, tiles, experts."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
from served import skip_unless_served  # noqa: E402

import cleave  # noqa: E402
import cleave.torch  # noqa: E402
from cleave import _core  # noqa: E402

MODES = ("none", "serial", "parallel", "cluster", "stream_k")
TILES = ("64x16", "64x64", "128x16", "128x48", "128x128", "256x16", "256x64", "256x128")
FORMATS = ("int4", "mxfp4", "nvfp4")


@pytest.fixture(autouse=True)
def hopper() -> None:
    skip_unless_served("sm90")


@cleave.epilogue
def limited(acc, alpha: cleave.scalar, limit: cleave.scalar):
    """gpt-oss's gate."""
    gate, up = cleave.minimum(acc.gate, limit), cleave.maximum(cleave.minimum(acc.up, limit), -limit)
    return gate * cleave.sigmoid(alpha * gate) * (up + 1.0)


@cleave.epilogue
def reduced(acc):
    d = cleave.silu(acc.gate) * acc.up
    return cleave.outputs(d=d, sums=cleave.sum(d, over="rows"), norms=cleave.sum_of_squares(d, over="columns"))


@cleave.epilogue
def largest(acc):
    return cleave.outputs(d=acc.gate * acc.up, amax=cleave.absmax(acc.up, over="all"))


def packed_of(shape: tuple[int, ...], form: str, dtype: torch.dtype = torch.bfloat16) -> cleave.PackedWeights:
    w = (torch.randn(shape, device="cuda") * 0.05).to(dtype)
    return cleave.pack_weights(w, 64 if form == "int4" else None, form, gated=True)


def check(d: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, of_gpt: bool) -> None:
    sums = x.double() @ weight.double().t() + (0 if bias is None else bias.double())
    gate, up = sums.chunk(2, -1)
    if of_gpt:
        gate, up = gate.clamp(max=2.0), up.clamp(-2.0, 2.0)
        expected = gate * torch.sigmoid(1.702 * gate) * (up + 1)
    else:
        expected = torch.nn.functional.silu(gate) * up
    assert bool(d.isfinite().all())
    assert (d.double() - expected).abs().max() <= 1e-2 * expected.abs().max(), (tuple(d.shape), tuple(weight.shape))


@pytest.mark.parametrize("kernel", ["auto", "streamed"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("form", FORMATS)
def test_formats(form: str, dtype: torch.dtype, kernel: str) -> None:
    for m, n, k in ((1, 16, 64), (3, 208, 512), (17, 1040, 1280), (70, 2064, 768), (200, 416, 2304)):
        packed = packed_of((n, k), form, dtype)
        x = torch.randn(m, k, device="cuda", dtype=dtype)
        bias = torch.randn(n, device="cuda")
        weight = cleave.dequantize_weights(packed, str(dtype).removeprefix("torch.")) if form == "int4" else None
        weight = cleave.dequantize_weights(packed) if weight is None else weight
        for of_gpt in (False, True):
            out = torch.full((m, n // 2), float("nan"), device="cuda", dtype=dtype)
            how: dict[str, Any] = {"epilogue": limited(alpha=1.702, limit=2.0)} if of_gpt else {"activation": "swiglu"}
            cleave.mixed_gemm(x, packed, bias=bias, out=out, kernel=kernel, **how)
            check(out, x, weight, bias, of_gpt)


@pytest.mark.parametrize("mode", MODES)
def test_splits(mode: str) -> None:
    for form in FORMATS:
        for m in (1, 16, 40, 200):
            packed = packed_of((1040, 4096), form)
            x = torch.randn(m, 4096, device="cuda").bfloat16()
            out = torch.full((m, 520), float("nan"), device="cuda", dtype=torch.bfloat16)
            slices = None if mode in ("none", "stream_k") else 4
            options = {"split_k_mode": mode, "split_k_slices": slices, "kernel": "sm90"}
            cleave.mixed_gemm(x, packed, activation="swiglu", out=out, **options)
            check(out, x, cleave.dequantize_weights(packed), None, False)


@pytest.mark.parametrize("split", ["", " parallel 3", " cluster 2"])
@pytest.mark.parametrize("tile", TILES)
def test_tiles(tile: str, split: str) -> None:
    for m, n, k in ((24, 1040, 1152), (260, 2192, 640)):
        packed = packed_of((n, k), "int4")
        x = torch.randn(m, k, device="cuda").bfloat16()
        out = torch.full((m, n // 2), float("nan"), device="cuda", dtype=torch.bfloat16)
        text = f"{m}x{n // 2}x{k}x1 tn bfloat16 bfloat16 weights int4 64 swiglu"
        try:
            plan = _core.plan_as(_core.plan_text(text, "cuda"), f"sm90 {tile} transposed{split}")
        except ValueError as error:
            assert "cannot serve" in str(error)
            continue
        arrays = {"a": x, "b": packed.packed, "d": out, "weight_scale": packed.scales}
        addresses = {name: array.data_ptr() for name, array in arrays.items()}
        _core.run_at(plan, addresses, torch.cuda.current_stream().cuda_stream)
        torch.cuda.synchronize()
        check(out, x, cleave.dequantize_weights(packed, "bfloat16"), None, False)


@pytest.mark.parametrize("form", FORMATS)
def test_experts(form: str) -> None:
    packed = packed_of((4, 416, 640), form)
    weight = cleave.dequantize_weights(packed)
    bias = torch.randn(4, 416, device="cuda")
    for ends in ([3, 3, 40, 64], [0, 1, 2, 64], [64, 64, 64, 64], [16, 32, 48, 60]):
        offs = torch.tensor(ends, device="cuda", dtype=torch.int32)
        x = torch.randn(64, 640, device="cuda").bfloat16()
        d = cleave.mixed_gemm(x, packed, offs=offs, bias=bias, epilogue=limited(alpha=1.702, limit=2.0))
        for e, (begin, end) in enumerate(zip([0, *ends], ends, strict=False)):
            if begin < end:
                check(d[begin:end], x[begin:end], weight[e], bias[e], True)


def test_eight_bits() -> None:
    w = torch.randn(1040, 1024, device="cuda") * 0.05
    packed = cleave.pack_weights(w, 64, scale_dtype="float16", gated=True)
    for dtype in ("float8_e4m3fn", "int8"):
        for m in (5, 64):
            q, scale = cleave.quantize(torch.randn(m, 1024, device="cuda"), dtype)
            d = cleave.mixed_gemm(q, packed, scale_a=scale, activation="swiglu")
            check(d, q.float() * scale.reshape(-1, 1), cleave.dequantize_weights(packed), None, False)


@pytest.mark.parametrize("kernel", ["sm90", "streamed"])
@pytest.mark.parametrize("mode", MODES)
def test_what_is_reduced(mode: str, kernel: str) -> None:
    if kernel == "streamed" and mode not in ("none", "parallel"):
        pytest.skip("not served")
    for form in FORMATS:
        for m, n, k in ((1, 16, 512), (17, 1040, 1280), (200, 2064, 2304)):
            packed = packed_of((n, k), form)
            x = torch.randn(m, k, device="cuda").bfloat16()
            gate, up = (x.double() @ cleave.dequantize_weights(packed).double().t()).chunk(2, -1)
            expected = torch.nn.functional.silu(gate) * up
            slices = None if mode in ("none", "stream_k") else 2
            options = {"split_k_mode": mode, "split_k_slices": slices, "kernel": kernel, "out_dtype": "float32"}
            out = [torch.full(shape, float("nan"), device="cuda") for shape in ((m, n // 2), (n // 2,), (m,))]
            cleave.mixed_gemm(x, packed, epilogue=reduced, out=tuple(out), **options)
            of_d, sums, norms = (x.double() for x in out)
            assert (of_d - expected).abs().max() <= 1e-2 * expected.abs().max(), (m, n, k, form)
            assert ((sums - of_d.sum(0)).abs() <= 1e-5 * of_d.abs().sum(0)).all(), (m, n, k, form)
            assert ((norms - (of_d**2).sum(1)).abs() <= 1e-5 * norms).all(), (m, n, k, form)
            d, amax = cleave.mixed_gemm(x, packed, epilogue=largest, **options)
            assert (d.double() - gate * up).abs().max() <= 1e-2 * (gate * up).abs().max()
            assert abs(amax.item() / up.abs().max().item() - 1) < 1e-2


@pytest.mark.parametrize("granularity", ["block_1x128", "block_128x128", "row", "tensor"])
@pytest.mark.parametrize("gated", [False, True])
def test_d_becomes_8_bits(gated: bool, granularity: str) -> None:
    for m, n, k in ((1, 512, 512), (17, 1056, 1280), (200, 2048, 768)):
        packed = cleave.pack_weights(torch.randn(n, k, device="cuda").bfloat16() / 16, 64, gated=gated)
        x = torch.randn(m, k, device="cuda").bfloat16()
        how = {"activation": "swiglu" if gated else "relu"}
        for dtype, before in (("int8", "float32"), ("float8_e4m3fn", "bfloat16")):
            whole = "float32" if granularity == "block_1x128" else before
            # Sums have one order, whatever the tile.
            d = cleave.mixed_gemm(x, packed, out_dtype=whole, split_k_mode="none", kernel="sm90", **how)
            found = cleave.mixed_gemm(
                x, packed, out_dtype=dtype, out_scale=granularity, split_k_mode="none", kernel="sm90", **how
            )
            for made, wanted in zip(found, cleave.quantize(d, dtype, granularity), strict=True):
                assert torch.equal(made.float(), wanted.float()), (m, n, k, dtype)
