"""cleave.quantize of ragged groups: the operands of 8-bit weight gradients."""

from __future__ import annotations

from typing import Any

import moe_reference
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cleave


def quantize(x: np.ndarray, offs: np.ndarray, **options: Any) -> tuple[np.ndarray, ...]:
    return cleave.quantize(x, "int8", "block_1x128", transpose=True, offs=offs, **options)


def check(x: np.ndarray, offs: np.ndarray) -> None:
    q, scale, q_t, scale_t, ends = quantize(x, offs)
    plain_q, plain_scale = cleave.quantize(x, "int8", "block_1x128")
    assert (q == plain_q).all() and (scale == plain_scale).all()
    expected = moe_reference.grouped_transpose(x, offs, lambda part: cleave.quantize(part, "int8", "block_1x128"))
    for made, reference in zip((q_t, scale_t, ends), expected, strict=True):
        assert made.shape == reference.shape and made.dtype == reference.dtype
        assert (made == reference).all()
    assert scale_t.strides[0] == 4 or x.shape[1] < 2 or scale_t.size == 0


@given(
    sizes=st.lists(st.sampled_from([0, 1, 5, 127, 128, 129, 200]), min_size=1, max_size=7),
    rest=st.sampled_from([0, 1, 130]),
    cols=st.sampled_from([1, 8, 130]),
    dtype=st.sampled_from([np.int32, np.int64]),
)
def test_each_group_is_quantised_alone(sizes: list[int], rest: int, cols: int, dtype: type) -> None:
    rng = np.random.default_rng(len(sizes))
    x = rng.standard_normal((sum(sizes) + rest, cols)).astype(np.float32)
    check(x, np.cumsum(sizes).astype(dtype))


def test_nothing_of_other_rows_reaches_the_transpose() -> None:
    x = np.full((10, 8), np.nan, np.float32)
    x[:4] = 1
    _, _, q_t, scale_t, ends = quantize(x, np.array([4], np.int32))
    assert ends.tolist() == [4]
    assert (q_t[:, :4] == 127).all() and (q_t[:, 4:] == 0).all()
    assert (scale_t[:, 0] == np.float32(1 / 127)).all()


def test_wrong_offsets_stay_inside() -> None:
    x = np.ones((300, 8), np.float32)
    for offs in ([200, 100, 300], [-5, 2**31 - 1, 7], [300] * 9):
        *_, q_t, scale_t, ends = quantize(x, np.array(offs, np.int32))
        assert (ends >= 0).all() and (ends <= q_t.shape[1]).all()
        assert scale_t.shape[1] == q_t.shape[1] // 128


def test_a_weight_gradient() -> None:
    """dy_g.T @ x_g of every group, from what one call each makes of dy and x."""
    rng = np.random.default_rng(0)
    offs = np.array([100, 100, 310, 384], np.int32)
    dy, x = (rng.standard_normal((400, width)).astype(np.float32) for width in (24, 40))
    *_, dy_t, scale_dy, ends = quantize(dy, offs)
    *_, x_t, scale_x, _ = quantize(x, offs)
    dw = cleave.grouped_gemm(dy_t, x_t.T, ends, alignment=128, scale_a=scale_dy, scale_b=scale_x.T, out_dtype="float32")
    for group, (begin, end) in enumerate(zip([0, *offs], offs, strict=False)):
        exact = dy[begin:end].T.astype(float) @ x[begin:end]
        assert np.linalg.norm(dw[group] - exact) <= 0.02 * np.linalg.norm(exact)
    assert (dw[1] == 0).all()


@pytest.mark.parametrize(
    ("options", "exception", "words"),
    [
        ({"offs": np.ones(2)}, TypeError, ("offs is float64", "int32 or int64")),
        ({"offs": np.ones((2, 1), np.int32)}, ValueError, ("offs has 2 dimensions",)),
        ({"offs": np.zeros(0, np.int32)}, ValueError, ("offs is (0,)",)),
        ({"offs": np.zeros(1025, np.int32)}, ValueError, ("offs is (1025,)", "1024")),
        ({"transpose": False}, ValueError, ("has_transpose (transpose) false",)),
        ({"granularity": "block_128x128"}, ValueError, ("block_128x128", "block_1x128")),
    ],
)
def test_bad_input(options: dict[str, Any], exception: type, words: tuple[str, ...]) -> None:
    given_options = {"granularity": "block_1x128", "transpose": True} | options
    offs = given_options.pop("offs", np.array([2, 4], np.int32))
    with pytest.raises(exception) as caught:
        cleave.quantize(np.ones((4, 8), np.float32), "int8", offs=offs, **given_options)
    for word in words:
        assert word in str(caught.value)
