"""cleave.mixed_gemm of activations in 8 bits on the CPU backend against float64, and what it refuses."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

import cleave  # noqa: E402

E4M3 = torch.float8_e4m3fn
BYTES = {"float8_e4m3fn": E4M3, "int8": torch.int8}
MODES = ("auto", "none", "serial", "parallel", "cluster", "stream_k")


def weights_of(
    n: int, k: int, group: int, form: str = "int4", zeros: bool = False, experts: tuple[int, ...] = ()
) -> Any:
    grouped = (*experts, k // group, n)
    codes = torch.randint(0, 16, (*experts, n, k), dtype=torch.uint8)
    points = torch.randint(0, 16, grouped, dtype=torch.uint8) if zeros else None
    if form == "mxfp4":
        scales = torch.randint(120, 128, grouped, dtype=torch.uint8)
    else:
        scales = (torch.rand(grouped) / 8).to(E4M3 if form == "nvfp4" else torch.float16)
    factor = torch.rand(experts or 1) + 0.5 if form == "nvfp4" else None
    return cleave.pack_weights(codes, group, form, scales=scales, zeros=points, global_scale=factor)


def activations(m: int, k: int, dtype: Any) -> tuple[Any, Any, Any]:
    """x in 8 bits, a scale for each row, and what both stand for."""
    x, scale = cleave.quantize(torch.randn(m, k), dtype)
    return x, scale.reshape(m), x.double() * scale.double().reshape(m, 1)


def check(d: Any, real: Any, weight: Any, pre: Any = None) -> None:
    """Elements are exact, so that float32 sums, and D's rounding, are all that is off."""
    expected = real @ weight.T if pre is None else pre
    bound = (real.abs() @ weight.T.abs()) * 2.0**-20 + expected.abs() * torch.finfo(d.dtype).eps + 1e-6
    assert bool(((d.double() - expected).abs() <= bound).all())


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_products(data: st.DataObject) -> None:
    torch.manual_seed(data.draw(st.integers(0, 2**32)))
    dtype, form = data.draw(st.sampled_from(sorted(BYTES))), data.draw(st.sampled_from(["int4", "mxfp4", "nvfp4"]))
    dtype = BYTES[dtype]
    group = {"mxfp4": 32, "nvfp4": 16}.get(form) or data.draw(st.sampled_from([32, 64, 128, 256, None]))
    k = data.draw(st.integers(1, 300)) if group is None else group * data.draw(st.integers(1, 4))
    m, n = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 140))
    packed = weights_of(n, k, group or k, form, form == "int4" and data.draw(st.booleans()))
    weight = cleave.dequantize_weights(packed).double()
    x, scale, real = activations(m, k, dtype)
    bias = torch.randn(n)
    mode = data.draw(st.sampled_from(MODES))
    slices = 3 if mode in ("serial", "parallel", "cluster") else None
    shape = data.draw(st.sampled_from([(m,), (m, 1)]))
    options = {"split_k_mode": mode, "split_k_slices": slices, "activation": "relu", "out_dtype": "float32"}
    d = cleave.mixed_gemm(x, packed, scale_a=scale.reshape(shape), bias=bias, **options)
    check(d, real, weight, (real @ weight.T + bias).relu())


def test_dtypes_of_d() -> None:
    packed = weights_of(40, 64, 32)
    for dtype in BYTES.values():
        x, _, _ = activations(3, 64, dtype)
        for scale in (None, torch.tensor(0.5), torch.full((1,), 0.5)):
            d = cleave.mixed_gemm(x, packed, scale_a=scale)
            assert d.dtype == torch.bfloat16
            check(d, x.double() * (1.0 if scale is None else 0.5), cleave.dequantize_weights(packed).double())


@pytest.mark.parametrize(("form", "group"), [("int4", 64), ("mxfp4", 32), ("nvfp4", 16)])
def test_experts(form: str, group: int) -> None:
    packed = weights_of(70, 128, group, form, zeros=form == "int4", experts=(3,))
    weight = cleave.dequantize_weights(packed).double()
    offs = torch.tensor([7, 7, 30], dtype=torch.int32)
    for dtype in BYTES.values():
        x, scale, real = activations(40, 128, dtype)
        d = cleave.mixed_gemm(x, packed, scale_a=scale, offs=offs, out_dtype="float32")
        for expert, (begin, end) in enumerate(zip((0, 7, 7), offs.tolist(), strict=True)):
            check(d[begin:end], real[begin:end], weight[expert])
        assert not d[30:].any()
        batch = cleave.mixed_gemm(x[:39].view(3, 13, 128), packed, scale_a=scale[:39].view(3, 13, 1))
        for expert in range(3):
            check(batch[expert], real[:39].view(3, 13, 128)[expert], weight[expert])


def test_columns_in_another_order() -> None:
    codes, scales = torch.randint(0, 16, (40, 128), dtype=torch.uint8), torch.rand(4, 40).half()
    order = torch.randperm(128)
    packed = cleave.pack_weights(codes, 32, scales=scales, g_idx=(torch.arange(128) // 32)[order.argsort()].int())
    for dtype in BYTES.values():
        x, scale, real = activations(3, 128, dtype)
        d = cleave.mixed_gemm(x, packed, scale_a=scale, out_dtype="float32")
        check(d, real, cleave.dequantize_weights(packed).double())


def test_plans() -> None:
    packed = weights_of(70, 256, 64, zeros=True)
    x, scale, _ = activations(3, 256, E4M3)
    plan = cleave.plan_mixed_gemm(x, packed, scale_a=scale, out_dtype="float32")
    beside = {"scale_a": scale, "scales": packed.scales, "zeros": packed.zeros}
    expected = cleave.mixed_gemm(x, packed, scale_a=scale, out_dtype="float32")
    assert torch.equal(plan.run(x, packed.packed, **beside), expected)
    for dtype in BYTES:
        for name in ("h100", "h200"):
            made = cleave.plan_problem(
                16, 4096, 4096, dtype=dtype, scaling="row", weights="int4", group_size=64, device=name
            )
            assert made.kernel_name.startswith("sm90") and "transposed" in made.kernel_name


def test_functions() -> None:
    @cleave.epilogue
    def scaled(acc, factor: cleave.scalar):
        return cleave.silu(acc) * factor

    packed = weights_of(70, 256, 64)
    x, scale, real = activations(5, 256, torch.int8)
    d = cleave.mixed_gemm(x, packed, scale_a=scale, epilogue=scaled(factor=0.5), out_dtype="float32")
    pre = real @ cleave.dequantize_weights(packed).double().T
    torch.testing.assert_close(d.double(), torch.nn.functional.silu(pre) * 0.5, rtol=1e-4, atol=1e-4)


def test_what_is_refused() -> None:
    packed = weights_of(40, 64, 32)
    x, scale, _ = activations(3, 64, E4M3)
    integers = activations(3, 64, torch.int8)[0]
    in_bfloat = dataclasses.replace(packed, scales=packed.scales.bfloat16())
    with pytest.raises(TypeError, match="scales is bfloat16, but a is float8_e4m3fn, beside which it must be float16"):
        cleave.mixed_gemm(x, in_bfloat, scale_a=scale)
    with pytest.raises(
        ValueError, match=r"scale_a is \(2,\); beside a packed weight it must be one value, or one per r"
    ):
        cleave.mixed_gemm(x, packed, scale_a=scale[:2])
    with pytest.raises(ValueError, match="scale_a is given, but a is float16; scales are for rows of 8 bits"):
        cleave.mixed_gemm(x.half(), packed, scale_a=scale)
    with pytest.raises(TypeError, match="a is float8_e5m2; it must be"):
        cleave.mixed_gemm(x.to(torch.float8_e5m2), packed, scale_a=scale)
    with pytest.raises(ValueError, match="d is int32, but b is a packed weight, which has scales"):
        cleave.mixed_gemm(integers, packed, out_dtype="int32")
    with pytest.raises(ValueError, match="scale_a is of blocks, but b is a packed weight"):
        cleave.plan_problem(16, 512, 512, dtype="int8", scaling="block_1x128", weights="int4", device="h200")
    with pytest.raises(ValueError, match="streamed needs a of 16 bits"):
        cleave.plan_problem(16, 512, 512, dtype="int8", weights="int4", kernel="streamed", device="h200")
