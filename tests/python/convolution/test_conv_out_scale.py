"""8-bit outputs of convolutions with scales that are found: those that `cleave.quantize` finds of pixels as rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conv_reference import Convolution
from gemm_reference import MODES
from strategies_matrices import DTYPES

import cleave
from cleave.testing.conv_axis import Axis

QUANTIZED = [name for name in ("int8", "float8_e4m3fn", "float8_e5m2") if name in DTYPES]
GRANULARITIES = ("block_1x128", "row", "tensor")
STRIDED = Convolution(2, 16, 200, (Axis(9, 3, 1, 2, 0), Axis(8, 3, 2, 1, 1)))
CASES = {
    "2-D": STRIDED,
    "groups": Convolution(2, 24, 260, (Axis(5, 3, 1, 1, 1), Axis(6, 2)), 2),
    "1-D": Convolution(3, 12, 129, (Axis(20, 5, 2, 2, 2),)),
    "3-D": Convolution(1, 8, 130, (Axis(4, 2, 1, 1, 0), Axis(5, 3, 2, 1, 1), Axis(4))),
}


def exact(convolution: Convolution, name: str, seed: int) -> np.ndarray:
    """Small multiples of 1/4, whose sums are exact however they are cut, channels last."""
    first, channels, *axes = convolution.shapes[name]
    values = np.random.default_rng(seed).integers(-5, 6, (first, *axes, channels)).astype(np.float32) / 4
    return np.moveaxis(values, -1, 1)


def rows(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(np.moveaxis(x, 1, -1).reshape(-1, x.shape[1]))


def check(made: tuple[np.ndarray, ...], wide: np.ndarray, dtype: str, granularity: str, *, ue8m0: bool = False) -> None:
    y, scale = made
    between = "float32" if dtype == "int8" or granularity == "block_1x128" else "bfloat16"
    q, expected = cleave.quantize(rows(wide).astype(DTYPES[between]), dtype, granularity, use_ue8m0=ue8m0)
    assert y.shape == wide.shape and scale.ndim == wide.ndim and scale.dtype == np.float32
    np.testing.assert_array_equal(rows(y).view(np.uint8), q.view(np.uint8))
    np.testing.assert_array_equal(rows(scale), expected)


@pytest.mark.parametrize("granularity", GRANULARITIES)
@pytest.mark.parametrize("dtype", QUANTIZED)
@pytest.mark.parametrize("name", CASES)
def test_forward(name: str, dtype: str, granularity: str) -> None:
    convolution = CASES[name]
    function = getattr(cleave, f"conv{len(convolution.axes)}d")
    x, w = exact(convolution, "input", 0), exact(convolution, "weight", 1)
    bias = np.linspace(-2, 2, convolution.filters, dtype=np.float32)
    options: dict[str, Any] = {**convolution.geometry, "activation": "relu"}
    wide = function(x, w, bias, **options)
    for ue8m0 in (False, True):
        made = function(x, w, bias, **options, out_dtype=dtype, out_scale=granularity, use_ue8m0=ue8m0)
        check(made, wide, dtype, granularity, ue8m0=ue8m0)
    assert made[1].shape[1] == (-(-convolution.filters // 128) if granularity == "block_1x128" else 1)


@pytest.mark.parametrize("mode", MODES)
def test_every_split_mode(mode: str) -> None:
    x, w = exact(STRIDED, "input", 0), exact(STRIDED, "weight", 1)
    options: dict[str, Any] = {**STRIDED.geometry, "split_k_mode": mode}
    if mode in ("serial", "parallel", "cluster"):
        options["split_k_slices"] = 3
    made = cleave.conv2d(x, w, **options, out_dtype="int8", out_scale="block_1x128")
    check(made, cleave.conv2d(x, w, **options), "int8", "block_1x128")


@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_gradients_and_transposed(granularity: str) -> None:
    w, dy = exact(STRIDED, "weight", 1), exact(STRIDED, "output", 2)
    options: dict[str, Any] = dict(STRIDED.geometry)
    found = {"out_dtype": "int8", "out_scale": granularity}
    size = STRIDED.shapes["input"]
    check(cleave.conv2d_dgrad(size, w, dy, **options, **found), cleave.conv2d_dgrad(size, w, dy, **options), "int8",
          granularity)  # fmt: skip
    check(cleave.conv_transpose2d(dy, w, **options, **found), cleave.conv_transpose2d(dy, w, **options), "int8",
          granularity)  # fmt: skip


@pytest.mark.parametrize("dtype", QUANTIZED)
def test_a_chain_of_scaled_convolutions(dtype: str) -> None:
    """What the first finds for its whole output is the second's scale_a."""
    rng = np.random.default_rng(3)
    first, second = Convolution(2, 16, 48, (Axis(9, 3, 1, 1, 1),) * 2), Convolution(2, 48, 32, (Axis(9), Axis(9)))
    x, *weights = (
        np.moveaxis(rng.standard_normal(shape, np.float32), -1, 1)
        for shape in ((2, 9, 9, 16), (48, 3, 3, 16), (32, 1, 1, 48))
    )

    def quantized(values: np.ndarray, granularity: str) -> tuple[np.ndarray, np.ndarray]:
        matrix = np.ascontiguousarray(np.moveaxis(values, 1, -1)).reshape(len(values), -1)
        q, scale = cleave.quantize(matrix, dtype, granularity)
        shape = len(values), *values.shape[2:], values.shape[1]
        return np.moveaxis(q.reshape(shape), -1, 1), scale.reshape(-1)

    (a, scale_a), (w1, scale_1), (w2, scale_2) = quantized(x, "tensor"), *(quantized(w, "row") for w in weights)
    wide = cleave.scaled_conv2d(a, w1, scale_a, scale_1, **first.geometry, out_dtype="float32")
    found = {"out_dtype": dtype, "out_scale": "tensor"}
    h, scale_h = cleave.scaled_conv2d(a, w1, scale_a, scale_1, **first.geometry, **found)
    check((h, scale_h), wide, dtype, "tensor")
    y = cleave.scaled_conv2d(h, w2, scale_h, scale_2, **second.geometry, out_dtype="float32")
    exactly = np.einsum(
        "nchw,kc->nkhw",
        h.astype(np.float64) * np.float64(scale_h.reshape(-1)[0]),
        w2.astype(np.float64)[:, :, 0, 0] * scale_2[:, None],
    )
    assert np.abs(y - exactly).max() < 1e-6 * np.abs(exactly).max()


def test_functions_and_what_is_given() -> None:
    x, w = exact(STRIDED, "input", 0), exact(STRIDED, "weight", 1)

    @cleave.epilogue
    def shifted(acc: Any, shift: cleave.row) -> Any:
        return cleave.outputs(d=acc + shift, pre=acc)

    shift = np.linspace(-1, 1, 200, dtype=np.float32)
    wide = cleave.conv2d(x, w, **STRIDED.geometry)
    y, pre, scale = cleave.conv2d(
        x, w, **STRIDED.geometry, epilogue=shifted(shift=shift), out_dtype="int8", out_scale="row"
    )
    np.testing.assert_array_equal(pre, wide)
    check((y, scale), wide + shift[:, None, None], "int8", "row")
    images, filters, *size = wide.shape
    room = np.empty((images, *size, filters + 8), np.int8)
    out = np.moveaxis(room, -1, 1)[:, 4:-4]
    made = cleave.conv2d(x, w, **STRIDED.geometry, out=out, out_scale="row")
    assert made[0] is out
    check(made, wide, "int8", "row")


@pytest.mark.parametrize(("options", "message"), [
    ({"out_scale": "block_128x128", "out_dtype": "int8"}, r'"block_128x128", but a convolution.*"block_1x128"'),
    ({"use_ue8m0": True}, r"use_ue8m0 is True, but no scales are found"),
    ({"out_scale": "row", "out": np.zeros((2, 200, 9, 4), np.int8)}, r"out is .* not channels last"),
    ({"out_scale": "row", "out": np.moveaxis(np.zeros((2, 9, 5, 200), np.int8), -1, 1)}, r"out is .*it must be"),
    ({"out_scale": "row", "out_dtype": "int8", "stream": 1}, r"stream is given beside out_scale"),
])  # fmt: skip
def test_what_is_refused(options: dict[str, Any], message: str) -> None:
    x, w = exact(STRIDED, "input", 0), exact(STRIDED, "weight", 1)
    with pytest.raises(ValueError, match=message):
        cleave.conv2d(x, w, **STRIDED.geometry, **options)


def test_other_types_are_refused() -> None:
    x, w = exact(STRIDED, "input", 0), exact(STRIDED, "weight", 1)
    with pytest.raises(TypeError, match="out_dtype is float16; it must be int8"):
        cleave.conv2d(x, w, **STRIDED.geometry, out_scale="row", out_dtype="float16")
    one = np.ones(1, np.float32)
    with pytest.raises(ValueError, match="scale_d is given beside out_scale"):
        cleave.scaled_conv2d(
            x.astype(np.int8), w.astype(np.int8), one, one, **STRIDED.geometry, out_dtype="int8", out_scale="row",
            scale_d=one,
        )  # fmt: skip
