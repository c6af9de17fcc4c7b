"""cleave.mixed_gemm on the CPU backend against NumPy in float64, on randomly drawn problems; and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cleave
from cleave import _core
from cleave.testing.arrays import NumpyArrays
from cleave.testing.problem_operands import make_operands, run

MODES = ("auto", "none", "serial", "parallel", "cluster", "stream_k")


def weights_of(rng: np.random.Generator, n: int, k: int, group: int, has_zeros: bool) -> tuple[Any, np.ndarray]:
    """A packed weight, and what it stands for."""
    groups = k // group
    codes = rng.integers(0, 16, (n, k), dtype=np.uint8)
    scales = rng.uniform(-0.1, 0.1, (groups, n)).astype(np.float16)
    zeros = rng.integers(0, 16, (groups, n), dtype=np.uint8) if has_zeros else None
    zero = 8.0 if zeros is None else zeros.T.repeat(group, 1).astype(np.float64)
    weight = (codes - zero) * scales.T.repeat(group, 1).astype(np.float64)
    return cleave.pack_weights(codes, group, scales=scales, zeros=zeros), weight


def bound(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """How far off a product may be: weights rounded to float16 (perhaps subnormal), sums in float32, and D rounded."""
    elements = abs(weight.T) * (2.0**-11 + x.shape[1] * 2.0**-24) + 2.0**-25
    return abs(x) @ elements + abs(x @ weight.T) * 2.0**-11 + 2.0**-25


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_products(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    group = data.draw(st.sampled_from([32, 64, 128, 256, None]))
    k = data.draw(st.integers(1, 300)) if group is None else group * data.draw(st.integers(1, 4))
    m, n = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 140))
    packed, weight = weights_of(rng, n, k, group or k, data.draw(st.booleans()))
    x = rng.standard_normal((m, k)).astype(np.float16)
    if data.draw(st.booleans()):
        x = np.asfortranarray(x)
    bias = rng.standard_normal(n).astype(np.float32)
    mode = data.draw(st.sampled_from(MODES))
    slices = 3 if mode in ("serial", "parallel", "cluster") else None
    out = np.full((m, n), np.nan, np.float16)
    d = cleave.mixed_gemm(x, packed, bias=bias, activation="relu", out=out, split_k_mode=mode, split_k_slices=slices)
    assert d is out
    sums = x.astype(np.float64) @ weight.T
    expected = np.maximum(sums + bias, 0)
    assert (abs(d - expected) <= bound(x.astype(np.float64), weight) + abs(expected) * 2.0**-11).all()


def test_experts() -> None:
    rng = np.random.default_rng(0)
    codes, scales = rng.integers(0, 16, (3, 70, 128), dtype=np.uint8), rng.uniform(0, 1, (3, 2, 70)).astype(np.float16)
    packed = cleave.pack_weights(codes, 64, scales=scales)
    x = rng.standard_normal((3, 5, 128)).astype(np.float16)
    d = cleave.mixed_gemm(x, packed)
    weight, x64 = np.asarray(cleave.dequantize_weights(packed)).astype(np.float64), x.astype(np.float64)
    for expert in range(3):
        error = abs(d[expert] - x64[expert] @ weight[expert].T)
        assert (error <= bound(x64[expert], weight[expert])).all()


def test_groups_of_rows() -> None:
    rng = np.random.default_rng(0)
    codes, scales = rng.integers(0, 16, (4, 70, 128), dtype=np.uint8), rng.uniform(0, 1, (4, 2, 70)).astype(np.float16)
    packed = cleave.pack_weights(codes, 64, scales=scales, zeros=rng.integers(0, 16, (4, 2, 70), dtype=np.uint8))
    x, offs = rng.standard_normal((50, 128)).astype(np.float16), np.array([7, 7, 30, 45], np.int32)
    bias = rng.standard_normal((4, 70)).astype(np.float32)
    d = cleave.mixed_gemm(x, packed, offs=offs, bias=bias)
    weight, x64 = np.asarray(cleave.dequantize_weights(packed)).astype(np.float64), x.astype(np.float64)
    for expert, (begin, end) in enumerate(zip((0, *offs), offs, strict=False)):
        rows = x64[begin:end]
        expected = rows @ weight[expert].T + bias[expert]
        assert (abs(d[begin:end] - expected) <= bound(rows, weight[expert]) + abs(expected) * 2.0**-11).all()
    assert not d[45:].any()


def test_plans() -> None:
    rng = np.random.default_rng(0)
    packed, _ = weights_of(rng, 70, 256, 64, True)
    x, bias = rng.standard_normal((3, 256)).astype(np.float16), np.ones(70, np.float32)
    plan = cleave.plan_mixed_gemm(x, packed, bias=bias, split_k_mode="parallel", split_k_slices=2)
    beside = {"scales": packed.scales, "zeros": packed.zeros}
    d = plan.run(x, packed.packed, bias=bias, **beside)
    expected = cleave.mixed_gemm(x, packed, bias=bias, split_k_mode="parallel", split_k_slices=2)
    assert (d == expected).all()
    with pytest.raises(ValueError, match="scales is missing, but b is a packed weight"):
        plan.run(x, packed.packed, bias=bias)
    with pytest.raises(ValueError, match="is given, but the plan is for a b that is not packed"):
        cleave.plan_gemm(x, x.T).run(x, x.T, **beside)
    with pytest.raises(TypeError, match="weights is ndarray; it must be a PackedWeights"):
        cleave.plan_mixed_gemm(x, packed.packed)


def test_a_kernel_can_be_named() -> None:
    packed, _ = weights_of(np.random.default_rng(0), 70, 256, 64, False)
    x = np.ones((3, 256), np.float16)
    for kernel in ("sm90", "streamed"):
        plan = cleave.plan_problem(
            3, 70, 256, dtype="float16", weights="int4", group_size=64, kernel=kernel, device="h100"
        )
        assert plan.kernel_name.startswith(kernel)
        for function in (cleave.mixed_gemm, cleave.plan_mixed_gemm):  # which pass it on
            with pytest.raises(ValueError, match=f"kernel is {kernel}, but the device is the CPU"):
                function(x, packed, kernel=kernel)


def test_plans_from_sizes() -> None:
    """Those of arrays, too."""
    packed, _ = weights_of(np.random.default_rng(0), 70, 256, 64, True)
    x = np.ones((3, 256), np.float16)
    plan = cleave.plan_problem(3, 70, 256, dtype="float16", weights="int4", group_size=64, zeros=True, device="cpu")
    d = plan.run(x, packed.packed, scales=packed.scales, zeros=packed.zeros)
    assert (d == cleave.mixed_gemm(x, packed)).all()
    rows = cleave.plan_problem(3, 70, 96, dtype="float16", weights="int4", group_size=-1, device="cpu")
    assert "weights int4 96" in _core.problem_text(rows)
    for options, words in (
        ({"group_size": 64}, 'group_size or zeros is given, but weights is "none"'),
        ({"weights": "nvfp4", "zeros": True}, "zeros is given, but format is nvfp4"),
        ({"weights": "int4", "layout": "tt"}, 'layout is "tt", but B is a packed weight, whose letter is n'),
        ({"weights": "int4", "dtype": "float32"}, "a is float32, but b is a packed weight"),
        ({"weights": "int4", "scaling": "tensor"}, "scale_a is given, but a is float16"),
    ):
        with pytest.raises(ValueError, match=words):
            cleave.plan_problem(3, 70, 256, **{"dtype": "float16", "device": "cpu"} | options)


def test_options_of_groups_where_there_are_none() -> None:
    packed, _ = weights_of(np.random.default_rng(0), 70, 256, 64, True)
    x = np.ones((3, 256), np.float16)
    for options, exception, words in (
        ({"alignment": 8}, ValueError, "alignment is 8, but no bounds of groups are given"),
        ({"zero_rest": True}, ValueError, "zero_rest is True, but no bounds of groups are given"),
        ({"offs": np.array([3], np.int32)}, ValueError, r"offs is given, but weights is \(70, 256\), of no experts"),
        ({"precision": "ieee"}, TypeError, "unexpected keyword argument 'precision'"),
    ):
        with pytest.raises(exception, match=words):
            cleave.mixed_gemm(x, packed, **options)
    with pytest.raises(TypeError, match="dtype is int8; it must be one of float16, bfloat16, float32"):
        cleave.dequantize_weights(packed, "int8")


def test_columns_in_another_order() -> None:
    rng = np.random.default_rng(0)
    codes, scales = rng.integers(0, 16, (70, 128), dtype=np.uint8), rng.uniform(0, 1, (4, 70)).astype(np.float16)
    packed = cleave.pack_weights(codes, 32, scales=scales, g_idx=rng.permutation(128) // 32)
    x = rng.standard_normal((3, 128)).astype(np.float16)
    weight = np.asarray(cleave.dequantize_weights(packed)).astype(np.float64)
    x64 = x.astype(np.float64)
    assert (abs(cleave.mixed_gemm(x, packed) - x64 @ weight.T) <= bound(x64, weight)).all()


def test_zero_points_and_scales_of_any_sign_are_exact() -> None:
    """Codes that are their zero point are 0, whatever else."""
    codes = np.full((64, 64), 11, np.uint8)
    scales = np.full((2, 64), -3.0, np.float16)
    packed = cleave.pack_weights(codes, 32, scales=scales, zeros=np.full((2, 64), 11, np.uint8))
    assert not cleave.mixed_gemm(np.full((2, 64), 60000, np.float16), packed).any()


@pytest.mark.parametrize("act_order", [False, True])
def test_other_columns_are_refused(act_order: bool) -> None:
    """Which whole blocks, or a permutation, would hide."""
    rng = np.random.default_rng(0)
    codes, scales = rng.integers(0, 16, (70, 128), dtype=np.uint8), rng.uniform(0, 1, (2, 70)).astype(np.float16)
    group, g_idx = (64, rng.permutation(128) // 64) if act_order else (-1, None)
    packed = cleave.pack_weights(codes, group, scales=scales[: 128 // group if act_order else 1], g_idx=g_idx)
    for columns in (100, 128 + 64):
        with pytest.raises(ValueError, match=rf"a is \(3, {columns}\), but weights is \(70, 128\); .* same columns"):
            cleave.mixed_gemm(np.ones((3, columns), np.float16), packed)


def call(**changes: Any) -> Any:
    rng = np.random.default_rng(0)
    n, k, group = 70, 256, 64
    packed, _ = weights_of(rng, n, k, group, True)
    arguments = {
        "a": np.ones((3, k), np.float16),
        "packed": packed.packed,
        "scales": packed.scales,
        "zeros": packed.zeros,
        "out_features": n,
        "group_size": group,
    }
    return _core.mixed_gemm(**(arguments | changes))


def test_the_call_that_the_errors_are_of() -> None:
    assert call().shape == (3, 70)


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"a": np.ones((3, 255), np.float16)}, ValueError, "group_size is 64, which does not divide k (255)"),
        ({"a": np.ones((3, 300), np.float16)}, ValueError, "packed is (2, 4, 2048), but"),
        ({"a": np.ones((3, 256), np.float32)}, TypeError, "a is float32; it must be float16, bfloat16, float8_e4m3fn"),
        (
            {"scales": np.ones((4, 70), np.float32)},
            TypeError,
            "scales is float32, but a is float16, beside which it must be float16; convert one",
        ),
        ({"out_features": 200}, ValueError, "packed is (2, 4, 2048), but a weight of 200 rows"),
        ({"out_features": 0}, ValueError, "out_features is 0"),
        ({"out_features": 71}, ValueError, "scales is (4, 70); it must be (4, 71)"),
        ({"group_size": 0}, ValueError, "group_size is 0"),
        ({"group_size": 48}, ValueError, "scales is (4, 70)"),
        ({"group_size": 48, "scales": np.ones((6, 70), np.float16), "zeros": None}, ValueError, "group_size is 48; it"),
        ({"format": "none"}, ValueError, "format is none"),
        ({"format": "mxfp4"}, TypeError, "scales is float16; it must be uint8"),
        ({"format": "mxfp4", "scales": np.ones((4, 70), np.uint8)}, ValueError, "group_size is 64, but format is mx"),
        ({"format": "int5"}, ValueError, 'Did you mean "int4"?'),
        ({"packed": np.zeros((2, 4, 2048), np.float16)}, TypeError, "packed is float16; it must be uint8"),
        ({"packed": np.zeros((2, 4, 4096), np.uint8)[:, :, ::2]}, ValueError, "packed is not contiguous"),
        (
            {"a": np.ones((2, 3, 256), np.float16), "packed": np.zeros((4, 2, 4, 2048), np.uint8)[::2]},
            ValueError,
            "packed is not contiguous",
        ),
        (  # the first columns of a weight of whole rows
            {"a": np.ones((3, 200), np.float16), "group_size": 256, "scales": np.ones((1, 70), "f2"), "zeros": None},
            ValueError,
            "group_size is 256, which does not divide k (200)",
        ),
        ({"zeros": np.zeros((4, 70), np.float32)}, TypeError, "zeros is float32; it must be uint8"),
        ({"zeros": np.zeros((4, 71), np.uint8)[:, :70]}, ValueError, "zeros has other strides than scales"),
        ({"scales": np.ones((70, 4), np.float16).T}, ValueError, "scales has a stride of 4"),
        ({"activation": "swiglu"}, ValueError, "n is 35, but b is a packed weight of gates and ups, 8 of each in turn"),
        ({"kernel": "portable"}, ValueError, "kernel is portable"),
    ],
)
def test_errors(changes: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error) as caught:
        call(**changes)
    assert words in str(caught.value)


def test_what_is_no_packed_weight() -> None:
    a = np.ones((3, 256), np.float16)
    with pytest.raises(TypeError, match="weights is ndarray; it must be a PackedWeights"):
        cleave.mixed_gemm(a, np.ones((70, 256), np.float16))


def test_what_is_no_function() -> None:
    a, weights = np.ones((3, 256), np.float16), cleave.pack_weights(np.ones((70, 256), np.float16))
    with pytest.raises(TypeError, match=r"epilogue must be a function made by @cleave.epilogue, .* got str"):
        cleave.mixed_gemm(a, weights, epilogue="relu")


@pytest.mark.parametrize("m", [1, 9])
def test_mxfp4(m: int) -> None:
    rng = np.random.default_rng(m)
    codes = rng.integers(0, 16, (70, 96), dtype=np.uint8)
    scales = rng.integers(110, 130, (3, 70), dtype=np.uint8)
    packed = cleave.pack_weights(codes, 32, "mxfp4", scales=scales)
    x = rng.standard_normal((m, 96)).astype(np.float16)
    weight, x64 = np.asarray(cleave.dequantize_weights(packed)).astype(np.float64), x.astype(np.float64)
    assert (abs(cleave.mixed_gemm(x, packed, out_dtype="float32") - x64 @ weight.T) <= bound(x64, weight)).all()
    scales[1, 5] = 255  # NaN
    d = cleave.mixed_gemm(x, cleave.PackedWeights(packed.packed, scales, None, (70, 96), 32, "mxfp4"))
    assert (np.isnan(d) == (np.arange(70) == 5)).all()


@pytest.mark.parametrize("form", ["weights int4 64 zeros", "grouped m weights int4 32"])
def test_tools_run_products_by_their_lines(form: str) -> None:
    """As `cleave tune` does with what an application has logged."""
    text = f"64x200x512x{4 if 'grouped' in form else 1} tn float16 float16 {form}"
    plan = _core.plan_text(text, "cpu")
    assert _core.problem_text(plan) == text
    operands = make_operands(NumpyArrays(), plan)
    run(plan, operands, 0)
    names = [field["name"] for field in _core.arrays_of(plan)]
    assert np.isfinite(operands.arrays[names.index("d")]).all()


def test_sharing_tokens_is_chosen_by_name_alone() -> None:
    planned = cleave.plan_problem(256, 4096, 4096, weights="int4", group_size=128, device="h200")
    assert not [candidate["kernel"] for candidate in planned.candidates if "multicast" in candidate["kernel"]]
    name = "sm90 64x128 transposed multicast 2x1"
    assert _core.plan_as(planned, name).kernel_name == name
