"""Scaled convolutions of 8-bit operands on the CPU backend, against unfolded products in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conv_reference import Convolution
from gemm_reference import MODES, assert_close
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies_matrices import DTYPES

import cleave
from cleave.testing.conv_axis import Axis

TYPES = [name for name in ("int8", "float8_e4m3fn", "float8_e5m2") if name in DTYPES]
CAUSAL = Convolution(2, 16, 24, (Axis(9, 3, 1, 2, 0), Axis(8, 3, 2, 1, 1)), 2)


def drawn(convolution: Convolution, name: str, dtype: str, seed: int = 0) -> np.ndarray:
    first, channels, *axes = convolution.shapes[name]
    values = np.random.default_rng(seed).standard_normal((first, *axes, channels))
    return np.moveaxis((values * (30 if dtype == "int8" else 1)).astype(DTYPES[dtype]), -1, 1)


def scaled(values: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Filters times their one scale, or each times its own."""
    return np.asarray(values, np.float64) * np.reshape(np.float64(scale), (-1, *[1] * (values.ndim - 1)))


def function(convolution: Convolution) -> Any:
    return getattr(cleave, f"scaled_conv{len(convolution.axes)}d")


@settings(max_examples=100)
@given(st.data())
def test_against_unfolded_products(data: st.DataObject) -> None:
    draw = data.draw
    rng = np.random.default_rng(draw(st.integers(0, 2**31)))
    groups = draw(st.sampled_from([1, 2, 3]))
    padding = st.integers(0, 3), st.integers(0, 2)
    axis = st.builds(Axis, st.integers(4, 9), st.integers(1, 3), st.integers(1, 3), *padding)
    axes = tuple(draw(axis) for _ in range(draw(st.integers(1, 3))))
    channels, filters = (draw(st.integers(1, 6)) * groups for _ in range(2))
    convolution = Convolution(draw(st.integers(1, 2)), channels, filters, axes, groups)
    input_type = draw(st.sampled_from(TYPES))
    weight_type = "int8" if input_type == "int8" else draw(st.sampled_from(TYPES[1:]))
    x, w = drawn(convolution, "input", input_type), drawn(convolution, "weight", weight_type, 1)
    scale_a = rng.uniform(0.25, 2, draw(st.sampled_from([(), (1,), (1, 1)]))).astype(np.float32)
    scale_b = rng.uniform(0.25, 2, draw(st.sampled_from([(), (1,), (filters,)]))).astype(np.float32)
    bias = rng.standard_normal(filters).astype(np.float32) if draw(st.booleans()) else None
    options: dict[str, Any] = {"split_k_mode": draw(st.sampled_from(MODES))}
    a, b = convolution.operands("fprop", input=scaled(x, 1) * np.float64(scale_a).item(), weight=scaled(w, scale_b))
    if options["split_k_mode"] not in ("none", "auto"):
        options["split_k_slices"] = draw(st.integers(1, min(4, a.shape[-1])))
    y = function(convolution)(
        x, w, scale_a, scale_b, bias, **convolution.geometry, activation="relu", out_dtype="float32", **options
    )
    row = {} if bias is None else {"bias": convolution.row(bias)}
    assert_close(convolution.matrix("fprop", y), "float32", a, b, activation="relu", **row)


@pytest.mark.parametrize("dtype", TYPES)
def test_outputs_that_the_next_layer_reads(dtype: str) -> None:
    x, w = drawn(CAUSAL, "input", dtype), drawn(CAUSAL, "weight", dtype, 1)
    scale_b = np.linspace(0.01, 0.02, CAUSAL.filters, dtype=np.float32)
    scales = np.float32(0.05), scale_b
    wide = cleave.scaled_conv2d(x, w, *scales, **CAUSAL.geometry, out_dtype="float32")
    most, scale_d = np.zeros(1, np.float32), np.array([float(np.abs(wide).max()) / 100], np.float32)
    q = cleave.scaled_conv2d(x, w, *scales, **CAUSAL.geometry, out_dtype=dtype, scale_d=scale_d, amax=most)
    assert q.dtype == DTYPES[dtype]
    assert most == np.abs(wide).max()
    expected = wide * (1 / scale_d)
    expected = np.rint(expected) if dtype == "int8" else expected
    np.testing.assert_array_equal(q, expected.astype(DTYPES[dtype]))


@pytest.mark.parametrize("mode", MODES)
def test_plans_take_scales_at_each_call(mode: str) -> None:
    x, w = drawn(CAUSAL, "input", "int8"), drawn(CAUSAL, "weight", "int8", 1)
    one, each = np.ones(1, np.float32), np.arange(CAUSAL.filters, dtype=np.float32)
    plan = cleave.plan_conv2d(
        "fprop", x, w, **CAUSAL.geometry, scale_a=one, scale_b=each, out_dtype="float32", split_k_mode=mode
    )
    for factor in (np.float32(1), np.float32(0.5)):
        y = plan.run(x, w, scale_a=one * factor, scale_b=each)
        np.testing.assert_array_equal(
            y, cleave.scaled_conv2d(x, w, factor, each, **CAUSAL.geometry, out_dtype="float32", split_k_mode=mode)
        )
    with pytest.raises(ValueError, match="scale_a is missing"):
        plan.run(x, w)


def test_no_scales_are_sums() -> None:
    x, w = drawn(CAUSAL, "input", "int8"), drawn(CAUSAL, "weight", "int8", 1)
    y = cleave.scaled_conv2d(x, w, None, None, **CAUSAL.geometry)
    assert y.dtype == np.int32
    np.testing.assert_array_equal(y, cleave.conv2d(x, w, **CAUSAL.geometry))


def test_mistakes() -> None:
    x, w = drawn(CAUSAL, "input", "int8"), drawn(CAUSAL, "weight", "int8", 1)
    one = np.ones(1, np.float32)

    def refused(match: str, *scales: Any, error: type[Exception] = ValueError, a: Any = x, b: Any = w, **options: Any):
        with pytest.raises(error, match=match):
            cleave.scaled_conv2d(a, b, *scales, **CAUSAL.geometry, **options)

    refused(r"scale_b is missing", one, None)
    refused(r"scale_a is \(16,\); it must hold one value", np.ones(16, np.float32), one)
    refused(r"scale_b is \(16,\); it must be contiguous, one value or one for each of the 24 filters", one,
            np.ones(16, np.float32))  # fmt: skip
    refused(r"scale_a is float64", np.ones(1), one, error=TypeError)
    refused(r"scales are for 8-bit operands", one, one, a=x.astype(np.float32), b=w.astype(np.float32))
    refused(r"only an 8-bit d is divided by a scale", one, one, scale_d=one)
    refused(r"8-bit floats alone have that choice", one, one, use_fast_accum=True)
    with pytest.raises(TypeError, match="int8"):
        cleave.conv2d_dgrad(x.shape, w, cleave.conv2d(x, w, **CAUSAL.geometry).astype(np.int8), **CAUSAL.geometry)


@cleave.epilogue
def masked(acc, shift: cleave.row, mask: cleave.column, x: cleave.matrix):
    return (acc + shift) * mask + x


@pytest.mark.parametrize("scaling", ["tensor", "row"])
def test_plans_from_sizes_run(scaling: str) -> None:
    types = masked(shift="float32", mask="float32", x="float32")
    plan = cleave.plan_conv_problem(
        2, (7, 6), 8, 12, (3, 3), padding=1, groups=2, dtype="int8", out_dtype="float32", scaling=scaling,
        epilogue=types, device="cpu",
    )  # fmt: skip
    rng = np.random.default_rng(0)
    convolution = Convolution(2, 8, 12, (Axis(7, 3, 1, 1, 1), Axis(6, 3, 1, 1, 1)), 2)
    x, w = drawn(convolution, "input", "int8"), drawn(convolution, "weight", "int8", 1)
    scales = rng.uniform(0.5, 1, 1).astype(np.float32), rng.uniform(0.5, 1, 12 if scaling == "row" else 1)
    scale_a, scale_b = (scale.astype(np.float32) for scale in scales)
    inputs = {
        "shift": rng.standard_normal(12).astype(np.float32),
        "mask": rng.standard_normal((2, 1, 7, 6)).astype(np.float32),
        "x": np.moveaxis(rng.standard_normal((2, 7, 6, 12)).astype(np.float32), -1, 1),
    }
    options = {"scale_a": scale_a, "scale_b": scale_b, "epilogue": masked(**inputs)}
    direct = cleave.scaled_conv2d(x, w, **options, padding=1, groups=2, out_dtype="float32")
    assert np.array_equal(plan.run(x, w, **options), direct)


@pytest.mark.parametrize(("options", "message"), [
    ({"scaling": "block_1x128"}, 'scaling is "block_1x128".*"none", "tensor" or "row"'),
    ({"scaling": "row", "kind": "dgrad", "dtype": "bfloat16"}, "scale_a"),
])  # fmt: skip
def test_plans_that_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cleave.plan_conv_problem(2, (7, 6), 16, 16, (3, 3), **{"dtype": "int8", "device": "cpu"} | options)
