"""What options of the `cleave` command stand for: values, and the cases that they span."""

from __future__ import annotations

import argparse
import itertools

import pytest

from cleave.cli import values
from cleave.testing import case, group_sizes
from cleave.testing.conv_axis import Axis
from cleave.testing.conv_case import ConvCase
from cleave.testing.grouped_case import GroupedCase

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
    uniform, varied, zipf = (group_sizes.spread_over(64, 640_000, spread) for spread in ("uniform", "varied", "zipf"))
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
    assert ConvCase(32, [56, 56], 128, 64, 3, 2, 1).title == ("fprop 32x56x56x128 64x3x3 stride 2 pad 1 float16")
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
