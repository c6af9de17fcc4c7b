"""Convolutions and their gradients on the CPU backend, against unfolded products in float64."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from conv_reference import KINDS, Convolution
from gemm_reference import ACTIVATIONS, MODES, assert_close
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies_matrices import CANARY, DTYPES, FLOATS

import cleave
from cleave.testing.conv_axis import Axis

MADE = {"fprop": "output", "dgrad": "input", "wgrad": "weight"}


def function(kind: str, rank: int) -> Any:
    suffix = "" if kind == "fprop" else f"_{kind}"
    return getattr(cleave, f"conv{rank}d{suffix}")


def arguments(kind: str, convolution: Convolution, tensors: dict[str, np.ndarray]) -> list[Any]:
    """Those of `function` that come first."""
    if kind == "fprop":
        return [tensors["input"], tensors["weight"]]
    shape = convolution.shapes[MADE[kind]]
    if kind == "dgrad":
        return [shape, tensors["weight"], tensors["output"]]
    return [tensors["input"], shape, tensors["output"]]


@st.composite
def axes(draw) -> Axis:
    size = draw(st.one_of(st.integers(1, 3), st.integers(1, 9)))
    taps, dilation = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    span = dilation * (taps - 1) + 1
    before, after = draw(st.integers(0, span + 1)), draw(st.integers(0, 3))
    missing = max(0, span - size - before - after)
    return Axis(size, taps, draw(st.integers(1, 4)), before + missing, after, dilation)


@st.composite
def convolutions(draw) -> Convolution:
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    channels, filters = (draw(st.integers(1, 6)) * groups for _ in range(2))
    rank = draw(st.sampled_from([1, 2, 2, 3]))
    along = tuple(draw(axes()) for _ in range(rank))
    return Convolution(draw(st.integers(1, 3)), channels, filters, along, groups)


@dataclass
class Slice:
    """A slice of the channels of a wider array, or filters apart from each other."""

    array: np.ndarray
    buffer: np.ndarray

    @classmethod
    def draw(cls, draw, rng, dtype: str, shape: tuple[int, ...], is_weight: bool) -> Slice:
        first, channels, *axes = shape
        before, after = draw(st.sampled_from([(0, 0), (0, 0), (0, 3), (8, 8)]))
        taps = int(np.prod(axes))
        lines = (first, taps * channels) if is_weight else (first, *axes, channels)
        buffer = rng.standard_normal((*lines[:-1], before + lines[-1] + after))
        if dtype == "int8":
            buffer *= 40
        buffer = buffer.astype(DTYPES[dtype])
        part = buffer[..., before : before + lines[-1]]
        if is_weight:
            itemsize = part.itemsize
            inner = np.cumprod([itemsize, channels, *reversed(axes)])[:-1]
            strides = (part.strides[0], *inner[::-1])
            part = np.lib.stride_tricks.as_strided(part, (first, *axes, channels), strides)
        return cls(np.moveaxis(part, -1, 1), buffer)


@settings(max_examples=400)
@given(st.data())
def test_against_unfolded_products(data: st.DataObject) -> None:
    draw = data.draw
    rng = np.random.default_rng(draw(st.integers(0, 2**31)))
    convolution, kind = draw(convolutions()), draw(st.sampled_from(KINDS))
    dtype = draw(st.sampled_from([*FLOATS, "int8"] if kind == "fprop" else FLOATS))
    shapes, made = convolution.shapes, MADE[kind]
    slices = {
        name: Slice.draw(draw, rng, dtype, shape, name == "weight") for name, shape in shapes.items() if name != made
    }
    tensors = {name: part.array for name, part in slices.items()}

    out_dtype = draw(st.sampled_from(FLOATS))
    epilogue: dict[str, Any] = {"alpha": draw(st.sampled_from([1.0, -0.75]))}
    options: dict[str, Any] = {}
    if draw(st.booleans()):
        epilogue["c"] = Slice.draw(draw, rng, draw(st.sampled_from(FLOATS)), shapes[made],
                                   made == "weight").array  # fmt: skip
        epilogue["beta"] = draw(st.sampled_from([None, 0.0, 1.5]))
    if kind != "wgrad":
        epilogue["activation"] = draw(st.sampled_from(ACTIVATIONS))
        if draw(st.booleans()):
            bias_dtype = DTYPES[draw(st.sampled_from(FLOATS))]
            epilogue["bias"] = rng.standard_normal(shapes[made][1]).astype(bias_dtype)
    out = None
    if draw(st.booleans()):
        out = Slice.draw(draw, rng, out_dtype, shapes[made], made == "weight")
        out.array[...] = CANARY
        before = out.buffer.copy()
        options["out"] = out.array
    else:
        options["out_dtype"] = out_dtype
    options["split_k_mode"] = draw(st.sampled_from(MODES))
    a, b = convolution.operands(kind, **tensors)
    if options["split_k_mode"] not in ("none", "auto"):
        options["split_k_slices"] = draw(st.integers(1, min(6, max(1, a.shape[-1]))))
    if kind == "dgrad":
        options["division"] = draw(st.sampled_from(["auto", "fast", "plain"]))

    result = function(kind, len(convolution.axes))(
        *arguments(kind, convolution, tensors), **convolution.geometry, **epilogue, **options
    )
    assert result.shape == shapes[made]
    if out:
        assert result is out.array
        result = result.copy()
        out.array[...] = CANARY
        np.testing.assert_array_equal(out.buffer, before)
    else:
        assert result.dtype == DTYPES[out_dtype]
    matrices = {
        name: convolution.matrix(kind, x) if name == "c" else convolution.row(x)
        for name, x in epilogue.items()
        if name in ("c", "bias")
    }
    scalars = {name: x for name, x in epilogue.items() if name not in matrices}
    assert_close(convolution.matrix(kind, result), out_dtype, a, b, **scalars, **matrices)


def nhwc(*shape: int, dtype: Any = np.float32, seed: int = 0) -> np.ndarray:
    """An array of a logical shape (N, C, ...)."""
    first, channels, *axes = shape
    values = np.random.default_rng(seed).standard_normal((first, *axes, channels))
    return np.moveaxis((values * 4).astype(dtype), -1, 1)


STRIDED = Convolution(2, 6, 10, (Axis(9, 3, 2, 1, 1), Axis(8, 2, 3, 0, 1)))
INPUT, WEIGHT, OUTPUT = (nhwc(*STRIDED.shapes[name], seed=i) for i, name in enumerate(("input", "weight", "output")))
TENSORS = {"input": INPUT, "weight": WEIGHT, "output": OUTPUT}


@pytest.mark.parametrize("kind", KINDS)
def test_results_are_channels_last(kind: str) -> None:
    given = {name: x for name, x in TENSORS.items() if name != MADE[kind]}
    result = function(kind, 2)(*arguments(kind, STRIDED, given), **STRIDED.geometry)
    assert np.moveaxis(result, 1, -1).flags.c_contiguous
    assert_close(STRIDED.matrix(kind, result), "float32", *STRIDED.operands(kind, **given))


@pytest.mark.parametrize("kind", KINDS)
def test_every_mode_is_repeatable(kind: str) -> None:
    given = {name: x for name, x in TENSORS.items() if name != MADE[kind]}
    call = arguments(kind, STRIDED, given)
    for mode in MODES:
        first, second = (function(kind, 2)(*call, **STRIDED.geometry, split_k_mode=mode) for _ in range(2))
        np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize(
    "axes", [(Axis(40, 5, 12, 1), Axis(25, 12, 11)), (Axis(33, 16, 16), Axis(50, 16, 16))], ids=["classes", "patches"]
)
def test_more_classes_than_a_launch_has(axes: tuple[Axis, ...]) -> None:
    convolution = Convolution(2, 3, 5, axes)
    w, dy = (nhwc(*convolution.shapes[name], seed=i) for i, name in enumerate(("weight", "output")))
    for mode in MODES:
        dx = cleave.conv2d_dgrad(convolution.shapes["input"], w, dy, **convolution.geometry, split_k_mode=mode)
        a, b = convolution.operands("dgrad", weight=w, output=dy)
        assert_close(convolution.matrix("dgrad", dx), "float32", a, b)


def test_integers_are_exact() -> None:
    x, w = (nhwc(*shape, dtype=np.int8) for shape in ((2, 6, 7, 5), (4, 6, 3, 3)))
    convolution = Convolution(2, 6, 4, (Axis(7, 3, 2, 1), Axis(5, 3)))
    y = cleave.conv2d(x, w, **convolution.geometry)
    assert y.dtype == np.int32
    a, b = convolution.operands("fprop", input=x, weight=w)
    np.testing.assert_array_equal(convolution.matrix("fprop", y), a @ b)


def test_every_other_column_is_evenly_spaced() -> None:
    x = nhwc(2, 6, 9, 16)[..., ::2]
    result = cleave.conv2d(x, WEIGHT)
    np.testing.assert_array_equal(result, cleave.conv2d(x.copy("K"), WEIGHT))


def test_depthwise() -> None:
    convolution = Convolution(2, 5, 10, (Axis(6, 3, 1, 1, 1), Axis(6, 3, 1, 1, 1)), groups=5)
    tensors = {name: nhwc(*shape) for name, shape in convolution.shapes.items()}
    for kind in KINDS:
        given = {name: x for name, x in tensors.items() if name != MADE[kind]}
        result = function(kind, 2)(*arguments(kind, convolution, given), **convolution.geometry)
        operands = convolution.operands(kind, **given)
        assert_close(convolution.matrix(kind, result), "float32", *operands)


def test_pixels_that_no_output_saw() -> None:
    """Each class of pixels without taps: activation(beta * c + bias)."""
    weight, grad = nhwc(4, 3, 1, 1), nhwc(1, 4, 3, 3)
    c, bias = nhwc(1, 3, 7, 6), np.array([1, -2, 3], np.float32)
    dx = cleave.conv2d_dgrad(c.shape, weight, grad, stride=(3, 2), bias=bias, c=c, beta=2, activation="relu")
    seen = np.zeros((7, 6), bool)
    seen[::3, ::2] = True
    expected = np.maximum(2 * c + bias[:, None, None], 0)
    np.testing.assert_array_equal(dx[..., ~seen], expected[..., ~seen])
    assert (dx[..., seen] != expected[..., seen]).any()


@pytest.mark.parametrize("padding", ["same", "valid", 1, (1, 2), ((1, 0), (2, 3)), [[0, 1], 2], (3,)])
def test_paddings(padding: Any) -> None:
    before_after = {
        "same": ((1, 1), (1, 2)),  # 3 taps; 4 taps, the odd one after
        "valid": ((0, 0), (0, 0)),
        1: ((1, 1), (1, 1)),
        (1, 2): ((1, 1), (2, 2)),
        ((1, 0), (2, 3)): ((1, 0), (2, 3)),
        (3,): ((3, 3), (3, 3)),
    }.get(padding if not isinstance(padding, list) else 0, ((0, 1), (2, 2)))
    axes = tuple(
        Axis(size, taps, before=before, after=after)
        for size, taps, (before, after) in zip((7, 6), (3, 4), before_after, strict=True)
    )
    convolution = Convolution(1, 2, 3, axes)
    tensors = {name: nhwc(*shape) for name, shape in convolution.shapes.items()}
    y = cleave.conv2d(tensors["input"], tensors["weight"], padding=padding)
    assert y.shape == convolution.shapes["output"]
    a, b = convolution.operands("fprop", input=tensors["input"], weight=tensors["weight"])
    assert_close(convolution.matrix("fprop", y), "float32", a, b)
    dw = cleave.conv2d_wgrad(tensors["input"], convolution.shapes["weight"], tensors["output"], padding=padding)
    a, b = convolution.operands("wgrad", input=tensors["input"], output=tensors["output"])
    assert_close(convolution.matrix("wgrad", dw), "float32", a, b)


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("groups", [1, 2])
def test_transposed(rank: int, groups: int) -> None:
    """The image of which the input is the output, to the last pixel of output_padding."""
    stride, output_padding = (3, 2, 1)[:rank], (2, 0, 0)[:rank]
    taps, padding = (2, 3, 1)[:rank], (1, 0, 0)[:rank]
    sizes = [
        (outputs - 1) * s - 2 * p + t - 1 + o + 1
        for outputs, s, p, t, o in zip((4, 3, 2), stride, padding, taps, output_padding, strict=False)
    ]
    axes = tuple(Axis(size, t, s, p, p) for size, t, s, p in zip(sizes, taps, stride, padding, strict=True))
    convolution = Convolution(2, 4, 6, axes, groups)
    x, w = nhwc(*convolution.shapes["output"]), nhwc(*convolution.shapes["weight"], seed=1)
    bias = np.arange(4, dtype=np.float32)
    result = getattr(cleave, f"conv_transpose{rank}d")(
        x, w, bias, stride, padding, output_padding, groups, activation="silu"
    )
    assert result.shape == convolution.shapes["input"]
    a, b = convolution.operands("dgrad", weight=w, output=x)
    epilogue = {"bias": convolution.row(bias), "activation": "silu"}
    assert_close(convolution.matrix("dgrad", result), "float32", a, b, **epilogue)


def test_accumulate() -> None:
    shape = STRIDED.shapes["weight"]
    once = cleave.conv2d_wgrad(INPUT, shape, OUTPUT, **STRIDED.geometry)
    out = nhwc(*shape, seed=7)
    before = out.copy()
    given = cleave.conv2d_wgrad(INPUT, shape, OUTPUT, **STRIDED.geometry, accumulate=True, out=out)
    assert given is out
    np.testing.assert_allclose(out, before + once, rtol=1e-5, atol=1e-5)


EMPTY = {
    "no images": Convolution(0, 2, 3, (Axis(5, 3), Axis(4, 2))),
    "no channels": Convolution(2, 0, 3, (Axis(5, 3), Axis(4, 2))),
    "no filters": Convolution(2, 2, 0, (Axis(5, 3), Axis(4, 2))),
    "no pixels": Convolution(2, 2, 3, (Axis(0, 3), Axis(4, 2))),
    "pixels of padding": Convolution(2, 2, 3, (Axis(0, 3, 1, 2, 2), Axis(4, 2))),
    "every tap in the padding": Convolution(2, 2, 3, (Axis(1, 2, 1, 0, 3, 3), Axis(4, 2, 9))),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("convolution", EMPTY.values(), ids=EMPTY)
def test_empty(convolution: Convolution, kind: str) -> None:
    tensors = {name: nhwc(*shape) for name, shape in convolution.shapes.items()}
    c = tensors.pop(MADE[kind])
    call, geometry = arguments(kind, convolution, tensors), convolution.geometry
    a, b = convolution.operands(kind, **tensors)
    for options in ({}, {"c": c, "beta": 2.0}):
        result = function(kind, 2)(*call, **geometry, **options)
        assert result.shape == c.shape
        epilogue = dict(options)
        if "c" in options:
            epilogue["c"] = convolution.matrix(kind, c)
        assert_close(convolution.matrix(kind, result), "float32", a, b, **epilogue)


def test_conversion() -> None:
    x, w = np.ascontiguousarray(INPUT), np.ascontiguousarray(WEIGHT)
    expected = cleave.conv2d(INPUT, WEIGHT, **STRIDED.geometry)
    for order in (x, x[::-1][::-1], np.asfortranarray(x)):
        result = cleave.conv2d(order, w, **STRIDED.geometry, convert=True)
        np.testing.assert_array_equal(result, expected)
        with pytest.raises(ValueError, match=r"input is .* convert=True"):
            cleave.conv2d(order, WEIGHT, **STRIDED.geometry)


def uneven(shape: tuple[int, ...], memory: np.ndarray) -> np.ndarray:
    """An array in (N, C, H, W) whose rows of pixels are unevenly spaced in memory."""
    n, c, h, w = shape
    view = memory[: n * (h + 1) * (w + 2) * c].reshape(n, h + 1, w + 2, c)
    return view[:, :h, 1 : w + 1].transpose(0, 3, 1, 2)


@pytest.mark.parametrize("kind", KINDS)
def test_conversion_of_out(kind: str) -> None:
    given = {name: x for name, x in TENSORS.items() if name != MADE[kind]}
    call = functools.partial(function(kind, 2), *arguments(kind, STRIDED, given), **STRIDED.geometry)
    expected = call()
    for order in (
        uneven(expected.shape, np.full(20_000, 7, np.float32)),
        np.full(expected.shape, 7, np.float32),
    ):
        with pytest.raises(ValueError, match=r"out is .*channels last in memory.* convert=True"):
            call(out=order)
        assert (order == 7).all()
        assert call(out=order, convert=True) is order
        np.testing.assert_array_equal(order, expected)
        # C, too, and the same memory.
        assert call(out=order, c=order, convert=True) is order
        np.testing.assert_array_equal(order, 2 * expected)
    memory = np.full(20_000, 7, np.float32)
    call(out=uneven(expected.shape, memory), convert=True)
    assert (memory == 7).sum() == memory.size - (expected != 7).sum()  # what lies between stays
    shared = np.lib.stride_tricks.as_strided(memory, expected.shape, (4, 4, 4, 4))
    with pytest.raises(ValueError, match=r"out is .* may share addresses"):
        call(out=shared, convert=True)


def test_conversion_of_unevenly_spaced_images() -> None:
    x = uneven(INPUT.shape, np.zeros(20_000, np.float32))
    x[...] = INPUT
    with pytest.raises(ValueError, match=r"input is .* convert=True"):
        cleave.conv2d(x, WEIGHT, **STRIDED.geometry)
    np.testing.assert_array_equal(
        cleave.conv2d(x, WEIGHT, **STRIDED.geometry, convert=True),
        cleave.conv2d(INPUT, WEIGHT, **STRIDED.geometry),
    )


def test_torch_tensors() -> None:
    torch = pytest.importorskip("torch")
    x, w = (torch.from_numpy(array) for array in (INPUT, WEIGHT))
    assert x.is_contiguous(memory_format=torch.channels_last)
    y = cleave.conv2d(x, w, stride=2)
    assert isinstance(y, torch.Tensor)
    assert y.is_contiguous(memory_format=torch.channels_last)
    expected = torch.nn.functional.conv2d(x.double(), w.double(), stride=2)
    torch.testing.assert_close(y.double(), expected, rtol=1e-5, atol=1e-4)
    with pytest.raises(ValueError, match=r"memory_format=torch\.channels_last"):
        cleave.conv2d(x.contiguous(), w)
    converted = cleave.conv2d(x.contiguous(), w.contiguous(), stride=2, convert=True)
    assert torch.equal(y, converted)
    padded = cleave.conv2d(x, w, padding="same", dilation=2)
    expected = torch.nn.functional.conv2d(x.double(), w.double(), padding="same", dilation=2)
    torch.testing.assert_close(padded.double(), expected, rtol=1e-5, atol=1e-4)


def test_jax_arrays() -> None:
    jnp = pytest.importorskip("jax.numpy")
    x, w = jnp.asarray(INPUT), jnp.asarray(WEIGHT)  # JAX keeps the order of indices
    y = cleave.conv2d(x, w, **STRIDED.geometry, convert=True)
    assert isinstance(y, type(x))
    np.testing.assert_array_equal(y, cleave.conv2d(INPUT, WEIGHT, **STRIDED.geometry))


@pytest.mark.parametrize("kind", KINDS)
def test_plans(kind: str) -> None:
    given = {name: x for name, x in TENSORS.items() if name != MADE[kind]}
    a, b = {
        "fprop": (INPUT, WEIGHT),
        "dgrad": (OUTPUT, WEIGHT),
        "wgrad": (OUTPUT, INPUT),
    }[kind]
    size = None if kind == "fprop" else STRIDED.shapes[MADE[kind]]
    plan = cleave.plan_conv2d(kind, a, b, size=size, **STRIDED.geometry, split_k_mode="serial")
    assert plan.split_k_mode == "serial"
    expected = function(kind, 2)(*arguments(kind, STRIDED, given), **STRIDED.geometry, split_k_mode="serial")
    np.testing.assert_array_equal(plan.run(a, b), expected)
    out = np.zeros_like(expected)
    assert plan.run(a, b, out=out) is out
    np.testing.assert_array_equal(out, expected)
    with pytest.raises(ValueError, match="the plan is for a convolution"):
        plan.run(a, b, azp_adj=np.ones(1, np.int32))
    with pytest.raises(ValueError, match=r"scale_a is one value .* but the plan is for missing"):
        plan.run(a, b, scale_a=np.ones(1, np.float32), scale_b=np.ones(1, np.float32))
    with pytest.raises(ValueError, match=r"plan is for|output of an input"):
        plan.run(a[:1], b)


def test_plans_tell_geometries_apart() -> None:
    x, w = nhwc(1, 4, 6, 4), nhwc(4, 4, 1, 1)
    plan = cleave.plan_conv2d("fprop", x, w)
    with pytest.raises(ValueError, match=r"convolution is fprop of 1 images .* 4 x 1 by 1 .*, but"):
        plan.run(np.moveaxis(np.moveaxis(x, 1, -1).reshape(1, 4, 6, 4), -1, 1), w)


@pytest.mark.parametrize("kind", KINDS)
def test_plans_without_arrays(kind: str) -> None:
    sizes = {"images": 2, "size": (9, 8), "channels": 6, "filters": 10, "filter_size": (3, 2)}
    plan = cleave.plan_conv_problem(**sizes, stride=2, kind=kind, dtype="float32", device="cpu")
    convolution = Convolution(2, 6, 10, (Axis(9, 3, 2), Axis(8, 2, 2)))
    tensors = {name: nhwc(*shape) for name, shape in convolution.shapes.items()}
    del tensors[MADE[kind]]
    a, b = {"fprop": ("input", "weight"), "dgrad": ("output", "weight"),
            "wgrad": ("output", "input")}[kind]  # fmt: skip
    result = plan.run(tensors[a], tensors[b])
    assert_close(convolution.matrix(kind, result), "float32", *convolution.operands(kind, **tensors))


@pytest.mark.parametrize(("kind", "n", "k", "layout"), [("fprop", 64, 256, "tn"), ("dgrad", 256, 64, "tt")])
def test_one_tap_takes_the_kernels_of_products(kind: str, n: int, k: int, layout: str) -> None:
    case = {"channels": 256, "filters": 64, "filter_size": 1, "device": "h100"}
    plan = cleave.plan_conv_problem(8, (14, 28), **case, kind=kind)
    product = cleave.plan_problem(8 * 14 * 28, n, k, dtype="float16", layout=layout, device="h100")
    assert " product" in plan.kernel_name
    assert plan.kernel_name.replace(" product", "") == product.kernel_name
    assert all(" product" in candidate["kernel"] for candidate in plan.candidates)
    many = 256  # images, of 100,352 pixels
    for images, of_kind, expected in ((many, kind, kind == "dgrad"), (8, "wgrad", True), (many, "wgrad", True)):
        name = cleave.plan_conv_problem(images, (14, 28), **case, kind=of_kind).kernel_name
        assert (" product" in name) == expected
