"""DeepGEMM's dense layouts, einsum, layouts of scales, casts and settings, on CPU tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from cleave.compat import deep_gemm  # noqa: E402

M, N, K = 72, 136, 384
LAYOUTS = ("nt", "nn", "tn", "tt")


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def laid(a: Any, b: Any, layout: str) -> tuple[Any, Any]:
    """a [M, K] and b [N, K] as the layout has them, in memory, too."""
    return a.T.contiguous() if layout[0] == "t" else a, b.T.contiguous() if layout[1] == "n" else b


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("family", ["bf16", "cublaslt"])
def test_products_in_every_layout(layout: str, family: str) -> None:
    a, b, c = torch.randn(M, K).bfloat16(), torch.randn(N, K).bfloat16(), torch.randn(M, N)
    d = torch.empty(M, N)
    getattr(deep_gemm, f"{family}_gemm_{layout}")(*laid(a, b, layout), d, c)
    torch.testing.assert_close(d, a.float() @ b.float().T + c, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("rows", [1, 128])
@pytest.mark.parametrize("name", ["fp8", "fp8_fp4"])
def test_fp8_products_in_every_layout(layout: str, rows: int, name: str) -> None:
    cast = deep_gemm.per_token_cast_to_fp8 if rows == 1 else deep_gemm.per_block_cast_to_fp8
    a, b = deep_gemm.per_token_cast_to_fp8(torch.randn(M, K), False), cast(torch.randn(N, K), False)
    expected = torch.empty(M, N, dtype=torch.bfloat16)
    deep_gemm.fp8_gemm_nt(a, b, expected, recipe=(1, rows, 128))
    (qa, qb), (sa, sb) = laid(a[0], b[0], layout), laid(a[1], b[1], layout)
    d = torch.empty_like(expected)
    getattr(deep_gemm, f"{name}_gemm_{layout}")((qa, sa), (qb, sb), d, recipe_a=(1, 128), recipe_b=(rows, 128))
    assert torch.equal(d, expected)
    real = (a[0].float() * a[1].repeat_interleave(128, 1)) @ (
        b[0].float() * b[1].repeat_interleave(rows, 0)[:N].repeat_interleave(128, 1)
    ).T
    torch.testing.assert_close(d.float(), real, rtol=1e-2, atol=1e-2)


def test_data_without_scales_is_refused() -> None:
    a = torch.randn(2, K).to(torch.float8_e4m3fn)  # of two rows, which could be taken for data and scales
    with pytest.raises(TypeError, match="a is Tensor; it must be a tuple of 8-bit floats and their scales"):
        deep_gemm.fp8_gemm_nt(a, (a, torch.ones(2, 3)), torch.empty(2, 2))


def test_a_product_around_columns_of_heads() -> None:
    left, mid, right, heads = 64, 32, 128, 3
    a = deep_gemm.per_token_cast_to_fp8(torch.randn(M, K), False)
    b = deep_gemm.per_block_cast_to_fp8(torch.randn(heads * (left + right), K), False)
    plain = torch.empty(M, heads * (left + right), dtype=torch.bfloat16)
    deep_gemm.fp8_gemm_nt(a, b, plain)
    d = torch.full((M, heads * (left + mid + right)), 7.0, dtype=torch.bfloat16)
    deep_gemm.fp8_gemm_nt_skip_head_mid(a, b, d, (left, mid, right))
    made = d.view(M, heads, -1)
    assert torch.equal(torch.cat([made[..., :left], made[..., left + mid :]], -1).flatten(1), plain)
    assert (made[..., left : left + mid] == 7).all()
    with pytest.raises(ValueError, match=r"b must have 160 rows for each head, and d 224 columns"):
        deep_gemm.fp8_gemm_nt_skip_head_mid(a, b, d, (left, 64, 96))


EINSUMS = {
    "bhr,hdr->bhd": ((5, 3, 256), (3, 128, 256), (5, 3, 128)),
    "bhd,hdr->bhr": ((5, 3, 256), (3, 256, 128), (5, 3, 128)),
    "bhd,bhr->hdr": ((256, 3, 128), (256, 3, 64), (3, 128, 64)),
}


@pytest.mark.parametrize("expr", EINSUMS)
def test_einsum(expr: str) -> None:
    of_a, of_b, of_d = EINSUMS[expr]
    a, b, c = torch.randn(of_a).bfloat16(), torch.randn(of_b).bfloat16(), torch.randn(of_d)
    d = torch.empty(of_d)
    deep_gemm.einsum(expr, a, b, d, c)
    torch.testing.assert_close(d, torch.einsum(expr, a.float(), b.float()) + c, rtol=1e-4, atol=1e-3)


def test_fp8_einsum() -> None:
    a, b = torch.randn(5, 3, 256), torch.randn(3, 256, 256)
    qa, sa = deep_gemm.per_token_cast_to_fp8(a.view(15, 256), False)
    qb, sb = (torch.stack(parts) for parts in zip(*(deep_gemm.per_block_cast_to_fp8(w, False) for w in b), strict=True))
    d = torch.empty(5, 3, 256, dtype=torch.bfloat16)
    deep_gemm.fp8_einsum("bhr,hdr->bhd", (qa.view(a.shape), sa.view(5, 3, 2)), (qb, sb), d)
    real_a = (qa.float() * sa.repeat_interleave(128, 1)).view(a.shape)
    real_b = qb.float() * sb.repeat_interleave(128, 1).repeat_interleave(128, 2)
    torch.testing.assert_close(d.float(), torch.einsum("bhr,hdr->bhd", real_a, real_b), rtol=1e-2, atol=1e-2)
    with pytest.raises(ValueError, match='expr is "ab,bc->ac"; "bhr,hdr->bhd"'):
        deep_gemm.einsum("ab,bc->ac", a, b, d)
    with pytest.raises(ValueError, match="its recipe"):
        deep_gemm.fp8_einsum("bhr,hdr->bhd", (qa.view(a.shape), sa.view(5, 3, 2)), (qb, sb), d, recipe=(1, 1, 128))


@pytest.mark.parametrize("batch", [(), (3,)])
def test_scales_in_mn_major(batch: tuple[int, ...]) -> None:
    sf = torch.randn(*batch, 7, 5)
    made = deep_gemm.get_mn_major_tma_aligned_tensor(sf)
    assert torch.equal(made, sf) and made.stride()[-2:] == (1, 8)
    groups = batch[0] if batch else None
    assert deep_gemm.transform_sf_into_required_layout(sf, 7, 640, (1, 128), groups).stride() == made.stride()
    rows = torch.randn(*batch, 1, 5)
    assert deep_gemm.transform_sf_into_required_layout(rows, 7, 640, (1, 128, 128), groups, is_sfa=False) is rows
    with pytest.raises(ValueError, match=r"the scales of sf are .* its recipe \(1, 128\) needs"):
        deep_gemm.transform_sf_into_required_layout(sf, 8, 640, (1, 128), groups)


def test_alignments() -> None:
    assert [deep_gemm.get_tma_aligned_size(x, 4) for x in (1, 4, 5)] == [4, 4, 8]
    assert (deep_gemm.ceil_div(5, 2), deep_gemm.align(5, 4)) == (3, 8)
    assert deep_gemm.get_m_alignment_for_contiguous_layout() == 128
    assert deep_gemm.get_theoretical_mk_alignment_for_contiguous_layout(7) == 128
    deep_gemm.set_mk_alignment_for_contiguous_layout(128)
    with pytest.raises(ValueError, match="value is 64"):
        deep_gemm.set_mk_alignment_for_contiguous_layout(64)


@pytest.mark.parametrize(
    ("cast", "rows"), [(deep_gemm.per_token_cast_to_fp8, 1), (deep_gemm.per_block_cast_to_fp8, 128)]
)
def test_casts(cast: Callable[..., Any], rows: int) -> None:
    x = torch.randn(200, 300)
    q, scale = cast(x, use_ue8m0=False)
    assert scale.shape == (-(-200 // rows), 3)
    wide = scale.repeat_interleave(rows, 0)[:200].repeat_interleave(128, 1)[:, :300]
    assert ((q.float() * wide - x).abs() <= wide * 448 / 16 + 1e-6).all()
    torch.testing.assert_close(scale[0, 2], x[:rows, 256:].abs().max() / 448)
    assert torch.equal(cast(x, True)[1], scale.log2().ceil().exp2())
    if rows == 1:
        with pytest.raises(ValueError, match="use_packed_ue8m0 is True"):
            cast(x, True, use_packed_ue8m0=True)
    with pytest.raises(ValueError, match="gran_k is 32"):
        cast(x, False, 32)


def test_settings_are_remembered() -> None:
    deep_gemm.set_num_sms(78)
    deep_gemm.set_tc_util(80)
    deep_gemm.set_pdl(True)
    assert (deep_gemm.get_num_sms(), deep_gemm.get_tc_util(), deep_gemm.get_pdl()) == (78, 80, True)
    deep_gemm.set_ignore_compile_dims(True)
    deep_gemm.set_block_size_multiple_of((16, 32))
