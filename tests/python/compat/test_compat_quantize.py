"""vLLM's and sgl_kernel's quantisations, on CPU tensors."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from cleave.compat import sgl_kernel, vllm  # noqa: E402

FP8 = torch.float8_e4m3fn


@pytest.fixture
def x() -> Any:
    torch.manual_seed(0)
    return torch.randn(6, 256).bfloat16()


def wide(scale: Any, x: Any) -> Any:
    """A scale for each element of the matrix x."""
    rows, cols = (size // part for size, part in zip(x.shape, scale.shape, strict=True))
    return scale.repeat_interleave(rows, 0).repeat_interleave(cols, 1)


def check(q: Any, scale: Any, x: Any, dtype: Any = FP8) -> None:
    """Within half a step; the largest of each scale's elements is the largest that there is."""
    qmax = 127 if dtype == torch.int8 else 448
    scale = scale.view(1, 1) if scale.numel() == 1 else scale
    step = wide(scale, x) * (
        0.5 if dtype == torch.int8 else 1 / 16 * x.abs().float().div(wide(scale, x)).clamp(min=2**-6)
    )
    assert q.dtype == dtype
    assert ((q.float() * wide(scale, x) - x.float()).abs() <= step * 1.001).all()
    torch.testing.assert_close(scale.max() * qmax, x.abs().max().float())


def test_scaled_fp8_quant_finds_scales(x: Any) -> None:
    q, scale = vllm.scaled_fp8_quant(x)
    assert scale.shape == (1,)
    check(q, scale, x)
    q, scale = vllm.scaled_fp8_quant(x, num_token_padding=9, use_per_token_if_dynamic=True)
    assert (q.shape, scale.shape) == ((9, 256), (9, 1))
    check(q[:6], scale[:6], x)
    output = torch.empty(6, 256, dtype=FP8)
    assert vllm.scaled_fp8_quant(x, output=output)[0] is output
    check(output, vllm.scaled_fp8_quant(x)[1], x)


@pytest.mark.parametrize(
    ("shape", "group_shape"),
    [((), None), ((1,), (-1, -1)), ((6,), (1, -1)), ((6, 2), None), ((6, 2), (1, 128)), ((1, 2), (128, 128))],
)
def test_scaled_fp8_quant_takes_scales(shape: tuple[int, ...], group_shape: Any, x: Any) -> None:
    scale = torch.rand(shape) / 100 + 0.01
    q, same = vllm.scaled_fp8_quant(x, scale, group_shape=group_shape)
    assert same is scale
    of_each = wide(scale.view(-1, 1) if len(shape) < 2 else scale, x)
    expected = (x.float() / of_each).to(FP8).float()
    assert (q.float() == expected).float().mean() > 0.99  # ties that a reciprocal rounds the other way
    torch.testing.assert_close(q.float(), expected, rtol=0.13, atol=1e-2)


def test_scaled_fp8_quant_refuses(x: Any) -> None:
    with pytest.raises(ValueError, match=r"pass \(1, -1\) for a scale of each row"):
        vllm.scaled_fp8_quant(x, torch.ones(6))
    with pytest.raises(ValueError, match=r"group_shape is \(-1, 1\); "):
        vllm.scaled_fp8_quant(x, torch.ones(256), group_shape=(-1, 1))
    with pytest.raises(ValueError, match="scale_ub is given"):
        vllm.scaled_fp8_quant(x, scale_ub=torch.ones(1))
    with pytest.raises(ValueError, match="but so is output"):
        vllm.scaled_fp8_quant(x, num_token_padding=8, output=torch.empty(8, 256, dtype=FP8))
    with pytest.raises(ValueError, match=r"input is \(1, 6, 256\); it must be a matrix"):
        vllm.scaled_fp8_quant(x[None])
    with pytest.raises(ValueError, match="group_shape is given without scale"):
        vllm.scaled_fp8_quant(x, group_shape=(1, 128))


def test_scaled_int8_quant(x: Any) -> None:
    q, scale, azp = vllm.scaled_int8_quant(x.view(2, 3, 256))
    assert (q.shape, scale.shape, azp) == ((2, 3, 256), (6, 1), None)
    check(q.view(6, 256), scale, x, torch.int8)
    shifted = x + 3
    q, scale, azp = vllm.scaled_int8_quant(shifted, symmetric=False)
    assert azp.shape == (6, 1) and azp.dtype == torch.int32
    assert (((q.float() - azp) * scale - shifted.float()).abs() <= scale * 0.51).all()
    given, zero = torch.tensor([0.05]), torch.tensor([-60], dtype=torch.int32)
    q, same, azp = vllm.scaled_int8_quant(shifted, given, zero, symmetric=False)
    assert same is given and azp is zero
    assert (((q.float() - zero) * given - shifted.float()).abs() <= 0.026).all()
    assert torch.equal(vllm.scaled_int8_quant(x, given)[0].float(), (x.float() / given).round().clamp(-128, 127))
    with pytest.raises(ValueError, match="azp goes with symmetric=False"):
        vllm.scaled_int8_quant(x, given, zero)


@pytest.mark.parametrize(
    ("options", "stride"),
    [
        ({}, (2, 1)),
        ({"column_major_scales": True}, (1, 6)),
        ({"column_major_scales": True, "tma_aligned_scales": True}, (1, 8)),
    ],
)
def test_per_token_group_quant(options: dict[str, bool], stride: tuple[int, int], x: Any) -> None:
    q, scale = vllm.per_token_group_quant_fp8(x, 128, **options)
    assert scale.stride() == stride
    check(q, scale, x)
    out = torch.empty(2, 3, 256, dtype=FP8)
    if not options:
        _, scale = vllm.per_token_group_quant_fp8(x.view(2, 3, 256), 128, out_q=out)
        assert scale.shape == (2, 3, 2) and torch.equal(out.view(6, 256).float(), q.float())
    _, rounded = vllm.per_token_group_quant_fp8(x, 128, use_ue8m0=True, **options)
    assert rounded.stride() == stride and torch.equal(rounded, scale.view(6, 2).log2().ceil().exp2())
    q, scale = vllm.per_token_group_quant_int8(x.view(2, 3, 256), 128)
    check(q.view(6, 256), scale.view(6, 2), x, torch.int8)


def test_per_token_group_quant_refuses(x: Any) -> None:
    with pytest.raises(ValueError, match="group_size is 64; 128"):
        vllm.per_token_group_quant_fp8(x, 64)
    with pytest.raises(ValueError, match="x has 3 dimensions"):
        vllm.per_token_group_quant_fp8(x.view(2, 3, 256), 128, column_major_scales=True)
    with pytest.raises(ValueError, match=r"x is \(6, 200\); its last dimension must be a multiple of group_size, 128"):
        vllm.per_token_group_quant_int8(x[:, :200], 128)
    assert vllm.per_token_group_quant_fp8(x.view(2, 3, 256)[:, :0], 128)[1].shape == (2, 0, 2)


def test_capabilities() -> None:
    for supports, oldest in (
        (vllm.cutlass_scaled_mm_supports_fp8, 89),
        (vllm.cutlass_scaled_mm_supports_block_fp8, 89),
        (vllm.cutlass_group_gemm_supported, 80),
    ):
        assert supports(90) and supports(oldest) and not supports(oldest - 1)


def test_sgl_kernels_products_are_vllms(x: Any) -> None:
    w = torch.randn(96, 256)
    for dtype, product in ((FP8, sgl_kernel.fp8_scaled_mm), (torch.int8, sgl_kernel.int8_scaled_mm)):
        quantize = vllm.scaled_int8_quant if dtype == torch.int8 else per_token
        (q, scale, *_), (qw, w_scale, *_) = quantize(x), quantize(w)
        d = product(q, qw.t(), scale, w_scale, torch.bfloat16, torch.ones(96).bfloat16())
        expected = (q.float() * scale) @ (qw.float() * w_scale).T + 1
        torch.testing.assert_close(d.float(), expected, rtol=1e-2, atol=1e-2)


def per_token(x: Any) -> tuple[Any, Any]:
    q, scale = torch.empty(x.shape, dtype=FP8), torch.empty(x.shape[0], 1)
    sgl_kernel.sgl_per_token_quant_fp8(x, q, scale)
    return q, scale


def test_sgl_kernels_quantisations_write(x: Any) -> None:
    check(*per_token(x), x)
    for dtype in (FP8, torch.int8):
        for scale in (torch.empty(6, 2), torch.empty(2, 8).t()[:6]):
            q = torch.empty(6, 256, dtype=dtype)
            sgl_kernel.sgl_per_token_group_quant_8bit(x, q, scale, 128, 1e-10, -448.0, 448.0)
            check(q, scale, x, dtype)
    with pytest.raises(ValueError, match="group_size is 64"):
        sgl_kernel.sgl_per_token_group_quant_8bit(x, q, scale, 64, 1e-10, -448.0, 448.0)
    with pytest.raises(ValueError, match="fuse_silu_and_mul is given"):
        sgl_kernel.sgl_per_token_group_quant_8bit(x, q, scale, 128, 1e-10, -448.0, 448.0, fuse_silu_and_mul=True)
