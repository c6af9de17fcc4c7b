"""The grouped products of cleave.compat, beside torch's on the CPU, or their definition."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import pytest

from cleave.compat import deep_gemm, flashinfer
from cleave.compat import torch as compat_torch

torch = pytest.importorskip("torch")

import grouped_reference  # noqa: E402

from cleave.testing.group_sizes import ranges_of  # noqa: E402

E4M3 = torch.float8_e4m3fn
SIZES = (130, 0, 1, 70)
RANGES = ranges_of(SIZES)
TOTAL = 216  # of which the last 15 belong to no group
G, M, N, K = len(SIZES), 24, 40, 320
K_BLOCKS = 3


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def integers(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.randint(-3, 4, shape).to(dtype)


def scales(*shape: int) -> torch.Tensor:
    """Powers of two: products stay exact."""
    return 2.0 ** torch.randint(-2, 3, shape)


def int32(values: Sequence[int]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


OFFS = int32([end for _, end in RANGES])


def blocks(scale: torch.Tensor, rows: int, k: int) -> torch.Tensor:
    """One scale for each element of [..., rows, k]."""
    if scale.shape[-2] != rows:
        scale = scale.repeat_interleave(128, -2)[..., :rows, :]
    return scale.double().repeat_interleave(128, -1)[..., :k]


def product(a: torch.Tensor, b: torch.Tensor, ranges: Any = RANGES, **options: Any) -> Any:
    return grouped_reference.product(a.double(), b.double(), ranges, **options)


# --- torch ---


def test_signatures_of_torch() -> None:
    for name in ("_grouped_mm", "_scaled_grouped_mm"):
        ours = inspect.signature(getattr(compat_torch, name)).parameters
        schema = getattr(torch.ops.aten, name).default._schema
        theirs = ["input" if a.name == "self" else a.name for a in schema.arguments]
        assert list(ours) == theirs
    for name in ("grouped_mm", "scaled_grouped_mm"):
        theirs = inspect.signature(getattr(torch.nn.functional, name)).parameters
        ours = inspect.signature(getattr(compat_torch, name)).parameters
        assert list(ours) == list(theirs)
        assert [p.kind for p in ours.values()] == [p.kind for p in theirs.values()]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize(
    "a_shape, b_shape",
    [
        ((TOTAL, K), (G, K, N)),
        ((M, TOTAL), (TOTAL, N)),
        ((G, M, K), (K, TOTAL)),
        ((G, M, K), (G, K, N)),
    ],
    ids=["m", "k", "n", "batch"],
)
def test_grouped_mm(a_shape: Any, b_shape: Any, dtype: torch.dtype) -> None:
    a, b = integers(*a_shape, dtype=dtype), integers(*b_shape, dtype=dtype)
    offs = None if len(a_shape) == len(b_shape) == 3 else OFFS
    theirs = torch._grouped_mm(a, b, offs)
    ours = compat_torch._grouped_mm(a, b.mT.contiguous().mT, offs)
    assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
    if offs is not None and theirs.dim() == 2:  # torch leaves unset what is no group's
        end = RANGES[-1][1]
        rest = ours[end:] if len(b_shape) == 3 else ours[:, end:]
        assert (rest == 0).all()
        rows = len(b_shape) == 3
        ours, theirs = (x[:end] if rows else x[:, :end] for x in (ours, theirs))
    assert torch.equal(ours, theirs)
    assert torch.equal(compat_torch.grouped_mm(a, b, offs=offs), compat_torch._grouped_mm(a, b, offs))
    if dtype == torch.bfloat16:
        wide = compat_torch.grouped_mm(a, b, offs=offs, out_dtype=torch.float32)
        assert wide.dtype == torch.float32


def test_scaled_grouped_mm() -> None:
    row_wise = torch.nn.functional.ScalingType.RowWise
    for a_shape, b_shape, scale_a, scale_b in (
        ((TOTAL, K), (G, K, N), scales(TOTAL), scales(G, N)),
        ((M, TOTAL), (TOTAL, N), scales(G * M), scales(G * N)),
        ((G, M, K), (K, TOTAL), scales(G, M), scales(TOTAL)),
        ((G, M, K), (G, K, N), scales(G, M), scales(G, N)),
    ):
        a, b = integers(*a_shape, dtype=E4M3), integers(*b_shape, dtype=E4M3)
        batch = len(a_shape) == len(b_shape) == 3
        offs = None if batch else OFFS
        if batch:
            expected = a.double() @ b.double() * scale_a[:, :, None] * scale_b[:, None]
        elif len(a_shape) == len(b_shape):
            expected = product(a, b) * scale_a.view(G, M, 1) * scale_b.view(G, 1, N)
        elif len(b_shape) == 3:
            expected = product(a.double() * scale_a[:, None], b.double() * scale_b[:, None])
        else:
            expected = product(a.double() * scale_a[:, :, None], b.double() * scale_b)
        d = compat_torch._scaled_grouped_mm(a, b, scale_a, scale_b, offs)
        assert torch.equal(d, expected.bfloat16())
        d = compat_torch.scaled_grouped_mm(
            a, b, scale_a, row_wise, [scale_b], [row_wise], offs=offs, output_dtype=torch.float32
        )
        assert torch.equal(d.double(), expected)


def test_scaled_grouped_mm_refusals() -> None:
    kinds = torch.nn.functional.ScalingType
    a, b = integers(TOTAL, K, dtype=E4M3), integers(G, K, N, dtype=E4M3)
    with pytest.raises(ValueError, match=r"scale_a is \(215,\); its recipe needs \(216,\)"):
        compat_torch._scaled_grouped_mm(a, b, scales(TOTAL - 1), scales(G, N), OFFS)
    with pytest.raises(ValueError, match=r"scale_b is \(40,\); its recipe needs \(1280,\)"):
        compat_torch._scaled_grouped_mm(a.t(), a, scales(G * K), scales(N), OFFS)
    with pytest.raises(ValueError, match="scale_result is given"):
        compat_torch._scaled_grouped_mm(a, b, scales(TOTAL), scales(G, N), OFFS, None, scales(1))
    with pytest.raises(ValueError, match=r"scale_b is .*TensorWise.*; RowWise is served"):
        compat_torch.scaled_grouped_mm(a, b, scales(TOTAL), kinds.RowWise, scales(1), kinds.TensorWise, offs=OFFS)


# --- DeepGEMM: groups of rows ---


def rows_of(ranges: Any, rows: int) -> torch.Tensor:
    """Every row's group, or -1."""
    groups = torch.full((rows,), -1, dtype=torch.int32)
    for group, (begin, end) in enumerate(ranges):
        groups[begin:end] = group
    return groups


def padded_ranges(ranges: Any, rows: int) -> list[tuple[int, int]]:
    """Ranges with the padding that follows each, up to a multiple of 128, if nothing is there."""
    taken = rows_of(ranges, rows)
    padded = []
    for begin, end in ranges:
        last = end
        while begin < end and last % 128 and last < rows and taken[last] < 0:
            last += 1
        padded.append((begin, last))
    return padded


ALIGNED = ranges_of(SIZES, spacing=128)
ALIGNED_ROWS = 512
LAYOUTS = {
    "aligned": (ALIGNED, ALIGNED_ROWS, rows_of(ALIGNED, ALIGNED_ROWS), False),
    "dense": (RANGES, TOTAL, rows_of(RANGES, TOTAL), False),
    "psum": (ALIGNED, ALIGNED_ROWS, int32([end for _, end in ALIGNED]), True),
    "empty": ([(0, 0)] * G, 5, rows_of([], 5), False),
}
layouts = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)


@layouts
def test_m_grouped_bf16_gemm_contiguous(layout: Any) -> None:
    ranges, rows, groups, psum = layout
    a, b = integers(rows, K), integers(G, N, K)
    expected = product(a, b.mT, ranges).bfloat16()
    # With what follows a group in its last block of 128 rows.
    padded = padded_ranges(ranges, rows)
    with_padding = product(a, b.mT, padded).bfloat16()
    with_padding[rows_of(padded, rows) < 0] = 7
    for function, weights in (
        (deep_gemm.m_grouped_bf16_gemm_nt_contiguous, b),
        (deep_gemm.m_grouped_bf16_gemm_nn_contiguous, b.mT),
        (deep_gemm.m_grouped_bf16_gemm_nn_contiguous, b.mT.contiguous()),
    ):
        d = torch.full((rows, N), 7.0, dtype=torch.bfloat16)
        assert function(a, weights, d, groups, use_psum_layout=psum) is None
        assert torch.equal(d, expected)
        d.fill_(7)
        function(a, weights, d, groups, use_psum_layout=psum, ensure_zero_padding=False)
        assert torch.equal(d, with_padding)


@pytest.mark.parametrize("psum", [False, True])
def test_padding_of_zeros_gives_zeros_without_ensure_zero_padding(psum: bool) -> None:
    """All of d is compared by DeepGEMM's own tests, which do not ask for zeros there."""
    rows = 640
    ranges = ranges_of([100, 128, 0, 130], spacing=128)
    groups = int32([end for _, end in ranges]) if psum else rows_of(ranges, rows)
    a, b = integers(rows, K), integers(4, N, K)
    scale_a, scale_b = scales(rows, K_BLOCKS), scales(4, -(-N // 128), K_BLOCKS)
    a[rows_of(ranges, rows) < 0] = 0
    expected = product(a, b.mT, ranges).bfloat16()
    d = torch.full((rows, N), torch.nan, dtype=torch.bfloat16)
    options = {"use_psum_layout": psum, "ensure_zero_padding": False}
    deep_gemm.m_grouped_bf16_gemm_nt_contiguous(a, b, d, groups, **options)
    assert torch.equal(d[:512], expected[:512]) and d[512:].isnan().all()
    d.fill_(torch.nan)
    pairs = (a.to(E4M3), scale_a), (b.to(E4M3), scale_b)
    deep_gemm.m_grouped_fp8_gemm_nt_contiguous(*pairs, d, groups, **options)
    assert not d[:512].isnan().any() and d[512:].isnan().all()
    assert (d[rows_of(ranges, rows) < 0][: 512 - 358] == 0).all()


@layouts
@pytest.mark.parametrize("rows_of_b", [1, 128])
def test_m_grouped_fp8_gemm_contiguous(layout: Any, rows_of_b: int) -> None:
    ranges, rows, groups, psum = layout
    a, b = integers(rows, K, dtype=E4M3), integers(G, N, K, dtype=E4M3)
    scale_a, scale_b = scales(K_BLOCKS, rows).t(), scales(G, -(-N // rows_of_b), K_BLOCKS)
    expected = product(
        a.double() * blocks(scale_a, rows, K), (b.double() * blocks(scale_b, N, K)).mT, ranges
    ).bfloat16()
    d = torch.empty(rows, N, dtype=torch.bfloat16)
    options = {"use_psum_layout": psum, "recipe": (1, rows_of_b, 128)}
    deep_gemm.m_grouped_fp8_gemm_nt_contiguous((a, scale_a), (b, scale_b), d, groups, **options)
    assert torch.equal(d, expected)
    d.fill_(7)
    pair = (b.mT, scale_b.mT)
    deep_gemm.m_grouped_fp8_gemm_nn_contiguous((a, scale_a), pair, d, groups, **options)
    assert torch.equal(d, expected)


def test_rows_may_name_groups_in_any_order_and_none() -> None:
    groups = int32([2, 2, -1, 0, 0, 0, 9, -5, 1])
    a, b, d = integers(9, K), integers(G, N, K), torch.empty(9, N, dtype=torch.bfloat16)
    deep_gemm.m_grouped_bf16_gemm_nt_contiguous(a, b, d, groups)
    for row, group in enumerate(groups.tolist()):
        expected = a[row].double() @ b[group].double().mT if 0 <= group < G else torch.zeros(N)
        assert torch.equal(d[row].double(), expected.bfloat16().double())


def test_m_grouped_gemm_masked() -> None:
    rows, counts = 130, int32(SIZES)
    a, b = integers(G, rows, K), integers(G, N, K)
    d = torch.full((G, rows, N), 7.0, dtype=torch.bfloat16)
    assert deep_gemm.m_grouped_bf16_gemm_nt_masked(a, b, d, counts, expected_m=64) is None
    q, w = a.to(E4M3), b.to(E4M3)
    scale_a, scale_b = scales(G, K_BLOCKS, rows).mT, scales(G, 1, K_BLOCKS)
    e = d.clone()
    deep_gemm.m_grouped_fp8_gemm_nt_masked((q, scale_a), (w, scale_b), e, counts, 64)
    for other in (scale_a.contiguous(), deep_gemm.get_mn_major_tma_aligned_tensor(scale_a)):
        f = d.clone()
        deep_gemm.m_grouped_fp8_gemm_nt_masked((q, other), (w, scale_b), f, counts, 64)
        assert torch.equal(f, e)
    for group, size in enumerate(SIZES):
        x, y = a[group, :size].double(), b[group].double()
        assert torch.equal(d[group, :size], (x @ y.mT).bfloat16())
        x = x * blocks(scale_a[group], rows, K)[:size]
        assert torch.equal(e[group, :size], (x @ (y * blocks(scale_b[group], N, K)).mT).bfloat16())
        assert (d[group, size:] == 7).all() and (e[group, size:] == 7).all()


# --- DeepGEMM: groups of K ---


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("psum", [False, True])
def test_k_grouped_bf16_gemm(dtype: torch.dtype, psum: bool) -> None:
    ranges = ALIGNED if psum else RANGES
    groups = int32([end for _, end in ranges]) if psum else int32(SIZES)
    total = ranges[-1][1]
    a, b, c = integers(total, M), integers(total, N), integers(G, M, N, dtype=dtype)
    expected = product(a.mT, b, ranges)
    d = torch.empty_like(c)
    arguments = (None if psum else list(SIZES), groups)
    function = deep_gemm.k_grouped_bf16_gemm_tn_contiguous
    assert function(a, b, d, *arguments, use_psum_layout=psum) is None
    assert torch.equal(d, expected.to(dtype))
    function(a, b, d, *arguments, c, use_psum_layout=psum)
    assert torch.equal(d, (expected + c.double()).to(dtype))
    function(a, b, c, *arguments, c, use_psum_layout=psum)
    assert torch.equal(c, d)


K_SIZES = (256, 0, 128)


@pytest.mark.parametrize("psum", [False, True])
def test_k_grouped_fp8_gemm_tn(psum: bool) -> None:
    ranges = ranges_of((200, 0, 100) if psum else K_SIZES, spacing=128)
    groups = int32([end for _, end in ranges]) if psum else int32(K_SIZES)
    a, b = integers(384, M, dtype=E4M3), integers(384, N, dtype=E4M3)
    scale_a, scale_b, c = scales(3, M), scales(3, N), integers(3, M, N, dtype=torch.float32)
    expected = product(
        a.double().mT * blocks(scale_a.mT, M, 384), (b.double().mT * blocks(scale_b.mT, N, 384)).mT,
        ranges,
    )  # fmt: skip
    d = torch.empty_like(c)
    deep_gemm.k_grouped_fp8_gemm_tn_contiguous(
        (a, scale_a), (b, scale_b), d, list(K_SIZES), groups, c, use_psum_layout=psum
    )
    assert torch.equal(d.double(), expected + c.double())


def stored_one_by_one(x: torch.Tensor, ranges: Sequence[tuple[int, int]]) -> torch.Tensor:
    """Each group's [rows, room], behind each other; what its rows have room for beyond its size is NaN."""
    parts = []
    for begin, end in ranges:
        part = x.view(torch.uint8)[begin : begin + -(-(end - begin) // 128) * 128].t().clone()
        part[:, end - begin :] = 0x7F
        parts.append(part.flatten())
    return torch.cat(parts).view(E4M3)


@pytest.mark.parametrize("sizes, psum", [((128, 128, 128), False), (K_SIZES, False), ((200, 0, 100), True)])
def test_k_grouped_fp8_gemm_nt(sizes: tuple[int, ...], psum: bool) -> None:
    ranges = ranges_of(sizes, spacing=128)
    a, b = integers(384, M, dtype=E4M3), integers(384, N, dtype=E4M3)
    scale_a, scale_b, c = scales(3, M), scales(3, N), integers(3, M, N, dtype=torch.float32)
    expected, d = torch.empty_like(c), torch.empty_like(c)
    groups = int32([end for _, end in ranges]) if psum else int32(sizes)
    deep_gemm.k_grouped_fp8_gemm_tn_contiguous(
        (a, scale_a), (b, scale_b), expected, None, groups, c, use_psum_layout=psum
    )
    pairs = [(stored_one_by_one(x, ranges), scale.t()) for x, scale in ((a, scale_a), (b, scale_b))]
    for ks_cpu in (None, list(sizes)):
        d.fill_(7)
        deep_gemm.k_grouped_fp8_gemm_nt_contiguous(*pairs, d, ks_cpu, groups, c, use_psum_layout=psum)
        assert torch.equal(d, expected)
    if not psum:
        with pytest.raises(ValueError, match=r"ks_cpu\[0\] is 100; it must be a multiple of 128"):
            deep_gemm.k_grouped_fp8_gemm_nt_contiguous(*pairs, d, [100], groups, c)


def test_deep_gemm_refusals() -> None:
    a, b = integers(TOTAL, K, dtype=E4M3), integers(G, N, K, dtype=E4M3)
    d, groups = torch.empty(TOTAL, N, dtype=torch.bfloat16), rows_of(RANGES, TOTAL)
    pair_a, pair_b = (a, scales(TOTAL, K_BLOCKS)), (b, scales(G, 1, K_BLOCKS))
    for recipe, words in (
        ((1, 32, 128), r"recipe of b is \(32, 128\)"),
        ((1, 1, 128), r"scales of b are \(4, 1, 3\); .* needs \(4, 40, 3\)"),
    ):
        with pytest.raises(ValueError, match=words):
            deep_gemm.m_grouped_fp8_gemm_nt_contiguous(pair_a, pair_b, d, groups, recipe)
    with pytest.raises(ValueError, match=r"recipe is \(1, 1, 32\); \(1, 1, 128\) is served"):
        deep_gemm.k_grouped_fp8_gemm_tn_contiguous(pair_a, pair_a, d, None, OFFS, recipe=(1, 1, 32))


def test_signatures_of_deep_gemm() -> None:
    """As its API reference has them; it cannot be imported here."""
    fp8 = ["recipe", "recipe_a", "recipe_b", "compiled_dims", "disable_ue8m0_cast"]
    contiguous = ["a", "b", "d", "grouped_layout"]
    rest = ["use_psum_layout", "ensure_zero_padding"]
    k_grouped = ["a", "b", "d", "ks_cpu", "grouped_layout", "c"]
    for name, theirs in {
        "m_grouped_bf16_gemm_nt_contiguous": [
            *contiguous, "compiled_dims", *rest, "expected_m_for_psum_layout",
        ],
        "m_grouped_bf16_gemm_nn_contiguous": [*contiguous, "compiled_dims", *rest],
        "m_grouped_bf16_gemm_nt_masked": ["a", "b", "d", "masked_m", "expected_m", "compiled_dims"],
        "m_grouped_fp8_gemm_nt_contiguous": [
            *contiguous, *fp8, *rest, "expected_m_for_psum_layout",
        ],
        "m_grouped_fp8_gemm_nn_contiguous": [*contiguous, *fp8, *rest],
        "m_grouped_fp8_gemm_nt_masked": ["a", "b", "d", "masked_m", "expected_m", *fp8],
        "k_grouped_bf16_gemm_tn_contiguous": [*k_grouped, "compiled_dims", "use_psum_layout"],
        "k_grouped_fp8_gemm_tn_contiguous": [
            *k_grouped, "recipe", "compiled_dims", "use_psum_layout",
        ],
        "k_grouped_fp8_gemm_nt_contiguous": [
            *k_grouped, "recipe", "compiled_dims", "use_psum_layout",
        ],
    }.items():  # fmt: skip
        assert list(inspect.signature(getattr(deep_gemm, name)).parameters) == theirs, name


# --- FlashInfer ---


INDPTR = int32([0, *OFFS.tolist()])


def test_flashinfer_grouped_mm() -> None:
    a, b, alpha = integers(TOTAL, K), integers(G, N, K), torch.tensor([0.5])
    expected = product(a, b.mT)
    q, w = a.to(E4M3), b.to(E4M3)
    for d, scale in (
        (flashinfer.grouped_mm_bf16(a, b, INDPTR), 1.0),
        (flashinfer.grouped_mm_bf16(a, b, INDPTR, out_dtype=torch.float32, tactic=3), 1.0),
        (flashinfer.grouped_mm_fp8(q, w, INDPTR), 1.0),
        (flashinfer.grouped_mm_fp8(q, w, INDPTR, alpha, out_dtype=torch.float16), 0.5),
    ):
        assert torch.equal(d, (scale * expected).to(d.dtype))
    out = torch.full((TOTAL, N), 7.0)
    assert flashinfer.grouped_mm_bf16(a, b, INDPTR, out) is out
    end = RANGES[-1][1]
    assert torch.equal(out[:end].double(), expected[:end]) and (out[end:] == 7).all()


@pytest.mark.parametrize("rows_of_b", [1, 128])
def test_flashinfer_group_gemm_fp8(rows_of_b: int) -> None:
    a, b = integers(TOTAL, K, dtype=E4M3), integers(G, N, K, dtype=E4M3)
    scale_a, scale_b = scales(TOTAL, K_BLOCKS), scales(G, -(-N // rows_of_b), K_BLOCKS)
    expected = product(a.double() * blocks(scale_a, TOTAL, K), (b.double() * blocks(scale_b, N, K)).mT)
    granularity = (1, rows_of_b, 128)
    function = flashinfer.group_gemm_fp8_nt_groupwise
    d = function(a, b, scale_a, scale_b, INDPTR, granularity, "K")
    assert torch.equal(d, expected.bfloat16())
    turned = scale_a.t().contiguous(), scale_b.mT.contiguous()
    d = function(a, b, *turned, INDPTR, granularity, mma_sm=2, out_dtype=torch.float16)
    assert torch.equal(d, expected.half())
    out = torch.empty(TOTAL, N)
    assert function(a, b, *turned, INDPTR, granularity, out=out) is out


def test_flashinfer_refusals() -> None:
    a, b = integers(TOTAL, K, dtype=E4M3), integers(G, N, K, dtype=E4M3)
    arguments = (a, b, scales(TOTAL, K_BLOCKS), scales(G, 1, K_BLOCKS), INDPTR)
    with pytest.raises(ValueError, match=r"scale_granularity_mnk is \(128, 128, 128\)"):
        flashinfer.group_gemm_fp8_nt_groupwise(*arguments, (128, 128, 128))
    with pytest.raises(ValueError, match="scale_major_mode is 'N'"):
        flashinfer.group_gemm_fp8_nt_groupwise(*arguments, scale_major_mode="N")
    with pytest.raises(TypeError, match="alpha is float; it must be a float32 tensor of one value, or None"):
        flashinfer.grouped_mm_fp8(a, b, INDPTR, alpha=2.0)


def test_signatures_of_flashinfer() -> None:
    """As its documentation has them; it cannot be imported here."""
    bf16 = ["a", "b", "m_indptr", "out", "out_dtype", "backend", "tactic"]
    for name, theirs in {
        "grouped_mm_bf16": bf16,
        "grouped_mm_fp8": [*bf16[:3], "alpha", *bf16[3:]],
        "group_gemm_fp8_nt_groupwise": [
            "a", "b", "a_scale", "b_scale", "m_indptr", "scale_granularity_mnk",
            "scale_major_mode", "mma_sm", "out", "out_dtype",
        ],
    }.items():  # fmt: skip
        assert list(inspect.signature(getattr(flashinfer, name)).parameters) == theirs, name
