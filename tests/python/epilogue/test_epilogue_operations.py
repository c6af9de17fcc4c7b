"""Epilogue functions of every operation in every split mode, on the CPU backend, against float64."""

from __future__ import annotations

import re
from random import Random
from typing import Any

import epilogue_functions
import numpy as np
import pytest
from epilogue_functions import Bounded, assert_close
from epilogue_operations import OPERATIONS, Draw, channels_last, operand
from epilogue_scaled_operations import SCALED_OPERATIONS
from hypothesis import given, settings
from hypothesis import strategies as st

import cleave

MODES = ("none", "serial", "parallel", "cluster", "stream_k")


@pytest.mark.parametrize("operation", (*OPERATIONS, *SCALED_OPERATIONS), ids=lambda operation: operation.__name__)
@settings(max_examples=25)
@given(random=st.randoms(use_true_random=False), mode=st.sampled_from(MODES), seed=st.integers(0, 2**32 - 1))
def test_drawn_functions(operation: Any, random: Random, mode: str, seed: int) -> None:
    drawn = epilogue_functions.draw(random)
    op = operation(Draw(random, np.random.default_rng(seed)))
    inputs: dict[str, Any] = {}
    exact: dict[str, Any] = {}
    for name, shape in drawn.shapes.items():
        inputs[name], values = op.inputs[shape]()
        exact[name] = Bounded(values, np.zeros(()))
    expected = drawn.exact(op.sums, exact)

    made = op.run(epilogue=drawn.traced()(**inputs), split_k_mode=mode)
    for got, (name, dtype) in zip(made if len(drawn.outputs) > 1 else [made], drawn.outputs.items(), strict=True):
        assert got.dtype == np.dtype(dtype or "float32")
        placed = op.placed(got)
        exists = np.broadcast_to(op.exists, placed.shape)
        assert not placed[~exists].any(), "what belongs to no group is not zero"
        value, error = (np.broadcast_to(x, placed.shape) for x in (expected[name].value, expected[name].error))
        of_groups = Bounded(np.where(exists, value, 0.0), np.where(exists, error, 0.0))
        assert_close(placed, of_groups, dtype or "float32", drawn.text)


@cleave.epilogue
def scaled_residual(acc, bias: cleave.row, weight: cleave.column, residual: cleave.matrix, scale: cleave.scalar = 2.0):
    pre = acc * scale + bias
    return cleave.outputs(d=cleave.relu(pre) * weight + residual, pre=pre)


@cleave.epilogue
def shifted(acc, bias: cleave.row):
    return cleave.outputs(d=acc + bias, pre=acc)


@pytest.mark.parametrize("mode", MODES)
def test_pixels_without_taps_go_through_the_function(mode: str) -> None:
    """A stride of 3 beside filters of one tap: eight of nine pixels have a sum of nothing."""
    rng = np.random.default_rng(0)
    dy, w, bias = channels_last(rng, (2, 5, 3, 3)), channels_last(rng, (5, 4, 1, 1)), operand(rng, 4)
    d, pre = cleave.conv2d_dgrad((2, 4, 9, 9), w, dy, stride=3, epilogue=shifted(bias=bias), split_k_mode=mode)
    met = np.zeros((9, 9), bool)
    met[::3, ::3] = True
    assert not pre[:, :, ~met].any() and (pre[:, :, met] != 0).all()
    np.testing.assert_array_equal(d, pre + bias[:, None, None])


def test_transposed_convolutions() -> None:
    rng = np.random.default_rng(1)
    x, w, bias = channels_last(rng, (2, 6, 5, 5)), channels_last(rng, (6, 4, 3, 3)), operand(rng, 4)
    call = shifted(bias=bias)
    made = cleave.conv_transpose2d(x, w, stride=2, padding=1, output_padding=1, epilogue=call)
    gradients = cleave.conv2d_dgrad((2, 4, 10, 10), w, x, stride=2, padding=1, epilogue=call)
    for got, expected in zip(made, gradients, strict=True):
        assert got.shape == (2, 4, 10, 10)
        np.testing.assert_array_equal(got, expected)


def convolved(rng: np.random.Generator) -> tuple[Any, ...]:
    """Input, filters, and inputs of `scaled_residual`."""
    x, w = channels_last(rng, (2, 4, 6, 7)), channels_last(rng, (8, 4, 3, 3))
    inputs = {"bias": operand(rng, 8), "weight": operand(rng, 2, 1, 6, 7), "residual": channels_last(rng, (2, 8, 6, 7))}
    return x, w, inputs


def test_outputs_of_convolutions_that_are_given() -> None:
    rng = np.random.default_rng(2)
    x, w, inputs = convolved(rng)
    d, pre = cleave.conv2d(x, w, padding=1, epilogue=scaled_residual(**inputs))
    frame = np.full((2, 6, 7, 12), 7, np.float32)
    out = np.moveaxis(frame[..., 1:9], -1, 1)
    made = cleave.conv2d(x, w, padding=1, epilogue=scaled_residual(**inputs), out=(None, out))
    assert made[1] is out
    np.testing.assert_array_equal(made[0], d)
    np.testing.assert_array_equal(out, pre)
    assert (frame[..., 0] == 7).all() and (frame[..., 9:] == 7).all()
    in_place = inputs["residual"].copy(order="K")
    cleave.conv2d(x, w, padding=1, epilogue=scaled_residual(**inputs | {"residual": in_place}), out=(in_place, None))
    np.testing.assert_array_equal(in_place, d)
    # Another order of memory.
    with pytest.raises(ValueError, match=r"residual is \(2, 8, 6, 7\) with strides .* but it must lie in memory as D"):
        inputs["residual"] = np.ascontiguousarray(inputs["residual"])
        cleave.conv2d(x, w, padding=1, epilogue=scaled_residual(**inputs))
    converted = np.empty(d.shape, np.float32)
    cleave.conv2d(x, w, padding=1, epilogue=scaled_residual(**inputs), out=(converted, None), convert=True)
    np.testing.assert_array_equal(converted, d)


def test_a_plan_of_a_convolution() -> None:
    rng = np.random.default_rng(3)
    x, w, inputs = convolved(rng)
    plan = cleave.plan_conv2d("fprop", x, w, padding=1, epilogue=scaled_residual(**inputs))
    for scale in (2.0, -1.0):
        call = scaled_residual(**inputs, scale=scale)
        made = plan.run(x, w, epilogue=call)
        for got, expected in zip(made, cleave.conv2d(x, w, padding=1, epilogue=call), strict=True):
            np.testing.assert_array_equal(got, expected)
    with pytest.raises(ValueError, match="the epilogue function is missing, but the plan is for"):
        plan.run(x, w)


def test_gradients_that_are_added() -> None:
    rng = np.random.default_rng(4)
    x, dy = channels_last(rng, (2, 4, 6, 6)), channels_last(rng, (2, 8, 6, 6))
    out, bias = channels_last(rng, (8, 4, 3, 3)), channels_last(rng, (1, 4, 3, 3))
    before = out.copy()
    plain = cleave.conv2d_wgrad(x, out.shape, dy, padding=1)
    made = cleave.conv2d_wgrad(
        x, out.shape, dy, padding=1, epilogue=shifted(bias=bias), out=(out, None), accumulate=True
    )
    np.testing.assert_allclose(made[1], plain + before, atol=1e-4)
    np.testing.assert_array_equal(out, made[1] + bias)
    rows, offs = operand(rng, 9, 5), np.array([4, 4, 9], np.int32)
    out, bias = operand(rng, 3, 5, 6), operand(rng, 3, 6)
    columns, before = operand(rng, 9, 6), out.copy()
    plain = cleave.grouped_gemm_wgrad(rows, columns, offs)
    made = cleave.grouped_gemm_wgrad(rows, columns, offs, epilogue=shifted(bias=bias), out=(out, None), accumulate=True)
    np.testing.assert_allclose(made[1], plain + before, atol=1e-5)
    np.testing.assert_array_equal(out, made[1] + bias[:, None, :])


@pytest.mark.parametrize("mode", MODES)
def test_scaled_groups(mode: str) -> None:
    rng = np.random.default_rng(5)
    a, b = (rng.integers(-9, 10, shape).astype(np.int8) for shape in ((40, 64), (3, 64, 24)))
    scale_a, scale_b = operand(rng, 40), operand(rng, 3, 24)
    offs, bias = np.array([7, 7, 33], np.int32), operand(rng, 3, 24)
    d, pre = cleave.grouped_gemm(
        a,
        b,
        offs,
        scale_a=scale_a,
        scale_b=scale_b,
        out_dtype="float32",
        epilogue=shifted(bias=bias),
        split_k_mode=mode,
    )
    owner = np.array([0] * 7 + [2] * 26)
    exact = np.einsum("mk,mkn->mn", a[:33].astype(float), b[owner].astype(float)) * scale_a[:33, None] * scale_b[owner]
    np.testing.assert_allclose(pre[:33], exact, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(d[:33], exact + bias[owner], rtol=1e-5, atol=1e-4)
    assert not d[33:].any() and not pre[33:].any()


@pytest.mark.parametrize("dimension", "mnk")
@pytest.mark.parametrize("mode", MODES)
def test_hostile_bounds_write_nothing_outside(dimension: str, mode: str) -> None:
    """Whatever the bounds hold: frames around the outputs stay, and inputs are read within their arrays."""
    rng = np.random.default_rng(6)
    m, n, k, count = 37, 29, 33, 4
    size = {"m": m, "n": n, "k": k}[dimension]
    hostile = [[2**31 - 1, -5, 10**6, 3], [-1, -1, -1, -1], [size, 0, size, 0], [-(2**31), size + 1, 0, 2**31 - 1]]
    a = operand(rng, *((count,) if dimension == "n" else ()), m, k)
    b = operand(rng, *((count,) if dimension == "m" else ()), k, n)
    d_shape = (count, m, n) if dimension == "k" else (m, n)
    inputs = {
        "bias": operand(rng, *((1, n) if dimension == "n" else (count, n))),
        "weight": operand(rng, *{"m": (m,), "n": (count, m), "k": (count, m, 1)}[dimension]),
        "residual": operand(rng, *d_shape),
        "scale": operand(rng, count),
    }
    for bounds in hostile:
        frames = [np.full((*d_shape[:-2], m + 2, n + 3), 7, np.float32) for _ in range(2)]
        outs = tuple(frame[..., 1:-1, 1:-2] for frame in frames)
        keywords = {"starts": np.array(bounds, np.int32), "sizes": np.array(bounds[::-1], np.int32)}
        for bound in ({"offs": np.array(bounds, np.int32)}, keywords):
            cleave.grouped_gemm(a, b, **bound, epilogue=scaled_residual(**inputs), out=outs, split_k_mode=mode)
        for frame in frames:
            frame[..., 1:-1, 1:-2] = 7
            assert (frame == 7).all()


@pytest.mark.parametrize("given_outputs", [(), ("d",), ("pre",), ("d", "pre")])
def test_rows_of_no_group(given_outputs: tuple[str, ...]) -> None:
    rng = np.random.default_rng(7)
    a, b, offs = operand(rng, 9, 4), operand(rng, 2, 4, 5), np.array([2, 6], np.int32)
    call = shifted(bias=operand(rng, 5))
    outs = tuple(np.full((9, 5), 7, np.float32) if name in given_outputs else None for name in ("d", "pre"))
    if len(given_outputs) == 1:
        with pytest.raises(ValueError, match="pass zero_rest"):
            cleave.grouped_gemm(a, b, offs, epilogue=call, out=outs)
        assert all(out is None or (out == 7).all() for out in outs)
    else:
        for rest in cleave.grouped_gemm(a, b, offs, epilogue=call, out=outs):
            assert (rest[6:] == (7 if given_outputs else 0)).all()
    for rest in cleave.grouped_gemm(a, b, offs, epilogue=call, out=outs, zero_rest=True):
        assert not rest[6:].any()


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"bias": (3, 4)}, "bias is (3, 4); it must be (5,), or (3, 5) of the groups: one value per column of D"),
        ({"weight": (3, 9)}, "weight is (3, 9); it must be (9,) or (9, 1): one value per row of D"),
        ({"scale": (2,)}, "scale is (2,); it must be (), or (3,) of the groups: one value"),
        ({"residual": (3, 9, 5)}, "residual is (3, 9, 5); it must be (9, 5): one value per element of D"),
    ],
)
def test_shapes_that_groups_do_not_have(inputs: dict[str, tuple[int, ...]], message: str) -> None:
    shapes = {"bias": (5,), "weight": (9,), "scale": (), "residual": (9, 5)} | inputs
    arrays = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
    a, b, offs = np.ones((9, 4), np.float32), np.ones((3, 4, 5), np.float32), np.array([1, 2, 3], np.int32)
    with pytest.raises(ValueError, match=re.escape(message)):
        cleave.grouped_gemm(a, b, offs, epilogue=scaled_residual(**arrays))


@pytest.mark.parametrize(
    ("kind", "inputs", "message"),
    [
        ("fprop", {"bias": (4,)}, "bias is (4,); it must be (8,) or (1, 8, 1, 1): one value per channel of D"),
        ("fprop", {"weight": (2, 6, 7)}, "weight is (2, 6, 7); it must be (2, 1, 6, 7): one value per pixel of D"),
        ("fprop", {"residual": (2, 6, 7, 8)}, "residual is (2, 6, 7, 8); it must be (2, 8, 6, 7): one value per ele"),
        ("fprop", {"scale": (2, 1)}, "scale is (2, 1); it must be (): one value"),
        ("wgrad", {"bias": (4,)}, "bias is (4,); it must be (1, 4, 3, 3): one value per tap and channel of D"),
        ("wgrad", {"weight": (4,)}, "weight is (4,); it must be (8,) or (8, 1, 1, 1): one value per filter of D"),
    ],
)
def test_shapes_that_convolutions_do_not_have(kind: str, inputs: dict[str, Any], message: str) -> None:
    of_filters = {"bias": (1, 4, 3, 3), "weight": (8,), "scale": (), "residual": (8, 4, 3, 3)}
    of_pixels = {"bias": (8,), "weight": (2, 1, 6, 7), "scale": (), "residual": (2, 8, 6, 7)}
    rng = np.random.default_rng(8)
    arrays: dict[str, Any] = {}
    for name, shape in ((of_filters if kind == "wgrad" else of_pixels) | inputs).items():
        arrays[name] = channels_last(rng, shape) if len(shape) > 1 else operand(rng, *shape)
    x, w, dy = (channels_last(rng, shape) for shape in ((2, 4, 6, 7), (8, 4, 3, 3), (2, 8, 6, 7)))
    with pytest.raises(ValueError, match=re.escape(message)):
        if kind == "wgrad":
            cleave.conv2d_wgrad(x, w.shape, dy, padding=1, epilogue=scaled_residual(**arrays))
        else:
            cleave.conv2d(x, w, padding=1, epilogue=scaled_residual(**arrays))
