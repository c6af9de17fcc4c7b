"""The `cleave` command: option values, the cases they span, and every command on the CPU."""

from __future__ import annotations

import argparse
import csv
import io
import itertools
import json
import math
import struct

import numpy as np
import pytest

import cleave
from cleave import cli
from cleave.cli import (
    accuracy,
    arrays,
    case,
    compile,
    conv,
    conv_operands,
    conv_reference,
    cubin,
    dense,
    explain,
    group_sizes,
    grouped,
    grouped_operands,
    measure,
    operands,
    quantization,
    values,
)
from cleave.cli.console import Console, format_bytes, format_cell
from cleave.cli.conv_axis import Axis
from cleave.cli.conv_case import KINDS, ConvCase
from cleave.cli.errors import CommandError
from cleave.cli.grouped_case import FORMS, GroupedCase

SMALL = ["--m", "48", "--n", "40", "--k", "200"]
GROUPS = ["--sizes", "20,0,1,47", "--n", "40", "--k", "72"]
CONV = [
    "--images", "2", "--size", "9x7", "--channels", "8", "--filters", "16", "--filter-size", "3",
    "--stride", "2", "--padding", "1",
]  # fmt: skip


# Option values


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("128", [128]),
        ("128,256", [128, 256]),
        ("1024:4096:1024", [1024, 2048, 3072, 4096]),
        ("1:10:4", [1, 5, 9]),
        ("1024:8192:*2", [1024, 2048, 4096, 8192]),
        ("3:3:1", [3]),
        ("1,4:16:*2,1", [1, 4, 8, 16]),
    ],
)
def test_integers(text, expected):
    assert values.integers(0)(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", "x", "1,", "1:2", "1:2:0", "2:1:1", "1:8:*1", "0:8:*2", "1:2:3:4", "-1", "1:99999:1"],
)
def test_integers_refuses(text):
    with pytest.raises(argparse.ArgumentTypeError):
        values.integers(0)(text)


def test_slices_and_words():
    assert values.slices("auto,2:8:*2") == [None, 2, 4, 8]
    assert values.words(values.DTYPES)("fp16,float16,bf16") == ["float16", "bfloat16"]
    assert values.words(values.DTYPES)("i8,e4m3,float8_e5m2,int32") == [
        "int8", "float8_e4m3fn", "float8_e5m2", "int32",
    ]  # fmt: skip
    with pytest.raises(argparse.ArgumentTypeError, match="'int4' is not one of float16"):
        values.words(values.DTYPES)("int4")
    with pytest.raises(argparse.ArgumentTypeError, match="'int32' is not"):
        values.words(values.OPERAND_DTYPES)("int32")
    assert values.words(values.FLAGS)("no,yes") == [False, True]
    with pytest.raises(argparse.ArgumentTypeError):
        values.slices("0")


def test_group_sizes(tmp_path):
    path = tmp_path / "sizes"
    path.write_text("10, 20\n20 0\n")
    assert values.group_sizes("uniform,zipf") == ["uniform", "zipf"]
    assert values.group_sizes("10,20,20,0") == [(10, 20, 20, 0)]  # sizes may repeat
    assert values.group_sizes("0:6:2,5") == [(0, 2, 4, 6, 5)]
    assert values.group_sizes(f"@{path}") == [(10, 20, 20, 0)]
    path.write_text("")
    for text in ("", "10,", "skewed", "10,x", "10,-1", "uniform,10", f"@{path}", "@/no/such/file"):
        with pytest.raises(argparse.ArgumentTypeError):
            values.group_sizes(text)


def test_extents_and_paddings():
    assert values.extents(1)("3,3x5,3") == [3, (3, 5)]
    assert values.extents(1)("16x56x56") == [(16, 56, 56)]
    assert values.paddings("0,1x2,0-1x2,0-1x0-1") == [0, (1, 2), ((0, 1), 2), ((0, 1), (0, 1))]
    for text in ("", "0", "3x0", "3x", "x3", "3-4"):
        with pytest.raises(argparse.ArgumentTypeError):
            values.extents(1)(text)
    for text in ("-1", "1-", "0-1-2", "0-1x", "1.5"):
        with pytest.raises(argparse.ArgumentTypeError):
            values.paddings(text)


def test_device():
    assert values.device("cuda") == "cuda:0"
    assert values.device("cuda:3") == "cuda:3"
    for text in ("gpu", "cuda:", "cuda:x", "cpu:0", ""):
        with pytest.raises(argparse.ArgumentTypeError):
            values.device(text)


# Cases


def test_product_is_cartesian_and_does_not_repeat_unsplit_cases():
    cases = list(
        case.product(
            case.GemmCase,
            {
                "m": [1, 2],
                "n": [3],
                "k": [4],
                "split_k_mode": ["none", "serial"],
                "split_k_slices": [2, 4],
            },
        )
    )
    assert [(c.m, c.split_k_mode, c.split_k_slices) for c in cases] == [
        (1, "none", None), (1, "serial", 2), (1, "serial", 4),
        (2, "none", None), (2, "serial", 2), (2, "serial", 4),
    ]  # fmt: skip


def test_case_counts():
    gemm = case.GemmCase(2, 3, 5, batch=7, dtype="float16", out_dtype="float32", bias="row")
    assert gemm.flops == 2 * 2 * 3 * 5 * 7
    assert gemm.bytes == (7 * (2 * 5 + 5 * 3) + 3) * 2 + 7 * 2 * 3 * 4
    assert gemm.title == "7 of 2x3x5 float16 tn to float32 row bias"


@pytest.mark.parametrize(
    ("scaling", "scales"),
    [
        ("none", 0),
        ("tensor", 1 + 1),
        ("row", 200 + 300),
        ("block_1x128", 200 * 4 + 300 * 4),
        ("block_128x128", 200 * 4 + 3 * 4),
    ],
)
def test_scaled_case_counts(scaling, scales):
    gemm = case.GemmCase(200, 300, 500, dtype="float8_e4m3fn", scaling=scaling)
    assert gemm.bytes == 200 * 500 + 500 * 300 + 200 * 300 * 2 + scales * 4
    assert gemm.result_dtype == "bfloat16"


def test_case_defaults_of_8_bit_operands():
    integers = case.GemmCase(2, 3, 5, dtype="int8")
    assert (integers.result_dtype, integers.title) == ("int32", "2x3x5 int8 tn")
    scaled = case.GemmCase(2, 3, 5, dtype="int8", scaling="row", bias="row")
    assert (scaled.result_dtype, scaled.bias_dtype) == ("bfloat16", "bfloat16")
    assert scaled.title == "2x3x5 int8 tn scales row row bias"
    to_float16 = case.GemmCase(2, 3, 5, dtype="float8_e5m2", out_dtype="float16", bias="row")
    assert to_float16.dtypes == {"float8_e5m2", "float16"}


@pytest.mark.parametrize("spread", group_sizes.SPREADS)
@pytest.mark.parametrize(("groups", "rows"), [(1, 7), (8, 4096), (64, 4001), (256, 100), (3, 0)])
def test_spreads_add_up(spread, groups, rows):
    sizes = group_sizes.spread_over(groups, rows, spread)
    assert (len(sizes), sum(sizes)) == (groups, rows)
    assert min(sizes) >= 0
    assert sizes == group_sizes.spread_over(groups, rows, spread)


def test_spreads_are_what_they_are_called():
    uniform, varied, zipf = (
        group_sizes.spread_over(64, 640_000, spread) for spread in ("uniform", "varied", "zipf")
    )
    assert set(uniform) == {10_000}
    assert 1.6 < max(varied) / min(varied) < 1.9  # 1.3 / 0.7 at most
    ranked = sorted(zipf, reverse=True)
    assert [round(ranked[0] / size) for size in ranked[:64]] == list(range(1, 65))
    assert ranked != list(zipf)


def test_grouped_case_counts():
    forward = GroupedCase(3, 9, 5, 7, sizes=(4, 0, 5), dtype="float16")
    assert forward.flops == 2 * 9 * 5 * 7
    assert forward.bytes == 2 * (9 * 7 + 2 * 5 * 7 + 9 * 5)  # two groups' weights are read
    assert GroupedCase(3, 9, 5, 7, sizes=(4, 0, 5), form="wgrad", dtype="float16").bytes == 2 * (
        9 * 5 + 9 * 7 + 3 * 5 * 7
    )
    assert forward.ranges == [(0, 4), (4, 4), (4, 9)]
    assert forward.title == "forward 9x5x7 in 3 given groups float16 tn"
    scaled = GroupedCase(2, 9, 5, 7, dtype="int8", scaling="row", form="dgrad", alignment=16)
    assert scaled.title == "dgrad 9x5x7 in 2 varied groups aligned to 16 int8 tn scales row"
    assert scaled.bytes == 9 * 5 + 2 * 5 * 7 + 2 * 9 * 7 + 4 * (9 + 2 * 7)


def test_groups_begin_at_multiples_of_the_alignment():
    sizes = (130, 0, 1, 128)
    options = {"sizes": sizes, "dtype": "int8", "form": "wgrad"}
    by_blocks = GroupedCase(4, sum(sizes), 8, 8, scaling="block_1x128", **options)
    assert by_blocks.ranges == [(0, 130), (256, 256), (256, 257), (384, 512)]
    assert by_blocks.rows == 512
    by_rows = GroupedCase(4, sum(sizes), 8, 8, scaling="row", **options)
    assert (by_rows.spacing, by_rows.rows) == (1, 259)


@pytest.mark.parametrize(
    ("form", "product"),
    [
        ("forward", (4, 5, 7, "tn")),
        ("dgrad", (4, 7, 5, "tt")),
        ("wgrad", (5, 7, 4, "nt")),
    ],
)
def test_each_form_is_a_product_of_its_own(form, product):
    own = GroupedCase(1, 4, 5, 7, form=form).group(4)
    assert (own.m, own.n, own.k, own.layout) == product
    assert GroupedCase(1, 4, 5, 7, form=form, dtype="int8").group(4).layout == "tn"
    assert GroupedCase(1, 4, 5, 7, form=form, layout="nn").group(4).layout == "nn"


AXES = [
    Axis(size, filter_size, stride, before, after, dilation)
    for size, filter_size, stride, (before, after), dilation in itertools.product(
        (1, 2, 7), (1, 2, 3, 4), (1, 2, 3, 5), ((0, 0), (1, 1), (0, 1), (4, 3)), (1, 2, 3)
    )
]


def test_axes_meet_where_brute_force_says():
    for axis in AXES:
        meetings = {
            (tap, output, pixel)
            for tap, outputs, pixels in axis.meetings()
            for output, pixel in zip(outputs, pixels, strict=True)
        }
        last = axis.size + axis.after - axis.dilation * (axis.filter_size - 1) - 1
        every = range(-axis.before, last + 1, axis.stride)  # where a filter begins
        assert axis.outputs == len(every), axis
        assert meetings == {
            (tap, output, start + tap * axis.dilation)
            for output, start in enumerate(every)
            for tap in range(axis.filter_size)
            if 0 <= start + tap * axis.dilation < axis.size
        }, axis
        assert axis.touched_outputs == len({output for _, output, _ in meetings})
        assert axis.touched_pixels == len({pixel for _, _, pixel in meetings})


def test_classes_of_an_axis_have_the_taps_that_can_land():
    for axis in AXES:
        assert axis.class_taps == [
            sum(
                (residue + axis.before - tap * axis.dilation) % axis.stride == 0
                for tap in range(axis.filter_size)
            )
            for residue in range(min(axis.stride, axis.size))
        ]


def test_conv_case_counts():
    layer = ConvCase(32, [56, 56], 256, 128, 1, 2)
    assert layer.outputs == (28, 28)
    assert layer.flops == 2 * 32 * 28 * 28 * 128 * 256
    outputs, weight = 32 * 28 * 28 * 128, 128 * 256
    # A quarter of the pixels is read, but all of their gradient is written.
    assert layer.bytes == 2 * (32 * 28 * 28 * 256 + weight + outputs)
    dgrad = ConvCase(32, (56, 56), 256, 128, 1, 2, kind="dgrad", bias="row", out_dtype="float32")
    assert dgrad.bytes == 2 * (outputs + weight) + 4 * 32 * 56 * 56 * 256 + 2 * 256
    assert (dgrad.product.m, dgrad.product.n, dgrad.product.k) == (32 * 56 * 56, 256, 128)
    wgrad = ConvCase(2, (5, 6), 8, 12, (3, 2), 1, 1, groups=4, kind="wgrad")
    assert (wgrad.product.m, wgrad.product.n, wgrad.product.k) == (3, 12, 2 * 5 * 7)
    assert wgrad.flops == 2 * 2 * 5 * 7 * 12 * 6 * 2
    assert ConvCase(1, (5,), 8, 8, 9).outputs == (0,)


def test_conv_case_titles():
    assert ConvCase(32, [56, 56], 128, 64, 3, 2, 1).title == (
        "fprop 32x56x56x128 64x3x3 stride 2 pad 1 float16"
    )
    everything = ConvCase(
        1, [9, 8, 7], 4, 8, (3, 1, 2), (1, 2, 1), ((0, 1), (1, 1), (0, 0)), 2, 2, "dgrad", "int8",
        bias="row", activation="relu", out_dtype="float32", division="plain", kernel="portable",
    )  # fmt: skip
    assert everything.title == (
        "dgrad 1x9x8x7x4 8x3x1x2 stride 1x2x1 pad 0-1x1x0 dilation 2 in 2 groups int8 to float32 "
        "bias relu division plain kernel portable"
    )


def test_conv_case_wants_a_value_per_axis():
    with pytest.raises(ValueError, match="stride has 3 values, but the images have 2 axes"):
        ConvCase(1, (5, 5), 8, 8, 3, (1, 2, 3))


# Operands, verification and timing


@pytest.mark.parametrize("layout", values.LAYOUTS)
@pytest.mark.parametrize("batch", [1, 3])
def test_operands_have_the_layout(layout, batch):
    gemm = case.GemmCase(4, 6, 8, batch=batch, dtype="float32", layout=layout)
    made = operands.make_operands(arrays.NumpyArrays(), gemm)
    lead = (batch,) if batch > 1 else ()
    assert made.a.shape == (*lead, 4, 8)
    assert made.b.shape == (*lead, 8, 6)
    assert (made.a.strides[-1] == 4) == (layout[0] == "t")
    assert (made.b.strides[-1] == 4) == (layout[1] == "t")
    assert np.isnan(made.out).all()


def strides(library, array):
    if library.name == "torch":
        return array.stride()
    return tuple(stride // array.itemsize for stride in array.strides)


@pytest.mark.parametrize("scaling", values.SCALINGS)
@pytest.mark.parametrize("layout", values.LAYOUTS)
@pytest.mark.parametrize("dtype", ["int8", "float8_e4m3fn", "float8_e5m2"])
def test_scaled_operands_stand_for_the_normal_values(dtype, layout, scaling):
    library = library_for(dtype)
    m, n, k = 140, 200, 300
    gemm = case.GemmCase(m, n, k, dtype=dtype, layout=layout, scaling=scaling, out_dtype="float32")
    made = operands.make_operands(library, gemm)
    assert str(made.a.dtype).endswith(dtype)
    assert made.a.shape == (m, k)
    assert made.b.shape == (k, n)
    assert strides(library, made.a) == ((k, 1) if layout[0] == "t" else (1, m))
    assert strides(library, made.b) == ((n, 1) if layout[1] == "t" else (1, k))
    if scaling == "none":
        assert made.scales == {}
        return
    real_a, real_b = operands.real_factors(library, gemm, made)
    steps = {"int8": 0.04, "float8_e4m3fn": 2.0**-4, "float8_e5m2": 2.0**-3}[dtype]
    for real, shape, seed in ((real_a, (m, k), 0), (real_b, (n, k), 1)):
        normal = library.float64(library.normal(shape, "float32", seed))
        assert float((abs(real - normal) / (0.5 + abs(normal))).max()) < steps


@pytest.mark.parametrize(
    ("scaling", "shapes"),
    [
        ("tensor", ((1, 1), (1, 1))),
        ("row", ((140, 1), (1, 200))),
        ("block_1x128", ((140, 3), (3, 200))),
        ("block_128x128", ((140, 3), (3, 2))),
    ],
)
def test_scales_have_the_shapes_and_layouts_that_the_peers_demand(scaling, shapes):
    library = arrays.NumpyArrays()
    gemm = case.GemmCase(140, 200, 300, dtype="int8", scaling=scaling, out_dtype="float32")
    made = operands.make_operands(library, gemm)
    a, b = made.scales["scale_a"], made.scales["scale_b"]
    assert (a.shape, b.shape) == shapes
    if scaling.startswith("block"):
        assert strides(library, a) == (1, 140)
        assert strides(library, b) == ((200, 1) if scaling == "block_1x128" else (1, 3))


@pytest.mark.parametrize("form", FORMS)
def test_grouped_operands_have_their_shapes_and_layouts(form):
    library = arrays.NumpyArrays()
    case_ = GroupedCase(3, 9, 5, 7, sizes=(4, 0, 5), form=form, dtype="float32", bias="row")
    made = grouped_operands.make_operands(library, case_)
    shapes = {
        "forward": ((9, 7), (3, 7, 5), (9, 5)),
        "dgrad": ((9, 5), (3, 5, 7), (9, 7)),
        "wgrad": ((5, 9), (9, 7), (3, 5, 7)),
    }[form]
    assert (made.a.shape, made.b.shape, made.out.shape) == shapes
    assert made.bias.shape == (3, made.out.shape[-1])
    assert made.offs.tolist() == [4, 4, 9]
    unit = {"forward": (1, 0), "dgrad": (1, 1), "wgrad": (0, 1)}[form]
    assert strides(library, made.a)[unit[0]] == 1
    assert strides(library, made.b)[unit[1] - 2] == 1
    assert np.isnan(made.out).all()


@pytest.mark.parametrize("scaling", values.GROUP_SCALINGS[1:])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", ["int8", "float8_e4m3fn"])
def test_scaled_groups_stand_for_normal_values(dtype, form, scaling):
    library = library_for(dtype)
    sizes = (130, 0, 1, 60)
    options = {"dtype": dtype, "scaling": scaling, "out_dtype": "float32"}
    case_ = GroupedCase(4, sum(sizes), 140, 200, sizes=sizes, form=form, **options)
    made = grouped_operands.make_operands(library, case_)
    scale_a, scale_b = made.scales["scale_a"], made.scales["scale_b"]
    n = 200 if form == "dgrad" else 140
    if scaling == "row":
        expected = ((4, 140), (4, 200)) if form == "wgrad" else ((191,), (4, n))
    elif form == "wgrad":
        expected = (140, 4), (4, 200 if scaling == "block_1x128" else 2)
    else:
        expected = (191, 2), (4, 2, n if scaling == "block_1x128" else 2)
    assert (tuple(scale_a.shape), tuple(scale_b.shape)) == expected
    for group, size in enumerate(sizes):
        product, own = grouped_operands.of_group(case_, made, group)
        assert size in (product.m, product.k)
        for real in operands.real_factors(library, product, own):
            if size > 1:
                assert float((real * real).mean()) == pytest.approx(1, rel=0.1)
                assert float(abs(real).max()) < 6


def conv_cases(**options):
    """Of each kind, a geometry that has everything."""
    return [
        ConvCase(
            2, (6, 7), 4, 6, (3, 2), (2, 1), ((1, 0), (2, 2)), (1, 2), 2, kind, **options
        )
        for kind in KINDS
    ]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_conv_operands_are_channels_last(kind):
    library = arrays.NumpyArrays()
    layer = ConvCase(2, (6, 7), 4, 8, 3, groups=2, kind=kind, bias="row")
    made = conv_operands.make_operands(library, layer)
    assert list(made.inputs) == {
        "fprop": ["input", "weight"], "dgrad": ["output", "weight"], "wgrad": ["output", "input"],
    }[kind]  # fmt: skip
    shapes = {"input": (2, 4, 6, 7), "weight": (8, 2, 3, 3), "output": (2, 8, 4, 5)}
    for name, array in (made.inputs | {layer.made: made.out}).items():
        assert array.shape == shapes[name]
        assert np.moveaxis(array, 1, -1).flags.c_contiguous
    assert np.isnan(made.out).all()
    assert made.bias.shape == (made.out.shape[1],)


def direct_convolution(case_, parts):
    """In float64, one multiplication after the other."""
    x, w, y = (
        np.asarray(parts[name], np.float64) if name in parts else np.zeros(case_.shapes[name])
        for name in ("input", "weight", "output")
    )
    channels, filters = w.shape[1], w.shape[0] // case_.groups
    axis_h, axis_w = case_.axes
    for n, k, c in itertools.product(range(case_.images), range(w.shape[0]), range(channels)):
        of_x = k // filters * channels + c
        for p, q in itertools.product(*map(range, case_.outputs)):
            for r, s in itertools.product(*map(range, case_.filter_size)):
                i = p * axis_h.stride + r * axis_h.dilation - axis_h.before
                j = q * axis_w.stride + s * axis_w.dilation - axis_w.before
                if not (0 <= i < axis_h.size and 0 <= j < axis_w.size):
                    continue
                if case_.kind == "fprop":
                    y[n, k, p, q] += x[n, of_x, i, j] * w[k, c, r, s]
                elif case_.kind == "dgrad":
                    x[n, of_x, i, j] += y[n, k, p, q] * w[k, c, r, s]
                else:
                    w[k, c, r, s] += y[n, k, p, q] * x[n, of_x, i, j]
    return {"fprop": y, "dgrad": x, "wgrad": w}[case_.kind]


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("case_", conv_cases(dtype="float32"), ids=KINDS)
def test_conv_reference(case_, library):
    if library == "torch":
        pytest.importorskip("torch")
    library = arrays.NumpyArrays() if library == "numpy" else arrays.TorchArrays("cpu")
    made = conv_operands.make_operands(library, case_)
    parts = {name: np.asarray(array) for name, array in made.inputs.items()}
    right = library.from_numpy(direct_convolution(case_, parts), "float64")
    expected = conv_reference.reference(library, case_, made)
    found = conv_reference.matrices(library, case_, right)
    assert float(abs(found - expected.values).max()) < 1e-12
    # Rows are as large as they would be if signs were random.
    sizes = np.asarray((expected.values**2).mean(-1)) ** 0.5
    typical = np.asarray(expected.row_magnitudes)
    assert ((typical > 0) == (sizes > 0)).all()
    assert 0.5 < sizes.mean() / typical.mean() < 2


@pytest.mark.parametrize("case_", conv_cases(dtype="float32"), ids=KINDS)
def test_a_wrong_element_of_a_convolution_is_not_acceptable(case_):
    library = arrays.NumpyArrays()
    made = conv_operands.make_operands(library, case_)
    assert not conv.errors(library, case_, made).acceptable
    parts = {name: np.asarray(array) for name, array in made.inputs.items()}
    made.out[...] = direct_convolution(case_, parts)
    assert conv.errors(library, case_, made).acceptable
    made.out[-1, -1, -1, -1] += 0.5
    assert not conv.errors(library, case_, made).acceptable


def test_conv_reference_has_bias_and_activation():
    library = arrays.NumpyArrays()
    plain, *_ = conv_cases(dtype="float32")
    biased, *_ = conv_cases(dtype="float32", bias="row", activation="relu")
    made = conv_operands.make_operands(library, biased)
    parts = {name: np.asarray(array) for name, array in made.inputs.items()}
    right = direct_convolution(plain, parts) + made.bias.reshape(1, -1, 1, 1)
    made.out[...] = np.maximum(right, 0)
    assert conv.errors(library, biased, made).acceptable


def test_errors_of_several_outputs():
    one = accuracy.Errors(0.5, 0.1, 0.2, 3.0, 1.0, True)
    other = accuracy.Errors(0.25, 0.3, 0.4, 1.0, 2.0, True)
    both = accuracy.overall([(one, 3), (other, 1)])
    assert (both.max_relative, both.max_row, both.max_absolute) == (0.5, 0.4, 3.0)
    assert both.rms_absolute == pytest.approx(math.sqrt((3 * 1 + 4) / 4))
    assert both.acceptable
    wrong = accuracy.Errors(math.nan, math.nan, math.nan, math.nan, math.nan, False)
    for parts in ([(wrong, 1), (one, 3)], [(one, 3), (wrong, 1)]):
        assert math.isnan(accuracy.overall(parts).max_row)
        assert not accuracy.overall(parts).acceptable


@pytest.mark.parametrize("form", FORMS)
def test_an_error_in_one_group_is_not_acceptable(form):
    library = arrays.NumpyArrays()
    case_ = GroupedCase(3, 9, 5, 7, sizes=(4, 0, 5), form=form, dtype="float32")
    made = grouped_operands.make_operands(library, case_)
    for group, (begin, end) in enumerate(case_.ranges):
        _, own = grouped_operands.of_group(case_, made, group)
        own.out[...] = own.a @ own.b
        assert (begin == end) == (0 in own.a.shape)
    assert grouped.errors(library, case_, made).acceptable
    if form == "wgrad":  # an empty group's gradient is zero, exactly
        made.out[1, 2, 3] = 1e-30
    else:
        made.out[8, 3] += 0.1
    assert not grouped.errors(library, case_, made).acceptable


def test_quantize_by_hand():
    library = arrays.NumpyArrays()
    x = np.array([[1.0, -127.0, 0.0], [0.0, 0.0, 0.0]])
    q, scale = quantization.quantize(library, x, "int8", (1, None))
    assert q.tolist() == [[1, -127, 0], [0, 0, 0]]
    assert scale.tolist() == [[1.0], [0.0]]
    assert quantization.dequantize(library, q, scale, (1, None)).tolist() == x.tolist()
    q, scale = quantization.quantize(library, x, "int8", (1, 2))
    assert scale.tolist() == [[1.0, 0.0], [0.0, 0.0]]


def library_for(*dtypes):
    """NumPy, or torch where NumPy has not the types."""
    if arrays.TORCH_ONLY & set(dtypes):
        pytest.importorskip("torch")
    return arrays.select("cpu", set(dtypes))


@pytest.mark.parametrize("activation", [name for name in values.ACTIVATIONS if name != "swiglu"])
def test_reference_activations(activation):
    library = arrays.NumpyArrays()
    x = np.linspace(-4, 4, 33)
    scalar = {
        "none": lambda v: v,
        "relu": lambda v: max(v, 0.0),
        "gelu": lambda v: v * 0.5 * (1 + math.erf(v / math.sqrt(2))),
        "gelu_tanh": lambda v: (
            v * 0.5 * (1 + math.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3)))
        ),
        "silu": lambda v: v / (1 + math.exp(-v)),
    }[activation]
    given = operands.Operands(a=x[:, None], b=np.ones((1, 1)), bias=None, out=None)
    gemm = case.GemmCase(33, 1, 1, dtype="float32", activation=activation)
    expected = accuracy.reference(library, gemm, given)
    np.testing.assert_allclose(expected.values, [[scalar(float(v))] for v in x], atol=1e-15)
    np.testing.assert_allclose(expected.row_magnitudes, abs(x))


def test_reference_of_swiglu():
    library = arrays.NumpyArrays()
    case_ = case.GemmCase(3, 4, 16, dtype="float32", activation="swiglu", bias="row")
    assert case_.flops == 2 * 3 * 8 * 16
    given = operands.make_operands(library, case_)
    assert (given.b.shape, given.bias.shape, given.out.shape) == ((16, 8), (8,), (3, 4))
    sums = given.a.astype(np.float64) @ given.b + given.bias
    right = sums[:, :4] / (1 + np.exp(-sums[:, :4])) * sums[:, 4:]
    expected = accuracy.reference(library, case_, given)
    np.testing.assert_allclose(expected.values, right, atol=1e-12)
    np.testing.assert_array_less(expected.row_magnitudes, 10 * abs(right).max(-1))
    assert accuracy.compare(library, right, expected).acceptable
    assert not accuracy.compare(library, 1.2 * right, expected).acceptable


def test_reference_of_integers_and_their_scales():
    library = arrays.NumpyArrays()
    a, b = np.array([[1, 2], [3, 4]], np.int8), np.array([[5, 6], [7, 8]], np.int8)
    gemm = case.GemmCase(2, 2, 2, dtype="int8")
    exact = accuracy.reference(library, gemm, operands.Operands(a, b, None, None))
    assert exact.values.tolist() == [[19, 22], [43, 50]]
    assert not exact.tolerance.any()
    scales = {
        "scale_a": np.array([[10.0], [1.0]]),
        "scale_b": np.array([[1.0, 0.5]]),
        "scale_d": np.array([2.0]),
    }
    gemm = case.GemmCase(2, 2, 2, dtype="int8", scaling="row", out_dtype="int8")
    given = operands.Operands(a, b, None, None, scales)
    assert accuracy.reference(library, gemm, given).values.tolist() == [[95, 55], [21.5, 12.5]]


def test_errors_are_relative_to_the_reference():
    expected = accuracy.Reference(
        values=np.array([[1.0, 4.0], [0.5, 0.0]]),
        row_magnitudes=np.array([2.0, 0.5]),
        tolerance=np.array([[0.0, 0.5], [0.0, 0.1]]),
    )
    errors = accuracy.compare(arrays.NumpyArrays(), np.array([[1.0, 4.5], [0.5, 0.1]]), expected)
    assert errors.max_absolute == 0.5
    assert errors.max_relative == 0.125
    assert errors.max_row == 0.25
    assert errors.rms_relative == pytest.approx(math.sqrt(0.26 / 17.25))
    assert errors.acceptable
    wrong = accuracy.compare(arrays.NumpyArrays(), np.array([[1.1, 4.0], [0.5, 0.0]]), expected)
    assert not wrong.acceptable


@pytest.mark.parametrize("scaling", ["none", "row"])
def test_poison_and_wrong_elements_are_never_acceptable(scaling):
    dtype = "float16" if scaling == "none" else "int8"
    gemm = case.GemmCase(64, 64, 64, dtype=dtype, scaling=scaling, out_dtype="float16")
    library = arrays.NumpyArrays()
    given = operands.make_operands(library, gemm)
    expected = accuracy.reference(library, gemm, given)
    right = expected.values.astype(np.float16)
    assert accuracy.compare(library, right, expected).acceptable
    for wrong in (math.nan, math.inf, 0.5):
        damaged = right.copy()
        damaged[63, 63] += wrong
        assert not accuracy.compare(library, damaged, expected).acceptable


def test_a_slightly_wrong_scale_of_one_row_is_not_acceptable():
    gemm = case.GemmCase(64, 64, 256, dtype="int8", scaling="row", out_dtype="float16")
    library = arrays.NumpyArrays()
    given = operands.make_operands(library, gemm)
    expected = accuracy.reference(library, gemm, given)
    damaged = expected.values.copy()
    damaged[5] *= 1.003
    errors = accuracy.compare(library, damaged.astype(np.float16), expected)
    assert errors.rms_relative < 1e-3
    assert not errors.acceptable


@pytest.mark.parametrize("dtype", ["int8", "int32", "float16"])
def test_poison_is_what_no_kernel_writes(dtype):
    library = arrays.NumpyArrays()
    array = library.full((3,), 0, dtype)
    library.poison(array)
    poison = math.nan if dtype == "float16" else np.iinfo(dtype).min
    np.testing.assert_array_equal(array, np.full(3, poison, dtype))


def test_interleaved_alternates_and_takes_medians():
    order = []

    class Graph:
        def __init__(self, name, times):
            self.name, self.times = name, iter(times)

        def sample(self):
            order.append(self.name)
            return next(self.times)

    # The first sample of each is a warm-up and does not count.
    medians = measure.interleaved([Graph("a", [99, 1, 5, 3]), Graph("b", [99, 2, 2, 8])], 3)
    assert medians == [3, 2]
    assert "".join(order) == "ababbaab"


def test_host_time_skips_the_warm_up_but_not_the_only_call():
    calls = []
    assert measure.host_microseconds(lambda: calls.append(1), 3) < 1e5
    assert len(calls) == 4
    measure.host_microseconds(lambda: calls.append(1), 3, budget_s=0.0)
    assert len(calls) == 5


def test_operand_sets_exceed_the_cache():
    assert measure.set_count(8_000_000) == 25
    assert measure.set_count(10**9) == 2
    assert measure.set_count(0) > 1


def test_select_says_what_is_missing(monkeypatch):
    monkeypatch.setattr(arrays, "_importable", lambda name: False)
    with pytest.raises(CommandError, match="NumPy has no bfloat16, float8_e5m2: install torch"):
        arrays.select("cpu", {"bfloat16", "float8_e5m2", "int8"})
    monkeypatch.setattr(cleave, "device_count", lambda: 1)
    with pytest.raises(CommandError, match="torch with CUDA or CuPy"):
        arrays.select("cuda:0", {"float16"})
    with pytest.raises(CommandError, match="there is no cuda:1: cleave sees 1 GPUs"):
        arrays.select("cuda:1", {"float16"})
    with pytest.raises(CommandError, match="planning target"):
        arrays.select("h100", {"float16"})


# Output


def test_plain_tables_align():
    stream = io.StringIO()
    Console(stream).table(("name", "n"), [("a", 1), ("long name", 1000), ("none", None)])
    assert stream.getvalue() == (
        "name          n\n---------  ----\na             1\nlong name  1000\nnone          -\n"
    )


def test_formats():
    assert [format_cell(v) for v in (None, True, 12, 12.3456, 123456.7, 0.000123, 0.0)] == [
        "-", "yes", "12", "12.35", "123457", "1.2e-04", "0.000",
    ]  # fmt: skip
    assert [format_bytes(n) for n in (0, 1023, 1536, 3 << 20, 5 << 30)] == [
        "0 B", "1023 B", "1.5 KiB", "3.0 MiB", "5.0 GiB",
    ]  # fmt: skip


# Commands


def run(capsys, *arguments):
    status = cli.main(list(arguments))
    captured = capsys.readouterr()
    return status, captured.out, captured.err


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["bogus"],
        ["profile", "gemm"],
        ["profile", "gemm", *SMALL, "--bogus"],
        ["profile", "gemm", *SMALL, "--dtype", "int4"],
        ["profile", "gemm", *SMALL, "--dtype", "int32"],
        ["profile", "gemm", *SMALL, "--scaling", "column"],
        ["profile", "gemm", *SMALL, "--use-fast-accum", "maybe"],
        ["profile", "gemm", *SMALL, "--iterations", "0"],
        ["profile", "gemm", *SMALL, "--lay", "tn"],
        ["compile", "--all", "--arch", "sm_80"],
        ["compile", "--arch", "sm_70"],
        ["compile", "--all", "gemm", *SMALL],
        ["compile", "gemm", "--dtype", "e4m3"],
        ["cache", "rm"],
        ["profile", "grouped", "--n", "8"],
        ["profile", "grouped", *GROUPS, "--sizes", "skewed"],
        ["profile", "grouped", *GROUPS, "--form", "backward"],
        ["profile", "grouped", *GROUPS, "--scaling", "tensor"],
        ["compile", "--all", "grouped", *GROUPS],
        ["profile", "conv", "--size", "8x8"],
        ["profile", "conv", *CONV, "--kind", "backward"],
        ["profile", "conv", *CONV, "--dtype", "e4m3"],
        ["profile", "conv", *CONV, "--activation", "swiglu"],
        ["profile", "conv", *CONV, "--division", "slow"],
        ["profile", "conv", *CONV, "--stride", "0"],
        ["compile", "--all", "conv", *CONV],
    ],
)
def test_wrong_usage_exits_with_2(arguments, capsys):
    with pytest.raises(SystemExit) as exit_:
        cli.main(arguments)
    assert exit_.value.code == 2
    assert "error:" in capsys.readouterr().err


def test_version(capsys):
    with pytest.raises(SystemExit) as exit_:
        cli.main(["--version"])
    assert exit_.value.code == 0
    assert capsys.readouterr().out == f"cleave {cleave.__version__}\n"


def test_info(capsys):
    status, out, _ = run(capsys, "info")
    assert status == 0
    for word in ("GPUs", "NVRTC", "kernel cache", "CPU backend", "product on cpu"):
        assert word in out


def test_profile_writes_rows(capsys, tmp_path):
    csv_path, json_path = tmp_path / "rows.csv", tmp_path / "rows.json"
    status, out, _ = run(
        capsys, "profile", "gemm", *SMALL, "--dtype", "fp16,fp32", "--layout", "tn,nt",
        "--activation", "gelu", "--bias", "column", "--split-k-mode", "none,serial",
        "--split-k-slices", "2,3", "--device", "cpu", "--iterations", "1",
        "--csv", str(csv_path), "--json", str(json_path),
    )  # fmt: skip
    assert status == 0, out
    rows = json.loads(json_path.read_text())
    assert len(rows) == 2 * 2 * 3
    assert all(row["verified"] for row in rows)
    assert all(row["us"] > 0 and row["tflops"] > 0 for row in rows)
    assert {row["chosen_mode"] for row in rows} == {"none", "serial"}
    with csv_path.open() as file:
        assert [row["layout"] for row in csv.DictReader(file)] == [row["layout"] for row in rows]


def test_profile_scaled(capsys, tmp_path):
    path = tmp_path / "rows.json"
    status, out, _ = run(
        capsys, "profile", "gemm", "--m", "48", "--n", "40", "--k", "300", "--dtype", "int8",
        "--scaling", "none,tensor,row,block_1x128,block_128x128", "--layout", "tn,nt",
        "--out-dtype", "fp32,i8", "--device", "cpu", "--iterations", "1", "--json", str(path),
    )  # fmt: skip
    assert status == 0, out
    rows = json.loads(path.read_text())
    assert len(rows) == 5 * 2 * 2
    assert all(row["verified"] for row in rows)
    assert all(row["max_row_error"] < 0.02 for row in rows)


def test_profile_8_bit_floats(capsys, tmp_path):
    pytest.importorskip("torch")
    path = tmp_path / "rows.json"
    status, out, _ = run(
        capsys, "profile", "gemm", "--m", "48", "--n", "40", "--k", "300", "--dtype", "e4m3,e5m2",
        "--scaling", "none,row,block_128x128", "--use-fast-accum", "no,yes", "--out-dtype",
        "bf16,e4m3", "--bias", "none,row", "--device", "cpu", "--iterations", "1", "--json",
        str(path),
    )  # fmt: skip
    assert status == 0, out
    rows = json.loads(path.read_text())
    assert len(rows) == 2 * 3 * 2 * 2 * 2
    assert all(row["verified"] for row in rows)
    assert {row["use_fast_accum"] for row in rows} == {False, True}


def test_profile_exact_integers(capsys, tmp_path):
    path = tmp_path / "rows.json"
    status, out, _ = run(
        capsys, "profile", "gemm", *SMALL, "--dtype", "i8", "--device", "cpu", "--iterations", "1",
        "--json", str(path),
    )  # fmt: skip
    assert status == 0, out
    (row,) = json.loads(path.read_text())
    assert row["max_relative_error"] == 0


def test_profile_to_standard_output_leaves_it_clean(capsys):
    status, out, err = run(
        capsys, "profile", "gemm", *SMALL, "--device", "cpu", "--iterations", "1", "--no-verify",
        "--json", "-",
    )  # fmt: skip
    assert status == 0
    (row,) = json.loads(out)
    assert row["verified"] is None
    assert row["kernel"] in err


def test_profile_reports_refused_combinations_and_goes_on(capsys):
    status, out, _ = run(
        capsys, "profile", "gemm", "--m", "16", "--n", "16", "--k", "4", "--split-k-mode", "serial",
        "--split-k-slices", "5,1", "--device", "cpu", "--iterations", "1",
    )  # fmt: skip
    assert status == 1
    assert "split_k_slices" in out
    assert " yes" in out


def test_profile_detects_wrong_results(capsys, monkeypatch):
    monkeypatch.setattr(dense, "run", lambda plan, operands, stream: operands.out.fill(0))
    status, out, _ = run(capsys, "profile", "gemm", *SMALL, "--device", "cpu", "--iterations", "1")
    assert status == 1
    assert "WRONG RESULT" in out


def test_profile_groups(capsys, tmp_path):
    path = tmp_path / "rows.json"
    status, out, _ = run(
        capsys, "profile", "grouped", *GROUPS, "--form", "forward,dgrad,wgrad", "--dtype",
        "fp16,fp32", "--split-k-mode", "auto,serial", "--device", "cpu", "--iterations", "1",
        "--json", str(path),
    )  # fmt: skip
    assert status == 0, out
    rows = json.loads(path.read_text())
    assert len(rows) == 3 * 2 * 2
    assert all(row["verified"] and row["us"] > 0 and row["tflops"] > 0 for row in rows)
    assert {tuple(row["sizes"]) for row in rows} == {(20, 0, 1, 47)}
    assert "wgrad 68x40x72 in 4 given groups float32 nt" in out


def test_profile_swiglu_groups(capsys):
    status, out, _ = run(
        capsys, "profile", "grouped", *GROUPS, "--activation", "swiglu", "--bias", "none,row",
        "--device", "cpu", "--iterations", "1",
    )  # fmt: skip
    assert status == 0, out
    assert out.count(" swiglu") == 2


def test_profile_spread_groups(capsys, tmp_path):
    path = tmp_path / "rows.csv"
    status, out, _ = run(
        capsys, "profile", "grouped", "--groups", "3,70", "--tokens", "100", "--sizes",
        "uniform,varied,zipf", "--n", "24", "--k", "40", "--bias", "none,row", "--activation",
        "silu", "--device", "cpu", "--iterations", "1", "--csv", str(path),
    )  # fmt: skip
    assert status == 0, out
    with path.open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 3 * 2
    assert {row["groups"] for row in rows} == {"3", "70"}


@pytest.mark.parametrize("dtype", ["int8", "float8_e4m3fn"])
def test_profile_scaled_groups(capsys, tmp_path, dtype):
    library_for(dtype)
    path = tmp_path / "rows.json"
    status, out, _ = run(
        capsys, "profile", "grouped", "--sizes", "130,0,1,60", "--n", "40", "--k", "300", "--form",
        "forward,dgrad,wgrad", "--dtype", dtype, "--scaling", "none,row,block_1x128", "--out-dtype",
        "fp32", "--device", "cpu", "--iterations", "1", "--json", str(path),
    )  # fmt: skip
    assert status == 0, out
    rows = json.loads(path.read_text())
    assert len(rows) == 3 * 3
    assert all(row["verified"] for row in rows)


def test_sizes_that_contradict_are_refused(capsys):
    for option in ("--groups", "--tokens"):
        status, _, err = run(capsys, "profile", "grouped", *GROUPS, option, "5", "--device", "cpu")
        assert status == 1
        assert option in err
    status, out, _ = run(
        capsys, "profile", "grouped", *GROUPS, "--groups", "4", "--device", "cpu", "--iterations",
        "1",
    )  # fmt: skip
    assert status == 0, out


def test_profile_detects_a_wrong_group(capsys, monkeypatch):
    def leave_one_out(plan, operands, stream):
        operands.out[...] = 0

    monkeypatch.setattr(grouped, "run", leave_one_out)
    status, out, _ = run(
        capsys, "profile", "grouped", *GROUPS, "--device", "cpu", "--iterations", "1"
    )
    assert status == 1
    assert "WRONG RESULT" in out


def test_explain_groups(capsys):
    status, out, _ = run(
        capsys, "explain", "grouped", *GROUPS, "--form", "forward,wgrad", "--device", "cpu"
    )
    assert status == 0
    assert "forward 68x40x72 in 4 given groups float16 tn on cpu" in out
    for word in ("why", "moves", "computes"):
        assert out.count(f"  {word} ") == 2


def test_explain_groups_without_a_gpu(capsys):
    status, out, _ = run(
        capsys, "explain", "grouped", "--groups", "64", "--n", "1408", "--k", "2048", "--dtype",
        "e4m3", "--scaling", "block_1x128", "--form", "forward,dgrad,wgrad", "--device", "h100",
    )  # fmt: skip
    assert status == 0
    assert out.count("scales block_1x128 on h100") == 3
    assert out.count("of the roofline") == 3


def test_explain_without_a_gpu(capsys):
    status, out, _ = run(
        capsys, "explain", "gemm", "--m", "128", "--n", "128", "--k", "16384", "--device", "h100"
    )
    assert status == 0
    for word in ("kernel", "why", "roofline", "candidates"):
        assert word in out
    assert "\n*  " in out


@pytest.mark.parametrize(
    ("arguments", "usage", "meant"),
    [
        (("explain", "gemm", *SMALL, "--split-k-slice", "4"), "explain gemm", "--split-k-slices"),
        (("explain", "gem"), "explain", "gemm"),
        (("profil", "gemm"), "", "profile"),
        (("cache", "lss"), "cache", "ls"),
    ],
)
def test_typing_mistakes(capsys, arguments, usage, meant):
    with pytest.raises(SystemExit) as stopped:
        cli.main(list(arguments))
    error = capsys.readouterr().err
    assert stopped.value.code == 2
    assert error.startswith(f"usage: cleave {usage}")
    assert error.rstrip().endswith(f"Did you mean {meant}?")


def test_explain_a_measured_choice(capsys):
    """Of the shipped table; the model alone would not have considered it."""
    status, out, _ = run(
        capsys, "explain", "gemm", "--m", "128", "--n", "128", "--k", "16384", "--device", "h100",
        "--dtype", "float16", "--layout", "tn",
    )  # fmt: skip
    assert status == 0
    assert "measured to be the fastest for this size" in out
    assert "predicted" in out
    assert "\n*  " in out


@pytest.mark.parametrize("scaling", ["tensor", "row", "block_1x128", "block_128x128"])
def test_explain_scaled(capsys, scaling):
    status, out, _ = run(
        capsys, "explain", "gemm", *SMALL, "--dtype", "e4m3", "--scaling", scaling, "--device",
        "cpu",
    )  # fmt: skip
    assert status == 0
    assert f"48x40x200 float8_e4m3fn tn scales {scaling} on cpu" in out


def test_explain_library_errors_are_one_line(capsys):
    status, _, err = run(
        capsys, "explain", "gemm", *SMALL, "--device", "h100", "--split-k-mode", "serial",
        "--split-k-slices", "1000000",
    )  # fmt: skip
    assert status == 1
    assert err.startswith("cleave: ")
    assert err.count("\n") == 1


def test_explain_marks_the_plans_own_candidate():
    candidates = [
        {
            "kernel": "x",
            "split_k_mode": mode,
            "split_k_slices": 2,
            "predicted_us": us,
            "workspace_size": 0,
        }
        for mode, us in (("serial", 4.0), ("parallel", 5.0))
    ]

    class Plan:
        kernel_name, split_k_mode, split_k_slices = "x", "parallel", 2
        workspace_size, why, roofline_us = 0, "because", 2.0

    Plan.candidates = candidates
    stream = io.StringIO()
    explain._explain(Console(stream), case.GemmCase(1, 1, 1), Plan, "h100", limit=1)
    assert "5 us, 40% of the roofline" in stream.getvalue()
    (marked,) = [line for line in stream.getvalue().splitlines() if line.startswith("*")]
    assert "parallel" in marked


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_profile_convolutions(capsys, tmp_path, dtype):
    path = tmp_path / "rows.json"
    status, out, _ = run(
        capsys, "profile", "conv", *CONV, "--kind", "fprop,dgrad,wgrad", "--groups", "1,2",
        "--dilation", "1,2", "--division", "auto,plain", "--dtype", dtype, "--device", "cpu",
        "--iterations", "1", "--json", str(path),
    )  # fmt: skip
    assert status == 0, out
    rows = json.loads(path.read_text())
    assert len(rows) == 3 * 2 * 2 * 2
    assert all(row["verified"] and row["us"] > 0 and row["tflops"] > 0 for row in rows)
    assert f"dgrad 2x9x7x8 16x3x3 stride 2 pad 1 dilation 2 in 2 groups {dtype}" in out


@pytest.mark.parametrize("size", ["17", "5x6x7"])
def test_profile_lines_and_volumes(capsys, tmp_path, size):
    path = tmp_path / "rows.csv"
    status, out, _ = run(
        capsys, "profile", "conv", *CONV, "--size", size, "--kind", "fprop,dgrad,wgrad",
        "--split-k-mode", "auto,serial,parallel", "--device", "cpu", "--iterations", "1", "--csv",
        str(path),
    )  # fmt: skip
    assert status == 0, out
    with path.open() as file:
        assert [row["verified"] for row in csv.DictReader(file)] == ["True"] * 9


def test_profile_convolutions_with_everything(capsys):
    status, out, _ = run(
        capsys, "profile", "conv", *CONV, "--padding", "1,0-1x2,2x1-0", "--stride", "1,2x3",
        "--kind", "fprop,dgrad", "--bias", "none,row", "--activation", "none,silu", "--out-dtype",
        "fp32", "--device", "cpu", "--iterations", "1",
    )  # fmt: skip
    assert status == 0, out
    assert out.count(" yes") == 3 * 2 * 2 * 2 * 2


def test_profile_integer_convolutions_are_exact(capsys, tmp_path):
    path = tmp_path / "rows.json"
    status, out, _ = run(
        capsys, "profile", "conv", *CONV, "--dtype", "i8", "--device", "cpu", "--iterations", "1",
        "--json", str(path),
    )  # fmt: skip
    assert status == 0, out
    (row,) = json.loads(path.read_text())
    assert (row["max_relative_error"], row["max_row_error"]) == (0, 0)


def test_profile_reports_refused_convolutions_and_goes_on(capsys):
    status, out, _ = run(
        capsys, "profile", "conv", *CONV, "--padding", "0,1", "--filter-size", "8", "--device",
        "cpu", "--iterations", "1",
    )  # fmt: skip
    assert status == 1
    assert "size zero" in out
    assert " yes" in out
    status, _, err = run(capsys, "profile", "conv", *CONV, "--stride", "1x2x3", "--device", "cpu")
    assert status == 1
    assert "stride has 3 values" in err


def test_profile_detects_a_wrong_convolution(capsys, monkeypatch):
    monkeypatch.setattr(conv, "run", lambda plan, operands, stream: operands.out.fill(0))
    status, out, _ = run(capsys, "profile", "conv", *CONV, "--device", "cpu", "--iterations", "1")
    assert status == 1
    assert "WRONG RESULT" in out


@pytest.mark.parametrize("device", ["cpu", "h100"])
def test_explain_convolutions(capsys, device):
    status, out, _ = run(
        capsys, "explain", "conv", *CONV, "--kind", "fprop,dgrad,wgrad", "--device", device
    )
    assert status == 0
    assert f"dgrad 2x9x7x8 16x3x3 stride 2 pad 1 float16 on {device}" in out
    for word in ("why", "moves", "computes"):
        assert out.count(f"  {word} ") == 3


def test_compile_of_convolutions_has_a_kernel_for_each_way_to_divide(capsys, monkeypatch):
    sources = []

    def compile_plan(plan):
        sources.append(plan.kernel_source)
        return compiled("sm_90a")

    monkeypatch.setattr(cleave._core, "compile_plan", compile_plan, raising=False)
    status, out, _ = run(
        capsys, "compile", "conv", *CONV, "--kind", "dgrad", "--division", "fast,plain", "--kernel",
        "portable", "--device", "h100",
    )  # fmt: skip
    assert status == 0
    assert len(set(sources)) == 2
    assert "2 kernels, 0 with spills" in out


# What nvdisasm calls NOP, EXIT, IADD3 and two forms of MUFU.RCP.
NOP, EXIT, ADD, RECIPROCAL, RECIPROCAL_OF_UNIFORM = 0x7918, 0x794D, 0x7210, 0x7308, 0x7D08


def elf(**sections):
    """A 64-bit ELF file with these instructions (16 bytes each, the opcode first)."""
    contents = {"": b"", "names": b""}
    for name, opcodes in sections.items():
        code = b"".join(struct.pack("<QQ", opcode, 0) for opcode in opcodes)
        contents[name.replace("_", ".", 2)] = code
    names = b"\0".join(name.encode() for name in contents) + b"\0"
    contents["names"] = names
    body, headers = b"", b""
    for name, content in contents.items():
        at = names.index(name.encode() + b"\0") if name else len(names) - 1
        headers += struct.pack("<IIQQQQIIQQ", at, 1, 0, 0, 64 + len(body), len(content), 0, 0, 0, 0)
        body += content
    header = struct.pack("<16sHHIQQQ", b"\x7fELF\x02\x01\x01", 2, 190, 1, 0, 0, 64 + len(body))
    header += struct.pack("<IHHHHHH", 0, 64, 0, 0, 64, len(contents), 1)
    return header + body + headers


def test_instructions_are_counted():
    file = elf(
        _text_one=[ADD, RECIPROCAL, EXIT, NOP, NOP],
        _text_two=[RECIPROCAL_OF_UNIFORM, ADD, ADD, EXIT],
        _data_three=[ADD] * 9,
    )
    assert cubin.count(file) == cubin.CodeCounts(instructions=7, reciprocals=2)
    with pytest.raises(ValueError, match="ELF"):
        cubin.count(b"text")


def compiled(arch, spill=0):
    return {
        "name": "kernel", "arch": arch, "registers": 168, "spill_bytes": spill,
        "shared_bytes": 1024, "seconds": 0.1, "from_cache": False, "cubin": elf(_text_k=[EXIT]),
    }  # fmt: skip


def test_compile_of_products_takes_each_kernel_once(capsys, monkeypatch):
    sources = []

    def compile_plan(plan):
        sources.append(plan.kernel_source)
        return compiled("sm_90a")

    monkeypatch.setattr(cleave._core, "compile_plan", compile_plan, raising=False)
    status, out, _ = run(
        capsys, "compile", "gemm", "--m", "4096", "--n", "4096", "--k", "4096,8192,16384",
        "--dtype", "e4m3,i8", "--scaling", "row", "--split-k-mode", "none", "--device", "h100",
    )  # fmt: skip
    assert status == 0
    assert 2 <= len(sources) == len(set(sources)) < 6
    assert f"{len(sources)} kernels, 0 with spills" in out


def test_compile_of_groups_takes_one_kernel_for_any_sizes(capsys, monkeypatch):
    sources = []

    def compile_plan(plan):
        sources.append(plan.kernel_source)
        return compiled("sm_90a")

    monkeypatch.setattr(cleave._core, "compile_plan", compile_plan, raising=False)
    status, out, _ = run(
        capsys, "compile", "grouped", "--groups", "64", "--n", "1408", "--k", "2048", "--sizes",
        "uniform,varied,zipf", "--device", "h100",
    )  # fmt: skip
    assert status == 0
    assert len(sources) == 1
    assert "1 kernels, 0 with spills" in out


@pytest.mark.parametrize(("spill", "status"), [(0, 0), (16, 1)])
def test_compile_fails_on_spills(capsys, monkeypatch, spill, status):
    monkeypatch.setattr(cleave, "compile_all", lambda arch: [compiled(arch, spill)])
    got, out, _ = run(capsys, "compile", "--all")
    assert got == status
    assert all(arch in out for arch in compile.ARCHITECTURES)


def test_cache_lists_and_clears(capsys, monkeypatch):
    entry = {"key": "abc", "arch": "sm_90a", "bytes": 2048, "age_seconds": 7200.0}
    monkeypatch.setattr(cleave._core, "cache_list", lambda: [entry])
    monkeypatch.setattr(
        cleave, "cache_info", lambda: {"path": "/somewhere", "entries": 1, "bytes": 2048}
    )
    monkeypatch.setattr(cleave, "cache_clear", lambda: 1)
    status, out, _ = run(capsys, "cache", "ls")
    assert status == 0
    assert "2 h" in out
    assert "1 kernels, 2.0 KiB in /somewhere" in out
    assert run(capsys, "cache", "clear") == (0, "removed 1 kernels from /somewhere\n", "")


def test_tune_needs_a_gpu(capsys):
    status, _, err = run(capsys, "tune", "gemm", *SMALL, "--device", "cpu")
    assert status == 1
    assert "GPU" in err
