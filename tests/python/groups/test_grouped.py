"""cleave.grouped_gemm on the CPU backend: exact sums, weight gradients, scales, forms of arguments, plans."""

from __future__ import annotations

from typing import Any

import gemm_reference
import numpy as np
import pytest
from gemm_reference import spread
from strategies_groups import BOUNDS, describe
from strategies_matrices import CANARY, DTYPES, FLOATS

import cleave


def f32(*shape: int) -> np.ndarray:
    rng = np.random.default_rng(len(shape) + sum(shape))
    return rng.standard_normal(shape).astype(np.float32)


def int8(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).integers(-128, 128, shape, dtype=np.int8)


def loop(a: np.ndarray, b: np.ndarray, ranges: list[tuple[int, int]]) -> np.ndarray:
    """Groups of rows, exactly."""
    d = np.zeros((a.shape[0], b.shape[-1]), np.int64)
    for (begin, end), own in zip(ranges, b, strict=True):
        d[begin:end] = a[begin:end].astype(np.int64) @ own.astype(np.int64)
    return d


@pytest.mark.parametrize("mode", gemm_reference.MODES)
@pytest.mark.parametrize("kind", BOUNDS)
def test_integers_are_exact(mode: str, kind: str) -> None:
    slices = None if mode in ("none", "auto") else 5
    sizes = [3, 0, 1, 150, 0, 64, 65]
    groups = describe(kind, sizes, np.int32, rest=7, spacing=160)
    a, b = int8(groups.extent, 1000), int8(len(sizes), 1000, 17)
    options = groups.keywords | {"split_k_mode": mode, "split_k_slices": slices}
    d = cleave.grouped_gemm(a, b, **options)
    assert d.dtype == np.int32
    np.testing.assert_array_equal(d, loop(a, b, groups.ranges))

    x = int8(groups.extent, 20)
    dw = cleave.grouped_gemm_wgrad(a, x, **options)
    assert dw.dtype == np.int32
    for own, (begin, end) in zip(dw, groups.ranges, strict=True):
        np.testing.assert_array_equal(own, a[begin:end].T.astype(np.int64) @ x[begin:end])


def test_as_many_groups_as_there_can_be() -> None:
    """One row each but for every seventh, which has none, and one, which has a thousand."""
    sizes = [0 if g % 7 == 0 else 1 for g in range(1024)]
    sizes[500] = 1000
    groups = describe("ends", sizes, np.int64)
    a, b = int8(groups.extent, 24), int8(1024, 24, 5)
    np.testing.assert_array_equal(cleave.grouped_gemm(a, b, **groups.keywords), loop(a, b, groups.ranges))


@pytest.mark.parametrize("mode", gemm_reference.MODES)
def test_weight_gradients_accumulate(mode: str) -> None:
    ends = np.array([10, 10, 37, 70], np.int32)
    dy, x = f32(80, 33).astype(np.float16), f32(80, 21).astype(np.float16)
    main_grad = f32(4, 33, 21)
    before = main_grad.copy()
    options = {"split_k_mode": mode}
    for _ in range(2):
        result = cleave.grouped_gemm_wgrad(dy, x, ends, out=main_grad, accumulate=True, alpha=0.5, **options)
    assert result is main_grad
    for g, (begin, end) in enumerate([(0, 10), (10, 10), (10, 37), (37, 70)]):
        expected = before[g] + dy[begin:end].T.astype(np.float64) @ x[begin:end].astype(np.float64)
        np.testing.assert_allclose(main_grad[g], expected, rtol=1e-5, atol=1e-5)
    assert (main_grad[1] == before[1]).all()
    fresh = np.full_like(main_grad, np.nan)
    cleave.grouped_gemm_wgrad(dy, x, ends, out=fresh, **options)
    assert (fresh[1] == 0).all() and not np.signbit(fresh[1]).any()


def test_weight_gradients_of_masked_rows() -> None:
    dy, x, counts = int8(3, 40, 8), int8(3, 40, 5), np.array([40, 0, 13])
    dw = cleave.grouped_gemm_wgrad(dy, x, counts=counts)
    for own, left, right, count in zip(dw, dy, x, counts, strict=True):
        np.testing.assert_array_equal(own, left[:count].T.astype(int) @ right[:count])


def test_weight_gradients_of_8_bits() -> None:
    """With scales for each group's columns, and for blocks of 128 tokens."""
    sizes = [128, 0, 300, 7]
    groups = describe("aligned_ends", sizes, np.int32, spacing=128)
    tokens = groups.extent
    dy, x = int8(tokens, 9), int8(tokens, 6)
    blocks = -(-tokens // 128)

    def check(scale_dy: np.ndarray, scale_x: np.ndarray, factor: Any) -> None:
        dw = cleave.grouped_gemm_wgrad(
            dy, x, **groups.keywords, scale_dy=scale_dy, scale_x=scale_x, out_dtype="float32"
        )
        for g, (begin, end) in enumerate(groups.ranges):
            left, right = factor(g, slice(begin, end))
            expected = (dy[begin:end] * left).T @ (x[begin:end] * right)
            np.testing.assert_allclose(dw[g], expected, rtol=1e-4, atol=1e-2)

    by_group = f32(4, 9), f32(4, 6)
    check(*by_group, lambda g, _: (by_group[0][g].astype(float), by_group[1][g].astype(float)))
    by_block = f32(blocks, 9), f32(blocks, 6)
    full = spread(by_block[0], tokens, 9), spread(by_block[1], tokens, 6)
    check(*by_block, lambda _, cut: (full[0][cut], full[1][cut]))


def test_blocks_have_precedence_over_vectors_for_each_group() -> None:
    """Two groups, two blocks, but both blocks are the first group's."""
    a, b, ends = int8(3, 256), int8(256, 4), np.array([256, 256])
    scales = {"scale_a": np.array([[1, 2]] * 3, np.float32), "scale_b": f32(2, 4) ** 0}
    d = cleave.grouped_gemm(a, b, ends, alignment=128, out_dtype="float32", **scales)
    halves = [a[:, cut].astype(int) @ b[cut] for cut in (slice(128), slice(128, 256))]
    np.testing.assert_array_equal(d, [halves[0] + 2 * halves[1], np.zeros((3, 4))])
    scales = {"scale_a": np.full((2, 3, 1), 3, np.float32), "scale_b": f32(2, 1, 4) ** 0}
    d = cleave.grouped_gemm(a, b, ends, alignment=128, out_dtype="float32", **scales)
    np.testing.assert_array_equal(d[0], 3 * (halves[0] + halves[1]))


@pytest.mark.parametrize("dtype", ["int8", "float16", "float32"])
def test_groups_of_k_that_lie_apart(dtype: str) -> None:
    """Their rows have room for multiples of the alignment, of which a group uses its size."""
    sizes, m, n, spacing = [40, 0, 7, 16, 1], 9, 6, 16
    groups = describe("aligned_ends", sizes, np.int32, spacing=spacing)
    k = -(-groups.extent // spacing) * spacing
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-9, 9, (rows, k)).astype(dtype) for rows in (m, n))

    def apart(x: np.ndarray) -> np.ndarray:
        rooms = [x[:, begin : begin + -(-(end - begin) // spacing) * spacing] for begin, end in groups.ranges]
        return np.concatenate([room.flatten() for room in rooms])

    d = np.full((len(sizes), m, n), CANARY, "float32")
    cleave.grouped_gemm(apart(a), apart(b), **groups.keywords, out=d)
    for own, (begin, end) in zip(d, groups.ranges, strict=True):
        np.testing.assert_array_equal(own, a[:, begin:end].astype(float) @ b[:, begin:end].astype(float).T)


def test_groups_that_lie_apart_may_all_be_empty() -> None:
    """A rank whose experts got no token."""
    nothing, ends = np.zeros(0, np.float32), np.zeros(3, np.int32)
    d = cleave.grouped_gemm(nothing, nothing, ends, alignment=16, out=np.full((3, 9, 6), CANARY, np.float32))
    np.testing.assert_array_equal(d, 0)
    kept = np.ones((3, 9, 6), np.float32)
    np.testing.assert_array_equal(cleave.grouped_gemm(nothing, nothing, ends, alignment=16, c=kept, out=kept), 1)


def test_wrong_offsets_are_clamped() -> None:
    a, b = f32(40, 16), f32(4, 16, 8)
    for bad in ([-5, 90, 20, 2**31 - 1], [40, 0, -(2**31), 12], [7, 3, 80, 1]):
        for kind in ("offs", "starts"):
            values = np.array(bad, np.int32)
            keywords = {"offs": values} if kind == "offs" else {"starts": values, "sizes": values}
            frame = np.full((42, 8), CANARY, np.float32)
            d = cleave.grouped_gemm(a, b, out=frame[1:41], **keywords)
            assert np.isfinite(d).all()
            assert (frame[[0, 41]] == CANARY).all()


def test_batches_need_no_bounds() -> None:
    a, b, bias = int8(3, 20, 64), int8(3, 64, 9), f32(3, 9)
    scales = {"scale_a": f32(3, 20), "scale_b": f32(3, 9)}
    d = cleave.grouped_gemm(a, b, **scales, bias=bias, out_dtype="float32")
    product = a.astype(np.float64) @ b.astype(np.float64)
    expected = product * scales["scale_a"][..., None] * scales["scale_b"][:, None] + bias[:, None]
    np.testing.assert_allclose(d, expected, rtol=1e-5, atol=1e-3)


def test_default_types_and_new_arrays() -> None:
    ends = np.array([2, 5])
    d = cleave.grouped_gemm(f32(7, 4).astype(np.float16), f32(2, 4, 3).astype(np.float16), ends)
    assert d.dtype == np.float16 and d.shape == (7, 3) and (d[5:] == 0).all()
    pytest.importorskip("ml_dtypes")
    d = cleave.grouped_gemm(int8(7, 4), int8(2, 4, 3), ends, scale_a=f32(1), scale_b=f32(1))
    assert d.dtype.name == "bfloat16"


@pytest.mark.parametrize("dtype", FLOATS)
def test_swiglu_of_dense_products(dtype: str) -> None:
    a, b, bias = f32(2, 30, 64).astype(DTYPES[dtype]), f32(64, 34).astype(DTYPES[dtype]), f32(34)
    d = cleave.gemm(a, b, activation="swiglu", bias=bias, out_dtype="float32")
    assert d.shape == (2, 30, 17)
    gemm_reference.assert_close(
        d.astype(np.float64), "float32", a.astype(np.float64), b.astype(np.float64),
        activation="swiglu", bias=bias,
    )  # fmt: skip
    plan = cleave.plan_gemm(a, b, activation="swiglu", bias=bias, out_dtype="float32")
    assert plan.run(a, b, bias=bias).tobytes() == d.tobytes()


def test_swiglu_of_scaled_products() -> None:
    a, b = int8(30, 300), int8(300, 34)
    for scale_a, scale_b in ((f32(30, 1), f32(1, 34)), (f32(30, 3), f32(3, 34))):
        scales = scale_a / 64, scale_b / 64
        d = cleave.scaled_gemm(a, b, *scales, activation="swiglu", out_dtype="float32")
        gemm_reference.assert_close(
            d.astype(np.float64), "float32", a * spread(scales[0], 30, 300),
            b * spread(scales[1], 300, 34), activation="swiglu",
        )  # fmt: skip


def test_arrays_of_torch() -> None:
    torch = pytest.importorskip("torch")
    a, b, ends = f32(20, 16), f32(3, 16, 8), np.array([4, 4, 15])
    expected = cleave.grouped_gemm(a, b, ends)
    a_torch, b_torch = torch.from_numpy(a), torch.from_numpy(b)
    for dtype in (torch.int32, torch.int64):
        d = cleave.grouped_gemm(a_torch, b_torch, torch.from_numpy(ends).to(dtype))
        assert isinstance(d, torch.Tensor)
        np.testing.assert_array_equal(d.numpy(), expected)
    dw = cleave.grouped_gemm_wgrad(a_torch, a_torch, torch.from_numpy(ends))
    np.testing.assert_array_equal(dw.numpy(), cleave.grouped_gemm_wgrad(a, a, ends))


def test_plans_serve_any_sizes() -> None:
    a, b = f32(50, 16), f32(3, 16, 8)
    plan = cleave.plan_grouped_gemm(a, b, np.zeros(3, np.int64))
    for ends in ([1, 2, 3], [0, 0, 50], [20, 30, 50]):
        ends = np.array(ends)
        d = plan.run(a, b, ends)
        np.testing.assert_array_equal(d, cleave.grouped_gemm(a, b, ends))
        out = np.full_like(d, CANARY)
        plan.run(a, b, ends, out=out)
        assert (out[ends[-1] :] == 0).all(), "zero_rest is the plan's"
    plan = cleave.plan_grouped_gemm(a, b, ends, out=out)
    out[...] = CANARY
    plan.run(a, b, np.array([1, 2, 3]), out=out)
    assert (out[3:] == CANARY).all()


def test_plans_of_every_form() -> None:
    a, aligned = f32(256, 16), np.array([100, 200], np.int32)
    cases = [
        ((a, f32(2, 16, 8)), {"offs": aligned, "alignment": 128}),
        ((a.T, f32(256, 8)), {"indptr": np.array([0, 3, 200])}),
        ((f32(2, 9, 16), a.T), {"starts": aligned, "sizes": aligned // 2}),
        ((a.reshape(2, 128, 16), f32(2, 16, 8)), {"counts": aligned // 2}),
        ((a.reshape(2, 128, 16), f32(2, 16, 8)), {}),
        ((a, f32(2, 16, 8)), {"offs": aligned, "activation": "swiglu"}),
    ]
    for operands, keywords in cases:
        plan = cleave.plan_grouped_gemm(*operands, **keywords)
        given = {name: keywords[name] for name in keywords if name not in ("alignment", "activation")}
        d = plan.run(*operands, **given)
        np.testing.assert_array_equal(d, cleave.grouped_gemm(*operands, **keywords))


def test_planning_without_arrays() -> None:
    ends = np.array([3, 3, 17], np.int32)
    sizes = {"m": (20, 8, 16), "n": (8, 20, 16), "k": (8, 16, 20)}
    for grouping, (m, n, k) in sizes.items():
        plan = cleave.plan_problem(m, n, k, batch=3, dtype="float32", layout="tt", grouping=grouping, device="cpu")
        a, b = (
            f32(*([3] if grouping == "n" else []), m, k),
            f32(*([3] if grouping == "m" else []), k, n),
        )
        np.testing.assert_array_equal(plan.run(a, b, ends), cleave.grouped_gemm(a, b, ends))
    plan = cleave.plan_problem(
        20, 8, 16, batch=3, dtype="float32", layout="tt", grouping="m", bounds="aligned_ends",
        spacing=8, activation="swiglu", device="cpu",
    )  # fmt: skip
    a, b = f32(20, 16), f32(3, 16, 16)
    expected = cleave.grouped_gemm(a, b, ends, alignment=8, activation="swiglu")
    np.testing.assert_array_equal(plan.run(a, b, ends), expected)
    plan = cleave.plan_problem(
        20, 8, 256, batch=3, dtype="int8", layout="tn", out_dtype="float32", grouping="m",
        scaling="row", device="cpu",
    )  # fmt: skip
    a, b = int8(20, 256), int8(3, 8, 256).swapaxes(1, 2)
    scales = {"scale_a": f32(20, 1), "scale_b": f32(3, 1, 8)}
    expected = cleave.grouped_gemm(a, b, ends, out_dtype="float32", **scales)
    np.testing.assert_array_equal(plan.run(a, b, ends, **scales), expected)
    plan = cleave.plan_problem(
        8, 16, 20, batch=3, dtype="float32", layout="tt", grouping="k", accumulate=True, device="cpu",
    )  # fmt: skip
    a, b, d = f32(8, 20), f32(20, 16), f32(3, 8, 16)
    expected = cleave.grouped_gemm(a, b, ends, c=d, out=d.copy())
    assert (expected[1] == d[1]).all() and (expected[0] != d[0]).any()  # the second group has no rows
    plan.run(a, b, ends, c=d, out=d)
    np.testing.assert_array_equal(d, expected)
