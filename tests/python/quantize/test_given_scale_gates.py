"""Gates into 8 bits with a scale that is known ahead: as `cleave.quantize` makes of the same D in float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies_matrices import DTYPES

import cleave
from cleave._epilogue.activations import GATED

QUANTIZED = [name for name in ("int8", "float8_e4m3fn", "float8_e5m2") if name in DTYPES]
STEP = np.float32([0.25])  # whose reciprocal is exact


def bits(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x).view(np.uint8)


def expected(wide: np.ndarray, dtype: str) -> np.ndarray:
    return cleave.quantize(wide.reshape(-1, wide.shape[-1]), dtype, "tensor", scale=STEP)[0].reshape(wide.shape)


@cleave.epilogue
def divided(acc, scale: cleave.scalar):
    hidden = cleave.silu(acc.gate) * acc.up
    return cleave.outputs(d=hidden / scale, largest=cleave.absmax(hidden))


@given(st.data())
@settings(deadline=None)
def test_dense(data: st.DataObject) -> None:
    draw = data.draw
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    m, n, k = draw(st.integers(1, 70)), draw(st.integers(1, 200)), draw(st.integers(0, 90))
    mode = draw(st.sampled_from(("auto", "none", "serial", "parallel", "stream_k")))
    dtype, activation = draw(st.sampled_from(QUANTIZED)), draw(st.sampled_from(GATED))
    a, b = (rng.integers(-9, 10, shape).astype(np.int8) for shape in ((m, k), (2 * n, k)))
    scales: Any = rng.random((m, 1), np.float32) / 8, rng.random((1, 2 * n), np.float32) / 8
    options: dict[str, Any] = {"split_k_mode": mode}
    if draw(st.booleans()):
        options["bias"] = rng.standard_normal(2 * n).astype(np.float32)
    wide = cleave.scaled_gemm(a, b.T, *scales, activation=activation, out_dtype="float32", **options)
    amax = np.zeros(1, np.float32)
    made = cleave.scaled_gemm(
        a, b.T, *scales, activation=activation, out_dtype=dtype, scale_d=STEP, amax=amax, **options
    )
    assert (bits(made) == bits(expected(wide, dtype))).all() and amax[0] == abs(wide).max()
    if activation == "swiglu":
        made, largest = cleave.scaled_gemm(a, b.T, *scales, epilogue=divided(scale=STEP), out_dtype=dtype, **options)
        assert (bits(made) == bits(expected(wide, dtype))).all() and largest == amax[0]


@pytest.mark.parametrize("dtype", QUANTIZED)
def test_groups(dtype: str) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((90, 64), np.float32), rng.standard_normal((3, 64, 2 * 40), np.float32)
    offs = np.array([20, 20, 75], np.int32)

    @cleave.epilogue
    def of_experts(acc, scale: cleave.scalar):
        return cleave.silu(acc.gate) * acc.up / scale

    wide = cleave.grouped_gemm(a, b, offs, activation="swiglu", out_dtype="float32")
    made = cleave.grouped_gemm(a, b, offs, epilogue=of_experts(scale=STEP), out_dtype=dtype)
    assert (bits(made) == bits(expected(wide, dtype))).all() and not bits(made[75:]).any()
    amax = np.zeros(1, np.float32)
    made = cleave.grouped_gemm(a, b, offs, activation="swiglu", out_dtype=dtype, scale_d=STEP, amax=amax)
    assert (bits(made) == bits(expected(wide, dtype))).all() and amax[0] == abs(wide).max()


@pytest.mark.parametrize("mode", ["none", "parallel", "stream_k"])
@pytest.mark.parametrize("dtype", QUANTIZED)
def test_groups_without_gates(dtype: str, mode: str) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(-9, 10, (90, 64)).astype(np.int8), rng.integers(-9, 10, (3, 48, 64)).astype(np.int8)
    offs, scales = np.array([20, 20, 75], np.int32), (rng.random(90, np.float32), rng.random((3, 48), np.float32))
    a[75:] = 127  # of no group
    options: dict[str, Any] = {"scale_a": scales[0] / 64, "scale_b": scales[1] / 64, "split_k_mode": mode}
    wide = cleave.grouped_gemm(a, b.swapaxes(1, 2), offs, out_dtype="float32", **options)
    amax = np.zeros(1, np.float32)
    options |= {"out_dtype": dtype, "scale_d": STEP, "amax": amax}
    made = cleave.grouped_gemm(a, b.swapaxes(1, 2), offs, **options)
    assert (bits(made) == bits(expected(wide, dtype))).all() and amax[0] == abs(wide).max()


def test_integers_are_no_product_of_gates() -> None:
    a, b = np.ones((4, 16), np.int8), np.ones((16, 8), np.int8)
    with pytest.raises(ValueError, match="d is int32, but activation is swiglu, whose result is no sum"):
        cleave.gemm(a, b, activation="swiglu", out_dtype="int32")
