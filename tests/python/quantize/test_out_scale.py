"""D in 8 bits with scales that the product finds: as `cleave.quantize` would, of the same D in float32.

Operands are small multiples of 1/4, so that sums are exact and equal however K is cut.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies_matrices import DTYPES

import cleave
from cleave._epilogue.activations import GATED
from cleave.testing.grouped_case import GroupedCase

QUANTIZED = [name for name in ("int8", "float8_e4m3fn", "float8_e5m2") if name in DTYPES]
MODES = ("auto", "none", "serial", "parallel", "cluster", "stream_k")
ACTIVATIONS = ("none", "relu2", "silu", "gelu", *GATED)


def exact(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.integers(-5, 6, shape).astype(np.float32) / 4


def bits(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x).view(f"u{x.dtype.itemsize}")


def check(d: np.ndarray, scale: np.ndarray, wide: np.ndarray, *, ue8m0: bool = False) -> None:
    """`wide`: D in float32."""
    rows = np.ascontiguousarray(wide.reshape(math.prod(wide.shape[:-1]), wide.shape[-1]))
    q, found = cleave.quantize(rows, d.dtype, "block_1x128")
    if ue8m0:
        with np.errstate(divide="ignore"):
            found = np.where(found > 0, np.exp2(np.ceil(np.log2(found.astype(np.float64)))), 0).astype(np.float32)
        q, _ = cleave.quantize(rows / np.where(found > 0, found, 1).repeat(128, 1)[:, : rows.shape[1]], d.dtype,
                               scale=np.ones(1, np.float32), granularity="tensor")  # fmt: skip
    np.testing.assert_array_equal(bits(scale.reshape(found.shape)), bits(found))
    np.testing.assert_array_equal(bits(d.reshape(q.shape)), bits(q))


@st.composite
def options(draw: Any) -> dict[str, Any]:
    mode = draw(st.sampled_from(MODES))
    slices = draw(st.integers(1, 4)) if mode in ("serial", "parallel", "cluster") else None
    return {
        "activation": draw(st.sampled_from(ACTIVATIONS)),
        "alpha": draw(st.sampled_from((1.0, 0.5))),
        "split_k_mode": mode,
        "split_k_slices": slices,
    }


@given(st.data())
@settings(deadline=None)
def test_dense(data: st.DataObject) -> None:
    draw = data.draw
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    batch = draw(st.sampled_from([(), (1,), (3,)]))
    m, n, k = (draw(st.integers(low, high)) for low, high in ((0, 70), (0, 300), (0, 90)))
    given_options = draw(options())
    gated = given_options["activation"] in GATED
    columns = 2 * n if gated else n
    a, b = exact(rng, *batch, m, k), exact(rng, *batch, columns, k).swapaxes(-1, -2)
    if m and draw(st.booleans()):
        a[..., 0, :] = 0  # a group of zeros, unless there is a bias
    if draw(st.booleans()):
        given_options["bias"] = exact(rng, columns)
    if not gated and draw(st.booleans()):
        given_options["c"] = exact(rng, *batch, m, n)
    dtype, major = draw(st.sampled_from(QUANTIZED)), draw(st.sampled_from(("k", "mn")))
    ue8m0 = draw(st.booleans())
    wide = cleave.gemm(a, b, out_dtype="float32", **given_options)
    amax = np.zeros(1, np.float32)
    d, scale = cleave.gemm(
        a, b, out_dtype=dtype, out_scale="block_1x128", scale_major=major, use_ue8m0=ue8m0, **given_options
    )
    assert scale.shape == (*batch, m, -(-n // 128)) and scale.dtype == np.float32 and amax[0] == 0
    if scale.size > 1 and min(scale.shape[-2:]) > 1:
        assert scale.strides[-1 if major == "k" else -2] == 4
    check(d, scale, wide, ue8m0=ue8m0)


@given(st.data())
@settings(deadline=None)
def test_groups(data: st.DataObject) -> None:
    draw = data.draw
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    groups, rows = draw(st.integers(1, 4)), draw(st.integers(1, 60))
    n, k = draw(st.integers(1, 300)), draw(st.integers(1, 60))
    given_options = draw(options())
    columns = 2 * n if given_options["activation"] in GATED else n
    weight = exact(rng, groups, k, columns)
    bounds: dict[str, Any]
    if draw(st.booleans()):
        x = exact(rng, groups, rows, k)
        bounds = {"counts": rng.integers(0, rows + 1, groups).astype(np.int32)}
    else:
        x = exact(rng, groups * rows, k)
        bounds = {"offs": np.sort(rng.integers(0, groups * rows + 1, groups)).astype(np.int64)}
    arguments = (x, weight, bounds.pop("offs", None))
    wide = cleave.grouped_gemm(*arguments, out_dtype="float32", **bounds, **given_options)
    d, scale = cleave.grouped_gemm(
        *arguments, out_dtype=QUANTIZED[-1], out_scale="block_1x128", scale_major=draw(st.sampled_from(("k", "mn"))),
        **bounds, **given_options,
    )  # fmt: skip
    check(d, scale, wide)


@pytest.mark.skipif("float8_e4m3fn" not in DTYPES, reason="ml_dtypes is not installed")
@pytest.mark.parametrize("squares", [True, False])
def test_gates_and_ups_have_scales_of_blocks_of_their_own(squares: bool) -> None:
    rng = np.random.default_rng(3)
    m, n, k = 40, 256, 300
    x, w = rng.standard_normal((m, k), np.float32), rng.standard_normal((2 * n, k), np.float32)
    w[n:] *= 50  # the ups' scales are no gate's
    a, scale_a = cleave.quantize(x, "float8_e4m3fn", "block_1x128")
    b, scale_b = cleave.quantize(w, "float8_e4m3fn", "block_128x128" if squares else "block_1x128")
    both = cleave.scaled_gemm(a, b.T, scale_a, scale_b.T, out_dtype="float32").astype(np.float64)
    d = cleave.scaled_gemm(a, b.T, scale_a, scale_b.T, out_dtype="float32", activation="swiglu")
    gate, up = both[:, :n], both[:, n:]
    np.testing.assert_allclose(d, gate / (1 + np.exp(-gate)) * up, rtol=1e-5, atol=1e-2)
    q, scale = cleave.scaled_gemm(
        a, b.T, scale_a, scale_b.T, out_dtype="float8_e4m3fn", activation="swiglu", out_scale="block_1x128"
    )
    check(q, scale, d)
    down = cleave.quantize(rng.standard_normal((64, n), np.float32), "float8_e4m3fn", "block_128x128")
    y = cleave.scaled_gemm(q, down[0].T, scale, down[1].T, out_dtype="float32")  # the next layer, without a copy
    assert np.isfinite(y).all()


def test_columns_that_share_scales_are_a_gates_or_an_ups() -> None:
    given_options = {"dtype": "int8", "scaling": "block_128x128", "activation": "swiglu", "device": "h100"}
    assert cleave.plan_problem(64, 256, 512, **given_options).kernel_name.startswith("sm90")
    with pytest.raises(ValueError, match=r"n is no multiple of 128"):
        cleave.plan_problem(64, 200, 512, **given_options)


def test_functions_and_what_is_given() -> None:
    rng = np.random.default_rng(5)
    a, b, r = exact(rng, 20, 64), exact(rng, 64, 200), exact(rng, 20, 200)

    @cleave.epilogue
    def shifted(acc: Any, r: cleave.matrix) -> Any:
        return cleave.outputs(d=acc + r, pre=acc)

    d, _, scale = cleave.gemm(a, b, epilogue=shifted(r=r), out_dtype="int8", out_scale="block_1x128")
    check(d, scale, a @ b + r)
    out, amax = np.empty((20, 200), np.int8), np.zeros(1, np.float32)
    scale_out = np.full((3, 20), 7, np.float32).T[:, :2]
    made = cleave.scaled_gemm(a.astype(np.int8), b.astype(np.int8), None, None, out=out, out_scale="block_1x128",
                              scale_out=scale_out, amax=amax)  # fmt: skip
    assert made[0] is out and made[1] is scale_out
    exactly = (a.astype(np.int8).astype(np.float32)) @ b.astype(np.int8)
    check(out, np.ascontiguousarray(scale_out), exactly)
    assert amax[0] == abs(exactly).max()
    plan = cleave.plan_gemm(a, b, out_dtype="int8", out_scale="block_1x128", scale_major="mn")
    d, scale = plan.run(a, b)
    check(d, scale, a @ b)
    with pytest.raises(ValueError, match=r"scale_out is blocks.*the plan is for"):
        plan.run(a, b, scale_out=np.empty((20, 2), np.float32))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"out_scale": "rows", "out_dtype": "int8"}, r'^out_scale is "rows".* Did you mean "row"'),
        ({"out_scale": "block_1x128", "out_dtype": "float16"}, r"out_scale is given, but d is float16.*8-bit"),
        ({"out_scale": "block_1x128"}, r"out_scale is given, but d is float32"),
        ({"scale_out": np.ones((4, 1), np.float32)}, r"scale_out is given without out_scale"),
        ({"use_ue8m0": True}, r"use_ue8m0.*no scales are found"),
        ({"scale_major": "mn"}, r"scale_major is mn, but no scales are found"),
        ({"out_scale": "block_1x128", "out": np.empty((8, 4), np.int8).T}, r"row-major d"),
        (
            {"out_scale": "block_1x128", "out_dtype": "int8", "scale_out": np.ones((4, 2), np.float32)},
            r"scale_out is \(4, 2\); it must be \(4, 1\)",
        ),
        (
            {
                "out_scale": "block_1x128",
                "out_dtype": "int8",
                "scale_out": np.lib.stride_tricks.as_strided(np.ones(1, np.float32), (4, 1), (0, 4)),
            },
            r"scale_out overlaps itself: with strides 0, 1 and 0",
        ),
        ({"out_scale": "column", "out_dtype": "int8"}, r"column"),
    ],
)
def test_what_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cleave.gemm(np.zeros((4, 16), np.float32), np.zeros((16, 8), np.float32), **options)


@pytest.mark.parametrize("granularity", ["row", "tensor", "block_128x128"])
def test_powers_of_two_of_what_another_launch_finds(granularity: str) -> None:
    rng = np.random.default_rng(8)
    x, weights = rng.standard_normal((140, 64), np.float32), rng.standard_normal((64, 190), np.float32)
    q, scale = cleave.gemm(x, weights, out_dtype="int8", out_scale=granularity, use_ue8m0=True)
    expected = cleave.quantize(cleave.gemm(x, weights), "int8", granularity, use_ue8m0=True)
    np.testing.assert_array_equal(q, expected[0])
    np.testing.assert_array_equal(scale, expected[1])
    assert (np.frexp(scale)[0] == 0.5).all()


@pytest.mark.parametrize("granularity", ["tensor", "block_128x128"])
@pytest.mark.parametrize("dtype", QUANTIZED)
def test_what_more_of_d_shares(dtype: str, granularity: str) -> None:
    rng = np.random.default_rng(7)
    x, weights = rng.standard_normal((140, 64), np.float32), rng.standard_normal((64, 2 * 190), np.float32)
    between = "float32" if dtype == "int8" else "bfloat16"
    expected = cleave.quantize(cleave.gemm(x, weights, activation="swiglu", out_dtype=between), dtype, granularity)
    made = cleave.gemm(x, weights, activation="swiglu", out_dtype=dtype, out_scale=granularity)
    for one, other in zip(made, expected, strict=True):
        np.testing.assert_array_equal(bits(one), bits(other))
    turned = cleave.gemm(x, weights, activation="swiglu", out_dtype=dtype, out_scale=granularity, scale_major="mn")[1]
    np.testing.assert_array_equal(turned, made[1])
    assert turned.T.flags.c_contiguous
    with pytest.raises(ValueError, match=r'out_scale is .*"block_1x128".* "row", "tensor" or "block_128x128"'):
        cleave.plan_gemm(x, weights, out_dtype=dtype, out_scale=granularity)


@pytest.mark.parametrize("dtype", QUANTIZED)
def test_rows(dtype: str) -> None:
    """Products whose operands have no scales; test_scaled has the others."""
    rng = np.random.default_rng(7)
    x, weights = rng.standard_normal((40, 64), np.float32), rng.standard_normal((3, 64, 2 * 90), np.float32)
    offs = np.array([10, 10, 33], np.int32)
    between = "float32" if dtype == "int8" else "bfloat16"
    for multiply, arguments in ((cleave.gemm, (x, weights[0])), (cleave.grouped_gemm, (x, weights, offs))):
        made = multiply(*arguments, activation="swiglu", out_dtype=dtype, out_scale="row")
        q, scale = cleave.quantize(multiply(*arguments, activation="swiglu", out_dtype=between), dtype)
        np.testing.assert_array_equal(made[0].astype(np.float32), q.astype(np.float32))
        np.testing.assert_array_equal(made[1], scale)
    assert scale.shape == (40, 1) and scale[:33].all() and not scale[33:].any() and not made[0][33:].any()
    out, scale_out = np.empty((40, 90), made[0].dtype), np.empty(40, np.float32)
    again = cleave.grouped_gemm(
        x, weights, offs, activation="swiglu", out=out, out_scale="row", scale_out=scale_out, split_k_mode="serial"
    )
    assert again[0] is out and again[1] is scale_out and not scale_out[33:].any()
    np.testing.assert_allclose(scale_out[:33], scale[:33, 0], rtol=0.01)


@pytest.mark.parametrize(
    ("shape_a", "shape_b", "options", "message"),
    [
        ((2, 8, 16), (2, 16, 64), {"counts": np.array([3, 8], np.int32)}, "D is a matrix: of groups of rows"),
        ((16, 24), (24, 64), {"offs": np.array([10, 24], np.int32)}, "D is a matrix: of groups of rows"),
        ((16, 24), (2, 24, 64), {"offs": np.array([10, 16], np.int32), "zero_rest": False}, "zero_rest is False"),
    ],
)
def test_groups_whose_rows_are_not_quantised(
    shape_a: tuple[int, ...], shape_b: tuple[int, ...], options: dict[str, Any], message: str
) -> None:
    a, b = np.zeros(shape_a, np.float32), np.zeros(shape_b, np.float32)
    with pytest.raises(ValueError, match=message):
        cleave.grouped_gemm(a, b, out_dtype="int8", out_scale="row", **options)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("ue8m0", [False, True])
def test_groups_of_columns_share_scales(mode: str, ue8m0: bool) -> None:
    rng = np.random.default_rng(9)
    a, b, offs = exact(rng, 3, 20, 64), exact(rng, 64, 300), np.array([70, 70, 277], np.int32)
    options: dict[str, Any] = {"split_k_mode": mode, "split_k_slices": 2} if mode != "auto" else {}
    if mode in ("none", "stream_k"):
        options.pop("split_k_slices")
    wide = cleave.grouped_gemm(a, b, offs, activation="relu", **options)
    made = cleave.grouped_gemm(
        a, b, offs, activation="relu", out_dtype="int8", out_scale="block_1x128", use_ue8m0=ue8m0, **options
    )
    check(*made, wide, ue8m0=ue8m0)
    assert not made[0][:, 277:].any()
    out, scale_out = np.full((20, 300), 77, np.int8), np.full((3, 20), 7, np.float32).T
    again = cleave.grouped_gemm(
        a, b, offs, activation="relu", out=out, scale_out=scale_out, out_scale="block_1x128", use_ue8m0=ue8m0, **options
    )
    assert again[0] is out and again[1] is scale_out
    check(out, scale_out, wide, ue8m0=ue8m0)


@pytest.mark.parametrize(
    ("mode", "scaling", "served"),
    [("parallel", "row", False), ("parallel", "block_1x128", False), ("stream_k", "block_1x128", False),
     ("stream_k", "row", True), ("serial", "block_1x128", True)],
)  # fmt: skip
def test_gates_of_groups_name_the_modes_that_they_have_not(mode: str, scaling: str, served: bool) -> None:
    case = GroupedCase(
        *(2, 96, 256, 512, (32, 64), "forward", "float8_e4m3fn"),
        scaling=scaling, activation="swiglu", out_dtype="float8_e4m3fn", out_scale="block_1x128",
        split_k_mode=mode, split_k_slices=None if mode == "stream_k" else 2,
    )  # fmt: skip
    if served:
        assert mode in case.plan("h100").kernel_name
        return
    with pytest.raises(ValueError, match=r'in groups no split_k_mode="parallel" and, .* no "stream_k"'):
        case.plan("h100")


def test_what_groups_of_columns_refuse() -> None:
    a, b, offs = np.zeros((2, 8, 16), np.float32), np.zeros((16, 64), np.float32), np.array([10, 64], np.int32)
    options = {"out_dtype": "int8", "out_scale": "block_1x128"}
    with pytest.raises(ValueError, match=r"zero_rest is False beside out_scale=\"block_1x128\""):
        cleave.grouped_gemm(a, b, offs, zero_rest=False, **options)
    with pytest.raises(ValueError, match=r"out_scale is given, but n is grouped"):
        cleave.plan_grouped_gemm(a, b, offs, **options)


@pytest.mark.parametrize("mode", MODES)
def test_weight_gradients(mode: str) -> None:
    rng = np.random.default_rng(10)
    dy, x, offs = exact(rng, 90, 30), exact(rng, 90, 300), np.array([20, 20, 81], np.int32)
    options: dict[str, Any] = {"split_k_mode": mode, "alpha": 0.5}
    if mode in ("serial", "parallel", "cluster"):
        options["split_k_slices"] = 2
    wide = cleave.grouped_gemm_wgrad(dy, x, offs, **options)
    d, scale = cleave.grouped_gemm_wgrad(dy, x, offs, out_dtype="int8", out_scale="block_1x128", **options)
    assert d.shape == wide.shape and scale.shape == (3, 30, 3) and not scale[1].any()
    check(d, scale, wide)
