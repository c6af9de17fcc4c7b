"""cleave.grouped_gemm(gather=) on the CPU backend: rows that a list names, beside copies of them."""

from __future__ import annotations

from typing import Any

import gemm_reference
import moe_reference
import numpy as np
import pytest
from strategies_groups import describe

import cleave

OUTSIDE = [-1, -(2**31), 2**31 - 1]


def int8(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).integers(-128, 128, shape, dtype=np.int8)


def routed(tokens: int, experts: int, top_k: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """offs and indices of experts that were drawn, of which some are nobody's."""
    ids = np.random.default_rng(seed).integers(-1, experts + 1, (tokens, top_k), dtype=np.int32)
    return cleave.moe.sort_tokens(ids, experts)


@pytest.mark.parametrize("mode", gemm_reference.MODES)
@pytest.mark.parametrize("kind", ["ends", "indptr", "starts", "aligned_ends"])
def test_rows_are_those_that_the_list_names(mode: str, kind: str) -> None:
    sizes = [3, 0, 1, 150, 0, 64, 65]
    groups = describe(kind, sizes, np.int32, rest=7, spacing=160)
    rng = np.random.default_rng(1)
    a, b = int8(40, 1000), int8(len(sizes), 1000, 17)
    slots = rng.integers(0, 40 * 3, groups.extent, dtype=np.int32)
    slots[::11] = rng.choice([*OUTSIDE, 40 * 3], len(slots[::11]))
    rows = np.where((slots >= 0) & (slots < 120), slots // 3, 0)
    expected = a[rows] * ((slots >= 0) & (slots < 120))[:, None].astype(np.int8)
    options: Any = groups.keywords | {"split_k_mode": mode, "split_k_slices": None if mode in ("none", "auto") else 5}
    d = np.full((groups.extent, 17), 7, np.int32)
    cleave.grouped_gemm(a, b, gather=slots, top_k=3, out=d, zero_rest=True, **options)
    np.testing.assert_array_equal(d, cleave.grouped_gemm(expected, b, **options))


@pytest.mark.parametrize("top_k", [1, 2, 7])
def test_sorted_slots_are_gathered_rows(top_k: int) -> None:
    x, w = int8(23, 64), int8(5, 64, 9)
    offs, indices = routed(23, 5, top_k)
    rows = moe_reference.gather(x, indices, top_k)
    d = cleave.grouped_gemm(x, w, offs, gather=indices, top_k=top_k)
    assert d.shape == (23 * top_k, 9)
    np.testing.assert_array_equal(d, cleave.grouped_gemm(rows, w, offs))


@pytest.mark.parametrize("scaling", ["row", "block"])
@pytest.mark.parametrize("scale_major", ["k", "mn"])
def test_scales_lie_as_the_rows_do(scaling: str, scale_major: str) -> None:
    rng = np.random.default_rng(2)
    x, w = int8(20, 300), int8(4, 300, 256)
    offs, indices = routed(20, 4, 3)
    columns = 1 if scaling == "row" else 3
    scale = np.asarray(rng.uniform(0.5, 2, (20, columns)).astype(np.float32), order="C" if scale_major == "k" else "F")
    if scaling == "row":
        scale_b = rng.uniform(0.5, 2, (4, 256)).astype(np.float32)
    else:
        scale_b = rng.uniform(0.5, 2, (4, 3, 2)).astype(np.float32)
    given: Any = {"scale_b": scale_b, "out_dtype": "float32"}
    rows, scales = moe_reference.gather(x, indices, 3), moe_reference.gather(scale, indices, 3)
    scales[indices < 0] = 1
    copied = cleave.grouped_gemm(rows, w, offs, scale_a=scales[:, 0] if scaling == "row" else scales, **given)
    listed = {"scale_a": scale[:, 0].copy() if scaling == "row" else scale, "gather": indices, "top_k": 3}
    np.testing.assert_array_equal(cleave.grouped_gemm(x, w, offs, **listed, **given), copied)
    gated = given | {"activation": "swiglu"}
    copied = cleave.grouped_gemm(rows, w, offs, scale_a=scales[:, 0] if scaling == "row" else scales, **gated)
    np.testing.assert_array_equal(cleave.grouped_gemm(x, w, offs, **listed, **gated), copied)
    found = gated | {"out_dtype": "int8", "out_scale": "block_1x128", "scale_major": scale_major}
    copied = cleave.grouped_gemm(rows, w, offs, scale_a=scales[:, 0] if scaling == "row" else scales, **found)
    for own, other in zip(cleave.grouped_gemm(x, w, offs, **listed, **found), copied, strict=True):
        np.testing.assert_array_equal(own, other)


def test_floats_against_float64() -> None:
    rng = np.random.default_rng(3)
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((30, 100), (6, 100, 40)))
    bias, residual = (rng.standard_normal(shape).astype(np.float32) for shape in ((6, 40), (60, 40)))
    offs, indices = routed(30, 6, 2)
    d = cleave.grouped_gemm(x, w, offs, gather=indices, top_k=2, bias=bias, c=residual, activation="relu")
    begin = 0
    for expert, end in enumerate(offs):
        rows = x[indices[begin:end] // 2].astype(np.float64)
        expected = np.maximum(rows @ w[expert] + bias[expert] + residual[begin:end], 0)
        np.testing.assert_allclose(d[begin:end], expected, rtol=1e-5, atol=1e-5)
        begin = end
    assert (d[begin:] == 0).all()


def test_an_epilogue_function_has_its_own_rows() -> None:
    @cleave.epilogue
    def scaled(acc: Any, factor: cleave.column) -> Any:
        return acc * factor

    x, w = int8(9, 16).astype(np.float32), int8(3, 16, 5).astype(np.float32)
    offs, indices = routed(9, 3, 2)
    factor = np.arange(18, dtype=np.float32)
    d = cleave.grouped_gemm(x, w, offs, gather=indices, top_k=2, epilogue=scaled(factor=factor))
    copied = cleave.grouped_gemm(moe_reference.gather(x, indices, 2), w, offs, epilogue=scaled(factor=factor))
    np.testing.assert_array_equal(d, copied)


def test_plans_follow_the_list() -> None:
    x, w = int8(12, 32), int8(3, 32, 8)
    offs, indices = routed(12, 3, 2)
    plan = cleave.plan_grouped_gemm(x, w, offs, gather=indices, top_k=2)
    for seed in range(3):
        offs, indices = routed(12, 3, 2, seed)
        rows = moe_reference.gather(x, indices, 2)
        np.testing.assert_array_equal(plan.run(x, w, offs, gather=indices), cleave.grouped_gemm(rows, w, offs))
    with pytest.raises(ValueError, match=r"gather is missing|no gather"):
        plan.run(moe_reference.gather(x, indices, 2), w, offs)
    with pytest.raises(ValueError, match=r"the number of a's rows.* is 13, but the plan is for 12"):
        plan.run(int8(13, 32), w, offs, gather=indices)


def test_nothing() -> None:
    w, offs = int8(2, 8, 4), np.zeros(2, np.int32)
    assert cleave.grouped_gemm(int8(0, 8), w, offs, gather=np.empty(0, np.int32), top_k=2).shape == (0, 4)
    assert (cleave.grouped_gemm(int8(3, 8), w, offs, gather=np.zeros(6, np.int32), top_k=2) == 0).all()


def test_refusals() -> None:
    x, w, offs = int8(6, 16), int8(2, 16, 4), np.array([3, 6], np.int32)
    list_ = np.arange(6, dtype=np.int32)

    def refused(match: str, *arguments: Any, error: type = ValueError, **options: Any) -> None:
        with pytest.raises(error, match=match):
            cleave.grouped_gemm(*arguments, **options)

    refused("top_k is 0; it must be at least 1", x, w, offs, gather=list_, top_k=0)
    refused("top_k is 2, but there is no gather", x, w, offs, top_k=2)
    refused("gather is int64", x, w, offs, gather=list_.astype(np.int64), error=TypeError)
    refused("gather is not contiguous", x, w, offs, gather=np.arange(12, dtype=np.int32)[::2])
    refused(r"gather is given, and a is .* it names rows", x, int8(16, 4), offs, gather=list_)
    refused(r"gather is given, and a is .* it names rows", int8(2, 4, 16), int8(16, 6), offs, gather=list_)
    refused("rows that a list names must be contiguous", np.asfortranarray(x), w, offs, gather=list_)
    refused("gather has 6 rows of an a that has none", int8(0, 16), w, offs, gather=list_)
    counted = {"counts": np.array([3, 2]), "alignment": 3}
    refused("groups are counts of rows that a has room for", x, w, gather=list_, **counted)
    d = np.zeros((6, 4), np.int32)
    refused("d overlaps gather|gather overlaps", x, w, offs, gather=d.reshape(-1)[:6], out=d)
