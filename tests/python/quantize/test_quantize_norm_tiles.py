"""cleave.quantize with a norm and what takes more of it than rows: squares of 128, transposes, groups, smoothing.

What comes is bit by bit what `quantize` makes of the norm in float32, which is as the definition in float64 has it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies_matrices import DTYPES
from test_quantize_norm import normed

import cleave

QUANTIZED = [name for name in ("int8", "float8_e4m3fn", "float8_e5m2") if name in DTYPES]


def same(made: Any, expected: Any) -> None:
    for one, other in zip(made, expected, strict=True):
        np.testing.assert_array_equal(one.view(f"u{one.itemsize}"), other.view(f"u{other.itemsize}"))


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_is_the_norm_quantised(data: st.DataObject) -> None:
    draw = data.draw
    rows, cols = draw(st.integers(1, 300)), draw(st.integers(1, 300))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    kind = draw(st.sampled_from([np.float16, np.float32]))
    x = (rng.standard_normal((rows, cols)) * 2.0 ** rng.integers(-4, 6, (rows, 1)) + 0.3).astype(kind)
    granularity = draw(st.sampled_from(["block_1x128", "block_128x128"]))
    options: dict[str, Any] = {"transpose": draw(st.booleans()), "use_ue8m0": draw(st.booleans())}
    if draw(st.booleans()):
        options["smooth"] = (2.0 ** rng.standard_normal(cols)).astype(np.float32)
    if options["transpose"] and granularity == "block_1x128" and draw(st.booleans()):
        options["offs"] = np.sort(rng.integers(0, rows + 1, 3)).astype(np.int32)
    weight = (rng.standard_normal(cols) + 1).astype(kind) if draw(st.booleans()) else None
    norm = cleave.rms_norm(weight) if draw(st.booleans()) else cleave.layer_norm(weight)
    h, beside = x, {}
    if draw(st.booleans()):
        residual = rng.standard_normal((rows, cols)).astype(kind)
        h = (x.astype(np.float32) + residual.astype(np.float32)).astype(kind)
        beside["residual"] = residual
        if draw(st.booleans()):
            beside["residual_out"] = residual
    wide = h.astype(np.float32)
    y = cleave.quantize(wide, "int8", norm=norm, normed_out=np.empty_like(wide))[2]
    exact = h.astype(np.float64)
    slack = 4e-6 * np.abs(exact).max(1) / (exact.std(1) + 1e-3)  # of differences from the mean
    np.testing.assert_allclose(y, normed(h, norm), rtol=4e-6, atol=4 * slack.max() if norm.kind == "layer_norm" else 0)

    dtype = draw(st.sampled_from(QUANTIZED))
    expected = list(cleave.quantize(y, dtype, granularity, **options))
    if beside:
        expected.append(h)
    if draw(st.booleans()):
        beside["normed_out"] = np.empty_like(x) if draw(st.booleans()) else x
        expected.append(y.astype(kind))
    same(cleave.quantize(x, dtype, granularity, norm=norm, **options, **beside), expected)


@pytest.mark.parametrize("granularity", ["tensor", "row", "block_1x128", "block_128x128"])
@pytest.mark.parametrize("given_scale", [False, True])
def test_smooth_and_given_scales(granularity: str, given_scale: bool) -> None:
    """The norm that is asked for beside is not divided."""
    rng = np.random.default_rng(1)
    x, smooth = rng.standard_normal((150, 200), np.float32), np.float32(2.0) ** rng.integers(-3, 4, 200)
    norm = cleave.layer_norm(rng.standard_normal(200, np.float32), rng.standard_normal(200, np.float32))
    y = cleave.quantize(x, norm=norm, normed_out=np.empty_like(x))[2]
    options: dict[str, Any] = {"smooth": smooth.astype(np.float32)}
    if given_scale:
        options["scale"] = cleave.quantize(y, "int8", granularity, **options)[1] * np.float32(1.25)
    made = cleave.quantize(x, "int8", granularity, norm=norm, normed_out=np.empty_like(x), **options)
    same(made, (*cleave.quantize(y, "int8", granularity, **options), y))
