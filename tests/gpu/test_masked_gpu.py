"""Masked groups on the GPU: kernels for fewer rows than there is room for, and scales wherever a group has them."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", minversion="2.10")

import cleave  # noqa: E402
from cleave.compat import deep_gemm  # noqa: E402

GROUPS, ROOM, N, K = 6, 300, 384, 512
COUNTS = (300, 0, 1, 17, 129, 64)
E4M3 = torch.float8_e4m3fn


def in_either_major(scales: torch.Tensor) -> dict[str, torch.Tensor]:
    """[groups, rows, blocks of K]: row by row, and column by column with room behind each."""
    groups, rows, blocks = scales.shape
    columns = torch.full((groups, blocks + 1, rows + 4), torch.nan, device=scales.device)[:, :blocks, :rows].mT
    columns.copy_(scales)
    aligned = deep_gemm.get_mn_major_tma_aligned_tensor(scales)
    return {"rows": scales.contiguous(), "columns": columns, "aligned": aligned}


@pytest.mark.parametrize("major", ["rows", "columns", "aligned"])
@pytest.mark.parametrize("expected", [1, 8, 32, 100, ROOM])
def test_scales_of_blocks(expected: int, major: str) -> None:
    """Whichever kernel is chosen: groups have more rows than are expected, and fewer."""
    generator = torch.Generator("cuda").manual_seed(expected)
    a = torch.randn(GROUPS, ROOM, K, device="cuda", generator=generator).to(E4M3)
    b = torch.randn(GROUPS, N, K, device="cuda", generator=generator).to(E4M3)
    scale_a = torch.rand(GROUPS, ROOM, K // 128, device="cuda", generator=generator) + 0.5
    scale_b = torch.rand(GROUPS, N // 128, K // 128, device="cuda", generator=generator) + 0.5
    counts = torch.tensor(COUNTS, dtype=torch.int32, device="cuda")
    d = torch.full((GROUPS, ROOM, N), 7.0, device="cuda", dtype=torch.bfloat16)
    placed = in_either_major(scale_a)[major]
    deep_gemm.m_grouped_fp8_gemm_nt_masked((a, placed), (b, scale_b), d, counts, expected)
    x = a.double() * scale_a.double().repeat_interleave(128, 2)
    w = b.double() * scale_b.double().repeat_interleave(128, 1).repeat_interleave(128, 2)
    for group, count in enumerate(COUNTS):
        exact = x[group, :count] @ w[group].mT
        torch.testing.assert_close(d[group, :count].double(), exact, rtol=0.01, atol=0.5)
        assert (d[group, count:] == 7).all()


@pytest.mark.parametrize("dtype", [torch.int8, E4M3])
def test_scales_of_rows(dtype: torch.dtype) -> None:
    a = torch.randint(-3, 4, (GROUPS, ROOM, K), device="cuda").to(dtype)
    b = torch.randint(-3, 4, (GROUPS, N, K), device="cuda").to(dtype)
    scale_a = torch.rand(GROUPS, 2 * ROOM + 5, device="cuda")[:, : 2 * ROOM : 2]
    scale_b = torch.rand(GROUPS, N, device="cuda")
    counts = torch.tensor(COUNTS, dtype=torch.int32, device="cuda")
    result = cleave.grouped_gemm(
        a, b.mT, counts=counts, scale_a=scale_a, scale_b=scale_b, out_dtype="float32", expected_m=16
    )
    exact = (a.double() @ b.double().mT) * scale_a.double()[:, :, None] * scale_b.double()[:, None]
    for group, count in enumerate(COUNTS):
        torch.testing.assert_close(result[group, :count].double(), exact[group, :count], rtol=1e-5, atol=1e-4)
        assert not result[group, count:].any()


def test_bfloat16_in_a_graph_whose_counts_change() -> None:
    a = torch.randint(-3, 4, (GROUPS, ROOM, K), device="cuda").bfloat16()
    b = torch.randint(-3, 4, (GROUPS, K, N), device="cuda").bfloat16()
    counts = torch.tensor(COUNTS, dtype=torch.int32, device="cuda")
    out = torch.zeros(GROUPS, ROOM, N, device="cuda", dtype=torch.float32)
    run = lambda: cleave.grouped_gemm(a, b, counts=counts, expected_m=8, out=out)  # noqa: E731
    run()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    for sizes in (COUNTS, COUNTS[::-1], (2, 2, 2, 2, 2, 2)):
        counts.copy_(torch.tensor(sizes))
        out.fill_(7)
        graph.replay()
        for group, count in enumerate(sizes):
            assert torch.equal(out[group, :count], (a[group, :count].float() @ b[group].float()))
            assert (out[group, count:] == 7).all()
