"""Rows of D that do not depend on the other rows: on the CPU bit by bit, and in the plans of a GPU's products."""

from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cleave
from cleave import _core
from cleave.testing.grouped_case import GroupedCase

ROWS = (1, 2, 3, 7, 16, 64, 65, 120, 121, 129, 300)
SHAPES = [(96, 700), (128, 16384), (2048, 512), (257, 4096)]
INVARIANT: dict[str, Any] = {"deterministic": "batch_invariant"}


def draw(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(("n", "k"), SHAPES)
def test_rows_are_those_of_any_batch(n: int, k: int) -> None:
    a, b = draw(300, k), draw(k, n)
    whole = cleave.gemm(a, b, **INVARIANT)
    for m in ROWS:
        assert np.array_equal(cleave.gemm(a[:m], b, **INVARIANT), whole[:m])
        assert np.array_equal(cleave.gemm(a[300 - m :], b, **INVARIANT), whole[300 - m :])
    batch = np.stack([a[:5], a[7:12], a[100:105]])
    assert np.array_equal(cleave.gemm(batch, b, **INVARIANT)[1], whole[7:12])


@settings(max_examples=60)
@given(n=st.integers(1, 300), k=st.integers(1, 3000), padding=st.integers(0, 5), seed=st.integers(0, 2**31))
def test_rows_wherever_they_stand(n: int, k: int, padding: int, seed: int) -> None:
    """Any rows of padded ones, in any order and number, beside each other, behind each other and alone."""
    rng = np.random.default_rng(seed)
    rows = np.ascontiguousarray(rng.standard_normal((65, k + padding)), np.float32)[:, :k]
    b = np.ascontiguousarray(rng.standard_normal((k, n)), np.float32)
    whole = cleave.gemm(rows, b, **INVARIANT)
    for m in (1, *rng.integers(1, 66, 4)):
        taken = rng.integers(0, 66 - m) + np.arange(m)
        assert np.array_equal(cleave.gemm(rows[taken[0] : taken[0] + m], b, **INVARIANT), whole[taken])


def test_a_long_k_is_split_nevertheless() -> None:
    a, b = draw(200, 16384), draw(16384, 128)
    plans = [cleave.plan_gemm(a[:m], b, **INVARIANT) for m in (1, 64, 200)]
    assert plans[0].split_k_slices > 1
    assert len({(plan.split_k_mode, plan.split_k_slices) for plan in plans}) == 1
    assert "batch_invariant" in plans[0].why
    free = [cleave.plan_problem(m, 128, 16384, dtype="float32", device="cpu").split_k_slices for m in (1, 5000)]
    assert free[0] > free[1]  # what the promise takes away


def test_scaled_rows_are_those_of_any_batch() -> None:
    x, w = draw(130, 4096), draw(160, 4096)
    for granularity in ("row", "block_1x128"):
        (a, scale_a), (b, scale_b) = cleave.quantize(x, "int8", granularity), cleave.quantize(w, "int8", "row")
        if granularity == "block_1x128":
            b, scale_b = cleave.quantize(w, "int8", "block_1x128")
        options = {"out_dtype": "float32", **INVARIANT}
        whole = cleave.scaled_gemm(a, b.T, scale_a, scale_b.T, **options)
        for m in (1, 17, 128, 129):
            assert np.array_equal(cleave.scaled_gemm(a[:m], b.T, scale_a[:m], scale_b.T, **options), whole[:m])


def test_groups_of_rows_are_those_of_any_routing() -> None:
    a, b = draw(90, 2048), draw(3, 2048, 64)
    alone = [cleave.gemm(a, b[g], **INVARIANT) for g in range(3)]
    for ends in ([30, 60, 90], [1, 2, 90], [0, 89, 90], [50, 50, 77]):
        d = cleave.grouped_gemm(a, b, np.array(ends, np.int32), **INVARIANT)
        same = cleave.grouped_gemm(a, b, np.array([30, 60, 90], np.int32), **INVARIANT)
        begin = 0
        for g, end in enumerate(ends):
            rows = slice(max(begin, 30 * g), min(end, 30 * g + 30))
            assert np.array_equal(d[rows], same[rows])
            np.testing.assert_allclose(d[begin:end], alone[g][begin:end], rtol=1e-3, atol=1e-3)
            begin = end


@pytest.mark.parametrize("k", [96, 2048])
def test_groups_are_those_of_any_number_of_groups(k: int) -> None:
    """As experts that are dealt to ranks."""
    a, b = draw(96, k), draw(8, k, 64)
    whole = cleave.grouped_gemm(a, b, np.arange(12, 97, 12, dtype=np.int32), **INVARIANT)
    for first, count in ((0, 4), (4, 4), (3, 1), (2, 5)):
        rows, ends = slice(12 * first, 12 * (first + count)), np.arange(12, 12 * count + 1, 12, dtype=np.int32)
        d = cleave.grouped_gemm(a[rows], b[first : first + count], ends, **INVARIANT)
        assert np.array_equal(d, whole[rows])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda a: cleave.gemm(a, a.T, deterministic="batch"), 'it must be True, False or "batch_invariant"'),
        (lambda a: cleave.gemm(a.T, a, **INVARIANT), "a is contiguous along M"),
        (lambda a: cleave.gemm(a, a.T, split_k_mode="stream_k", **INVARIANT), "stream_k"),
        (lambda a: cleave.grouped_gemm(a.T.copy(), a, np.array([9], np.int32), **INVARIANT), "K is grouped"),
        (lambda a: cleave.conv1d(a[None], a[:, :, None].copy(), convert=True, **INVARIANT), "convolutions"),
    ],
)
def test_what_cannot_be_promised_is_refused(call: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call(draw(9, 9))


def test_the_switch_is_for_calls_that_say_nothing() -> None:
    a, b = draw(200, 16384), draw(16384, 128)
    assert not _core.batch_invariant()
    with cleave.batch_invariant():
        assert "batch_invariant" in cleave.plan_gemm(a, b).why
        assert "batch_invariant" not in cleave.plan_gemm(a, b, deterministic=False).why
        cleave.gemm(a.T, a)  # cannot promise it
        with cleave.batch_invariant(False):
            assert "batch_invariant" not in cleave.plan_gemm(a, b).why
        whole = cleave.gemm(a, b)
    assert not _core.batch_invariant()
    assert np.array_equal(whole, cleave.gemm(a, b, **INVARIANT))


# What a GPU would run: the same sums in the same order for every M. Which properties change a sum's bits was measured.

SIZES = [(n, k) for n in (128, 640, 1536, 4096, 28672) for k in (128, 896, 4096, 14336)]
MANY_ROWS = (1, 2, 5, 16, 33, 64, 100, 128, 200, 300, 512, 1000, 2048, 5000, 8192)


def order(plan: Any) -> tuple[Any, ...]:
    """Family, whether K is walked in one go, elements of K in a block, slices, and how many of them meet first."""
    family = plan.kernel_name.split()[0]
    block = int(re.search(r"\.tile =\s*\{[^}]*\.k = (\d+)", plan.kernel_source)[1])
    promoted = ".promote = true" in plan.kernel_source
    joined = re.search(r"parallel \d+ (?:clusters|in_turn) (\d+)", plan.kernel_name)
    together = int(joined[1]) if joined else 1
    return family, block if plan.split_k_slices > 1 or promoted else 0, plan.split_k_slices, together


KINDS: dict[str, dict[str, Any]] = {
    "bf16": {},
    "bf16 bias": {"bias": "row", "activation": "gelu"},
    "fp8 rows": {"dtype": "float8_e4m3fn", "scaling": "row", "out_dtype": "bfloat16"},
    "fp8 blocks": {"dtype": "float8_e4m3fn", "scaling": "block_128x128", "out_dtype": "bfloat16"},
    "int4": {"weights": "int4"},
    "nvfp4 beside fp8": {"dtype": "float8_e4m3fn", "weights": "nvfp4"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_gpus_plans_sum_in_one_order(kind: str) -> None:
    split = 0
    for n, k in SIZES:
        plans = [cleave.plan_problem(m, n, k, device="h100", **KINDS[kind], **INVARIANT) for m in MANY_ROWS]
        orders = {order(plan) for plan in plans}
        assert len(orders) == 1, (n, k, orders)
        names = " ".join(plan.kernel_name for plan in plans)
        assert "narrow" not in names and "stream_k" not in names
        split += plans[0].split_k_slices > 1
    assert split > 0


LAYERS = ((96, 32), (256, 96), (768, 2048), (2048, 1024), (1536, 4096), (7168, 2048), (28672, 4096))
OF_GROUPS: dict[str, dict[str, Any]] = {
    "bf16": {},
    "tf32": {"dtype": "float32"},
    "ieee": {"dtype": "float32", "precision": "ieee"},
    "fp8 rows": KINDS["fp8 rows"],
    "fp8 blocks": KINDS["fp8 blocks"],
}


@pytest.mark.parametrize("kind", OF_GROUPS)
def test_a_gpus_groups_sum_in_one_order_whatever_their_number(kind: str) -> None:
    asked = OF_GROUPS[kind] | INVARIANT
    split = 0
    for (n, k), form in itertools.product(LAYERS, ("forward", "dgrad")):
        cases = [
            GroupedCase(groups, groups * tokens, n, k, form=form, **asked)
            for groups in (1, 2, 3, 4, 8, 16, 31, 64, 128, 1024)
            for tokens in (1, 40, 1000)
        ]
        orders = {order(case.plan("h100")) for case in cases}
        assert len(orders) == 1, (n, k, form, orders)
        split += orders.pop()[2] > 1
    assert split > 0 or kind != "ieee"


def test_exact_sums_cost_nothing() -> None:
    for m in MANY_ROWS:
        of_integers = {"dtype": "int8", "scaling": "row", "out_dtype": "bfloat16", "device": "h100"}
        free, promised = (cleave.plan_problem(m, 1536, 7168, **of_integers, **also) for also in ({}, INVARIANT))
        assert promised.kernel_name == free.kernel_name
        assert "the same in any order" in promised.why


def test_many_rows_add_up_the_slices_of_few() -> None:
    few, many = (cleave.plan_problem(m, 1536, 8960, device="h100", **INVARIANT) for m in (1, 4096))
    assert few.split_k_slices == many.split_k_slices > 1
    assert f"in_turn {many.split_k_slices}" in many.kernel_name
    assert many.workspace_size == 0


def test_many_rows_add_up_the_slices_of_clusters_of_few() -> None:
    few, some, many = (cleave.plan_problem(m, 128, 16384, device="h200", **INVARIANT) for m in (1, 512, 4096))
    assert few.split_k_slices == some.split_k_slices == many.split_k_slices
    slices, together = order(few)[2:]
    assert 1 < together < slices
    assert f"parallel {slices} clusters {together}" in few.kernel_name
    assert f"parallel {slices} in_turn {together}" in many.kernel_name


def test_clusters_join_small_tiles_alone_before_others() -> None:
    """As without the promise: large ones lose, and are predicted as if they did not."""
    planned = cleave.plan_problem(512, 128, 16384, device="h200", split_k_slices=24, **INVARIANT)
    names = [candidate["kernel"] for candidate in planned.candidates]
    sizes = [re.search(r"(\d+)x(\d+)", name) for name in names if " clusters " in name]
    assert sizes and all(int(size[1]) * int(size[2]) <= 64 * 128 for size in sizes if size)


@pytest.mark.parametrize(("n", "k", "layout"), [(1, 915, "tn"), (64, 915, "tt"), (1, 4096, "tn"), (9, 13, "tn")])
def test_a_single_row_is_aligned_as_many_are(n: int, k: int, layout: str) -> None:
    """One row could be loaded by TMA where rows that follow each other could not."""
    plans = [cleave.plan_problem(m, n, k, layout=layout, device="h100", **INVARIANT) for m in MANY_ROWS]
    assert len({order(plan) for plan in plans}) == 1


def test_an_order_that_no_kernel_has_is_refused() -> None:
    asked = {"split_k_slices": 7, "kernel": "portable", "device": "h100"}
    assert cleave.plan_problem(77, 100000, 64, **asked).split_k_slices <= 7
    with pytest.raises(ValueError, match=r"batch_invariant.*k=64 for n=100000.*pass deterministic=True"):
        cleave.plan_problem(77, 100000, 64, **asked, **INVARIANT)


def test_torchs_products_are_routed_and_come_back() -> None:
    torch = pytest.importorskip("torch", minversion="2.10")
    pytest.importorskip("cleave.torch", exc_type=ImportError)
    torch.manual_seed(0)
    linear, x = torch.nn.Linear(2048, 96), torch.randn(200, 2048)
    free = linear(x)
    with cleave.torch.batch_invariant():
        whole = linear(x)
        with torch.no_grad():
            for m in (1, 3, 64, 199):
                assert torch.equal(linear(x[:m]), whole[:m])
                assert torch.equal(linear(x[None, :m])[0], whole[:m])
                assert torch.equal(x[:m] @ linear.weight.t(), (x @ linear.weight.t())[:m])
        expected = cleave.gemm(x, linear.weight.detach().t(), bias=linear.bias.detach(), **INVARIANT)
        assert torch.equal(whole, expected)
        batch = torch.randn(3, 5, 64)
        torch.testing.assert_close(torch.bmm(batch, batch.mT), (batch[:, :, None] * batch[:, None]).sum(-1))
        c = torch.randn(96)
        torch.testing.assert_close(
            torch.addmm(c, x, linear.weight.t(), beta=0.5, alpha=2), 0.5 * c + 2 * (x @ linear.weight.t())
        )
        assert (x.long()[:2] @ x.long()[:2].t()).dtype == torch.int64  # torch's own
        out = torch.empty(0)
        assert torch.equal(torch.mm(x, linear.weight.detach().t(), out=out), x @ linear.weight.t())
        whole.square().sum().backward()
    assert linear.weight.grad is not None
    assert not _core.batch_invariant()
    assert torch.equal(linear(x), free)
