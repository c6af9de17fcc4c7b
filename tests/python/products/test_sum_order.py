"""sum_order="k": elements of D that have the bits of the unsplit sum, whatever M, N, the batch and the groups are."""

from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np
import pytest

import cleave
from cleave import _core
from cleave.testing.grouped_case import GroupedCase

ORDER: dict[str, Any] = {"sum_order": "k"}
ROWS = (1, 2, 7, 64, 65, 129, 300)
COLUMNS = (1, 3, 8, 31, 64, 65, 200, 257)


def draw(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("k", [1, 13, 700, 4096, 16384])
def test_elements_are_those_of_any_rows_and_columns(k: int) -> None:
    a, b = draw(300, k), draw(257, k)
    whole = cleave.gemm(a, b.T, **ORDER)
    assert np.array_equal(whole, cleave.gemm(a, b.T, split_k_mode="none"))
    for m, n in itertools.product(ROWS, COLUMNS):
        assert np.array_equal(cleave.gemm(a[300 - m :], b[:n].T, **ORDER), whole[300 - m :, :n])
        assert np.array_equal(cleave.gemm(a[:m], b[257 - n :].T, **ORDER), whole[:m, 257 - n :])
    batch = np.stack([a[:5], a[7:12], a[100:105]])
    assert np.array_equal(cleave.gemm(batch, b.T, **ORDER)[1], whole[7:12])


def test_a_weight_that_is_dealt_to_ranks_by_columns_has_the_bits_of_one_gpu() -> None:
    """A batch-invariant product has not: its split of K follows from N."""
    x, w = draw(3, 16384), draw(2048, 16384)
    for ranks in (2, 4, 8):
        parts = [cleave.gemm(x, part.T, **ORDER) for part in np.split(w, ranks)]
        assert np.array_equal(np.concatenate(parts, 1), cleave.gemm(x, w.T, **ORDER))
    whole, part = (
        cleave.plan_problem(3, n, 16384, device="h200", deterministic="batch_invariant") for n in (2048, 256)
    )
    assert whole.split_k_slices != part.split_k_slices


def test_groups_and_scales() -> None:
    a, b = draw(90, 2048), draw(3, 2048, 64)
    ends = np.array([30, 31, 90], np.int32)
    d = cleave.grouped_gemm(a, b, ends, **ORDER)
    assert np.array_equal(d[31:], cleave.gemm(a[31:], b[2], **ORDER))
    part = cleave.grouped_gemm(a, np.ascontiguousarray(b[:, :, :16]), ends, **ORDER)
    assert np.array_equal(part, d[:, :16])
    for granularity in ("row", "block_1x128"):
        (x, scale_x), (w, scale_w) = (cleave.quantize(each, "int8", granularity) for each in (a, draw(70, 2048)))
        whole = cleave.scaled_gemm(x, w.T, scale_x, scale_w.T, out_dtype="float32", **ORDER)
        some = cleave.scaled_gemm(x[5:9], w[:33].T, scale_x[5:9], scale_w[:33].T, out_dtype="float32", **ORDER)
        assert np.array_equal(some, whole[5:9, :33])


def test_integers_are_split_nevertheless() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(-128, 128, (3, 16384), np.int8), rng.integers(-128, 128, (70, 16384), np.int8)
    plan = cleave.plan_gemm(a, b.T, split_k_mode="parallel", split_k_slices=4, **ORDER)
    assert plan.split_k_slices == 4
    exact = (a.astype(np.int64) @ b.T.astype(np.int64)).astype(np.int32)
    assert np.array_equal(cleave.gemm(a, b.T, split_k_mode="parallel", split_k_slices=4, **ORDER), exact)
    assert np.array_equal(cleave.gemm(a, b.T, **ORDER), exact)
    on_gpu = cleave.plan_problem(1, 1536, 7168, dtype="int8", device="h200", **ORDER)
    assert on_gpu.split_k_slices > 1
    assert "the same in any order (sum_order k)" in on_gpu.why


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda a: cleave.gemm(a, a.T, sum_order="n"), 'sum_order is "n"; it must be "k" or None'),
        (
            lambda a: cleave.gemm(a, a.T, split_k_mode="parallel", **ORDER),
            "sum_order is k, but split_k_mode is par",
        ),
        (lambda a: cleave.gemm(a, a.T, split_k_slices=2, **ORDER), "no split has the bits of the unsplit sum"),
        (
            lambda a: cleave.gemm(a, a.T, split_k_mode="stream_k", **ORDER),
            "sum_order is k, but split_k_mode is str",
        ),
        (lambda a: cleave.gemm(a.T, a, **ORDER), "sum_order is k, but a is contiguous along M"),
        (lambda a: cleave.grouped_gemm(a.T.copy(), a, np.array([9], np.int32), **ORDER), "K is grouped"),
        (lambda a: cleave.conv1d(a[None], a[:, :, None].copy(), convert=True, **ORDER), "convolutions"),
    ],
)
def test_what_cannot_be_promised_is_refused(call: Any, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        call(draw(9, 9))


def test_packed_weights() -> None:
    torch = pytest.importorskip("torch")
    w, x = torch.randn(128, 512).bfloat16(), torch.randn(40, 512).bfloat16()
    whole = cleave.mixed_gemm(x, cleave.pack_weights(w, 64), **ORDER)
    part = cleave.mixed_gemm(x[3:7], cleave.pack_weights(w[:64], 64), **ORDER)
    assert torch.equal(part, whole[3:7, :64])


def test_the_switch_is_for_calls_that_say_nothing() -> None:
    a, b = draw(3, 16384), draw(128, 16384)
    assert cleave.plan_gemm(a, b.T).split_k_slices > 1
    with cleave.batch_invariant(sum_order="k"):
        assert _core.batch_invariant()
        assert "sum_order k" in cleave.plan_gemm(a, b.T).why
        assert "batch_invariant" in cleave.plan_gemm(a, b.T, deterministic="batch_invariant").why
        split = cleave.plan_gemm(a, b.T, split_k_mode="parallel", split_k_slices=2)  # cannot promise it
        assert split.split_k_slices == 2
        assert "batch_invariant" in split.why
        with cleave.batch_invariant():
            assert "sum_order" not in cleave.plan_gemm(a, b.T).why
        assert "sum_order k" in cleave.plan_gemm(a, b.T).why
    assert not _core.batch_invariant()
    with pytest.raises(ValueError, match="leave one of them out"), cleave.batch_invariant(False, sum_order="k"):
        pass


def test_torchs_operators_and_products_follow_the_switch() -> None:
    torch = pytest.importorskip("torch", minversion="2.10")
    pytest.importorskip("cleave.torch", exc_type=ImportError)
    x, w = torch.from_numpy(draw(5, 16384)), torch.from_numpy(draw(64, 16384))
    with cleave.torch.batch_invariant(sum_order="k"):
        whole = torch.ops.cleave.gemm(x, w.t())
        assert torch.equal(torch.ops.cleave.gemm(x[:2], w[:9].t()), whole[:2, :9])
        assert torch.equal(x[1:] @ w[40:].t(), whole[1:, 40:])
    assert np.array_equal(whole.numpy(), cleave.gemm(x.numpy(), w.numpy().T, **ORDER))


# What a GPU would run. Which properties of a plan change a sum's bits was measured (docs/determinism.md).

KINDS: dict[str, dict[str, Any]] = {
    "bf16": {},
    "bf16 bias": {"bias": "row", "activation": "gelu"},
    "tf32": {"dtype": "float32"},
    "ieee": {"dtype": "float32", "precision": "ieee"},
    "bf16x3": {"dtype": "float32", "precision": "bf16x3"},
    "fp8 fast": {"dtype": "float8_e4m3fn", "scaling": "row", "out_dtype": "bfloat16", "use_fast_accum": True},
    "fp8 rows": {"dtype": "float8_e4m3fn", "scaling": "row", "out_dtype": "bfloat16"},
    "fp8 blocks": {"dtype": "float8_e4m3fn", "scaling": "block_128x128", "out_dtype": "bfloat16"},
    "fp8 1x128": {"dtype": "float8_e4m3fn", "scaling": "block_1x128", "out_dtype": "bfloat16"},
    "int8 blocks": {"dtype": "int8", "scaling": "block_128x128", "out_dtype": "bfloat16"},
    "int4": {"weights": "int4"},
    "mxfp4": {"weights": "mxfp4"},
    "W4A8": {"weights": "int4", "dtype": "int8", "scaling": "row", "out_dtype": "bfloat16"},
}


def order(plan: Any) -> tuple[Any, ...]:
    """Family, and elements of K in a block where its sums are promoted."""
    name = plan.kernel_name
    assert (plan.split_k_slices, plan.split_k_mode) == (1, "none")
    assert not {"narrow", "in_turn", "stream_k"} & set(name.split())
    block = int(re.search(r"\.tile =\s*\{[^}]*\.k = (\d+)", plan.kernel_source)[1])
    return name.split()[0], block if ".promote = true" in plan.kernel_source else 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("k", [128, 4096, 14336])
def test_a_gpus_plans_sum_in_one_order_whatever_m_and_n(kind: str, k: int) -> None:
    sizes = itertools.product((1, 16, 130, 4096), (1, 8, 64, 640, 4096, 28672))
    orders = {
        order(cleave.plan_problem(m, n, k, device="h200", **KINDS[kind], **ORDER))
        for m, n in sizes
        if "blocks" not in kind or n % 128 == 0
    }
    assert len(orders) == 1, orders
    assert orders.pop()[0] == ("portable" if KINDS[kind].get("precision") else "sm90")


@pytest.mark.parametrize("kind", ["bf16", "tf32", "fp8 rows"])
def test_a_gpus_groups_sum_as_its_products(kind: str) -> None:
    asked = KINDS[kind] | ORDER
    plans = [
        GroupedCase(groups, 40 * groups, n, 2048, **asked).plan("h200") for groups in (1, 8, 128) for n in (64, 4096)
    ]
    plans.append(cleave.plan_problem(40, 512, 2048, device="h200", **asked))
    assert len({order(plan) for plan in plans}) == 1


def test_the_plan_says_what_the_order_costs() -> None:
    plan = cleave.plan_problem(16, 1536, 7168, device="h200", **ORDER)
    assert "sum K in 1 slice(s), as for every M and N (sum_order k); without that promise" in plan.why
    assert any(candidate["split_k_slices"] > 1 for candidate in plan.candidates)


def test_an_order_that_no_kernel_has_is_refused() -> None:
    with pytest.raises(ValueError, match=r'sum_order="k" cannot be served.*leave sum_order out'):
        cleave.plan_problem(4, 512, 512, weights="int4", kernel="streamed", device="h200", **ORDER)


def test_emitted_projects_keep_the_order_on_every_architecture(tmp_path: Any) -> None:
    free = cleave.plan_problem(16, 1536, 7168, device="h200")
    assert free.split_k_slices > 1
    for name, plan in (("free", free), ("ordered", cleave.plan_problem(16, 1536, 7168, device="h200", **ORDER))):
        folder = cleave.emit.cpp(plan, name, tmp_path / name, archs=["sm_80", "sm_90a"])
        config = (folder / "src" / "config.h").read_text()
        assert ("SplitKMode::parallel" in config or "SplitKMode::cluster" in config) == (name == "free"), config
