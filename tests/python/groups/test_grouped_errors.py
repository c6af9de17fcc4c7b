"""Every kind of bad input that groups and swiglu add; D keeps its contents."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import remedies

import cleave

A = np.ones((10, 6), np.float32)
B = np.ones((3, 6, 5), np.float32)
ENDS = np.array([2, 2, 9], np.int32)


def f32(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def i8(*shape: int) -> np.ndarray:
    return np.ones(shape, np.int8)


def i32(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def i64(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


Case = tuple[dict[str, Any], type[Exception], tuple[str, ...]]

# What is passed beside or instead of A, B and ENDS, the exception, and words of its message.
BAD: dict[str, Case] = {
    # bounds that are none
    "offs is a list": ({"offs": [2, 2, 9]}, TypeError, ("offs must be an array", "list")),
    "offs is float32": ({"offs": f32(3)}, TypeError, ("offs is float32", "int32 or int64")),
    "offs is int8": ({"offs": i8(3)}, TypeError, ("offs is int8", "int32 or int64", "convert")),
    "offs is uint64": ({"offs": ENDS.astype(np.uint64)}, TypeError, ("offs is uint64",)),
    "offs is int16": ({"offs": ENDS.astype(np.int16)}, TypeError, ("offs is int16",)),
    "offs is a matrix": ({"offs": ENDS[None]}, ValueError, ("offs has 2 dimensions", "have 1")),
    "offs is a scalar": ({"offs": i32(1)[0]}, ValueError, ("offs has 0 dimensions", "have 1")),
    "offs has a stride": (
        {"offs": i32(1, 1, 2, 2, 9, 9)[::2]},
        ValueError,
        ("offs has a stride of 2", "contiguous", "copy"),
    ),
    "offs is empty": ({"offs": i32()}, ValueError, ("offs describes 0 groups", "1 or more")),
    "indptr is empty": (
        {"offs": None, "indptr": i32()},
        ValueError,
        ("indptr describes 0 groups", "1 or more"),
    ),
    "counts are bool": ({"offs": None, "counts": ENDS > 0}, TypeError, ("counts is bool;",)),
    # which bounds
    "no bounds": (
        {"offs": None},
        ValueError,
        ("offs is missing", "a is (10, 6) and b is (3, 6, 5)", "indptr"),
    ),
    "two descriptions": (
        {"indptr": i32(0, 2, 2, 9)},
        ValueError,
        ("described 2 times", "one of offs, indptr, starts with sizes, and counts"),
    ),
    "three descriptions": (
        {"starts": ENDS, "sizes": ENDS, "counts": ENDS},
        ValueError,
        ("described 3 times",),
    ),
    "starts without sizes": (
        {"offs": None, "starts": ENDS},
        ValueError,
        ("sizes is missing", "go together"),
    ),
    "sizes beside offs": ({"sizes": ENDS}, ValueError, ("starts is missing", "go together")),
    "starts and sizes differ": (
        {"offs": None, "starts": ENDS, "sizes": i32(1, 1)},
        ValueError,
        ("starts is (3,)", "sizes is (2,)"),
    ),
    "starts and sizes have different types": (
        {"offs": None, "starts": ENDS, "sizes": i64(1, 1, 1)},
        TypeError,
        ("starts is int32", "sizes is int64", "convert"),
    ),
    "counts of matrices": (
        {"offs": None, "counts": ENDS},
        ValueError,
        ("counts is given", "a is (10, 6)", "alignment"),
    ),
    "offs of batches": (
        {"a": f32(3, 10, 6)},
        ValueError,
        ("a is (3, 10, 6) and b is (3, 6, 5)", "nothing to group", "pass counts"),
    ),
    "alignment of batches": (
        {"a": f32(3, 10, 6), "offs": None, "alignment": 8},
        ValueError,
        ("alignment is 8, but no bounds of groups are given",),
    ),
    "a rest of batches": (
        {"a": f32(3, 10, 6), "offs": None, "zero_rest": True},
        ValueError,
        ("zero_rest is True, but no bounds of groups are given",),
    ),
    "one group, three weights": ({"offs": i32(9)}, ValueError, ("b is (3, 6, 5), but 1 group is described",)),
    "an order of scales that D has not": ({"scale_major": "mn"}, ValueError, ("scale_major is mn, but no scales",)),
    # alignment
    "alignment is zero": ({"alignment": 0}, ValueError, ("alignment is 0", "1 or more")),
    "alignment is negative": ({"alignment": -8}, ValueError, ("alignment is -8", "1 or more")),
    "alignment is a float": ({"alignment": 8.0}, TypeError, ("alignment must be", "float")),
    "alignment is true": ({"alignment": True}, TypeError, ("alignment must be", "bool")),
    "alignment is huge": ({"alignment": 2**40}, ValueError, ("alignment", str(2**40))),
    "alignment is absurd": ({"alignment": 2**70}, ValueError, ("alignment is out of range",)),
    "alignment beside indptr": (
        {"offs": None, "indptr": i32(0, 2, 2, 9), "alignment": 8},
        ValueError,
        ("alignment is 8", "indptr says where each group begins"),
    ),
    "alignment beside counts of batches": (
        {"a": f32(3, 10, 6), "offs": None, "counts": ENDS, "alignment": 10},
        ValueError,
        ("alignment is 10", "a is (3, 10, 6)", "leave it out"),
    ),
    # shapes
    # groups that lie apart
    "apart without out": (
        {"a": f32(160), "b": f32(160), "alignment": 8},
        ValueError,
        ("a is (160,) and b is (160,)", "lie apart", "[groups, M, N]"),
    ),
    "apart without an alignment": (
        {"a": f32(160), "b": f32(160), "out": f32(3, 10, 10)},
        ValueError,
        ("lie apart", "with an alignment"),
    ),
    "apart by indptr": (
        {"a": f32(160), "b": f32(160), "out": f32(3, 10, 10), "offs": None, "indptr": i32(0, 2, 2, 9)},
        ValueError,
        ("lie apart", "their ends as offs"),
    ),
    "apart with rows that do not divide": (
        {"a": f32(163), "b": f32(160), "alignment": 8, "out": f32(3, 10, 10)},
        ValueError,
        ("a is (163,), but out has 10 rows",),
    ),
    "apart with columns that do not divide": (
        {"a": f32(160), "b": f32(163), "alignment": 8, "out": f32(3, 10, 10)},
        ValueError,
        ("b is (163,), but out has 10 columns",),
    ),
    "apart with another K": (
        {"a": f32(160), "b": f32(240), "alignment": 8, "out": f32(3, 10, 10)},
        ValueError,
        ("a is (10, 16) and b is (24, 10)",),
    ),
    "apart with a stride": (
        {"a": f32(320)[::2], "b": f32(160), "alignment": 8, "out": f32(3, 10, 10)},
        ValueError,
        ("a has a stride of 2", "contiguous"),
    ),
    "apart without room": (
        {"a": f32(200), "b": f32(200), "alignment": 8, "out": f32(3, 10, 10)},
        ValueError,
        ("k is 20", "room for multiples of 8"),
    ),
    "apart at no vector": (
        {"a": f32(180), "b": f32(180), "alignment": 6, "out": f32(3, 10, 10)},
        ValueError,
        ("spacing (alignment) is 6", "16 bytes", "multiple of 4"),
    ),
    "a has rank 1": ({"a": f32(6)}, ValueError, ("a has 1 dimension", "2 or 3")),
    "groups and matrices differ in number": (
        {"offs": i32(2, 9)},
        ValueError,
        ("b is (3, 6, 5)", "2 groups", "(2, 6, 5)"),
    ),
    "indptr has no leading zero": (
        {"offs": None, "indptr": ENDS},
        ValueError,
        ("b is (3, 6, 5)", "2 groups"),
    ),
    "matrices of a and groups differ in number": (
        {"a": f32(4, 10, 6), "b": f32(6, 9)},
        ValueError,
        ("a is (4, 10, 6)", "3 groups", "(3, 10, 6)"),
    ),
    "counts and batches differ": (
        {"a": f32(2, 10, 6), "offs": None, "counts": ENDS},
        ValueError,
        ("a is (2, 10, 6)", "3 groups", "(3, 10, 6)"),
    ),
    "too many groups": (
        {"b": f32(1025, 6, 5), "offs": np.zeros(1025, np.int32)},
        ValueError,
        ("number of groups, is 1025", "1 to 1024", "several products"),
    ),
    "K differs": ({"b": f32(3, 7, 5)}, ValueError, ("(10, 6)", "(3, 7, 5)", "columns (6)")),
    "out has another shape": ({"out": f32(9, 5)}, ValueError, ("out is (9, 5)", "(10, 5)")),
    "out has a matrix for each group": ({"out": f32(3, 10, 5)}, ValueError, ("out is", "(10, 5)")),
    "out has none": (
        {"b": f32(6, 5), "out": f32(10, 5)},
        ValueError,
        ("out is (10, 5)", "(3, 10, 5)"),
    ),
    "c has another shape": ({"c": f32(3, 10, 5)}, ValueError, ("c is (3, 10, 5)", "(10, 5)")),
    "c of masked groups is shared": (
        {"a": f32(3, 4, 6), "offs": None, "counts": ENDS, "c": f32(4, 5)},
        ValueError,
        ("c is (4, 5)", "(3, 4, 5)"),
    ),
    "bias has another shape": (
        {"bias": f32(4, 5)},
        ValueError,
        ("bias is (4, 5)", "(5,)", "(10, 1)", "(3, 5)", "each group"),
    ),
    "bias has a stride": ({"bias": f32(5, 3).T}, ValueError, ("bias has a stride of 3", "copy")),
    "masked rows are not evenly spaced": (
        {"a": f32(3, 12, 6)[:, :10], "offs": None, "counts": ENDS},
        ValueError,
        ("a is (3, 10, 6) with strides (72, 6", "stride of 60, not 72", "copy"),
    ),
    "masked rows of out are not evenly spaced": (
        {"a": f32(3, 10, 6), "offs": None, "counts": ENDS, "out": f32(3, 12, 5)[:, :10]},
        ValueError,
        ("out is (3, 10, 5) with strides (60, 5", "Pass a contiguous out", "copy the result from it"),
    ),
    # scales
    "scales of floats": (
        {"scale_a": f32(10), "scale_b": f32(3, 5)},
        ValueError,
        ("scale_a is given", "a is float32", "8-bit"),
    ),
    "scale_a is missing": (
        {"a": i8(10, 6), "b": i8(3, 6, 5), "scale_b": f32(3, 5)},
        ValueError,
        ("scale_a is missing",),
    ),
    "scale_b is of another number of groups": (
        {"a": i8(10, 6), "b": i8(3, 6, 5), "scale_a": f32(10), "scale_b": f32(4, 5)},
        ValueError,
        ("scale_b is (4, 5)", "3 or 1"),
    ),
    "scale_b is of rows": (
        {"a": i8(10, 6), "b": i8(3, 6, 5), "scale_a": f32(10), "scale_b": f32(3, 6)},
        ValueError,
        ("scale_b is (3, 6)", "(3, 5)", "and group", "(3, 1, 5)"),
    ),
    "scale_a has a batch": (
        {"a": i8(10, 6), "b": i8(3, 6, 5), "scale_a": f32(3, 10, 1), "scale_b": f32(3, 5)},
        ValueError,
        ("scale_a is (3, 10, 1)", "batch must be 1"),
    ),
    "blocks of rows of several groups": (
        {"a": i8(10, 200), "b": i8(3, 200, 5), "scale_a": f32(1, 2), "scale_b": f32(3, 2, 5)},
        ValueError,
        ("scale_a.rows is 128", "m is grouped", "1 x 128"),
    ),
    "blocks of K without an alignment": (
        {"a": i8(10, 200), "b": i8(200, 5), "scale_a": f32(10, 2), "scale_b": f32(2, 5)},
        ValueError,
        ("scale_a is (10, 2)", "(3, 10)", "alignment that is a multiple of 128"),
    ),
    "blocks of K with an odd alignment": (
        {"a": i8(9, 200), "b": i8(200, 5), "scale_a": f32(9, 2), "scale_b": f32(2, 5),
         "alignment": 64},
        ValueError,
        ("alignment that is a multiple of 128",),
    ),
    # options
    "zero_rest is a number": ({"zero_rest": 1}, TypeError, ("zero_rest", "int")),
    "zero_rest of groups of K": (
        {"b": f32(6, 5), "offs": i32(2, 3, 6), "zero_rest": True},
        ValueError,
        ("groups.zero_rest is set", "k is grouped"),
    ),
    "check_offsets is None": ({"check_offsets": None}, TypeError, ("check_offsets", "NoneType")),
    "out overlaps the offsets": (
        {"out": (buffer := f32(60))[:50].reshape(10, 5), "offs": buffer[47:50].view(np.int32)},
        ValueError,
        ("overlaps group_offsets",),
    ),
    "beta without c": ({"beta": 2}, ValueError, ("beta is 2", "pass c")),
    "unknown activation": ({"activation": "swigl"}, ValueError, ('Did you mean "swiglu"?',)),
    # swiglu
    "swiglu of an odd number of columns": (
        {"activation": "swiglu"},
        ValueError,
        ("b is (3, 6, 5)", "swiglu", "gate columns"),
    ),
    "swiglu with c": (
        {"b": f32(3, 6, 10), "c": f32(10, 5), "activation": "swiglu"},
        ValueError,
        ("c is given", "swiglu"),
    ),
    "swiglu of groups of K": (
        {"b": f32(6, 10), "offs": i32(2, 3, 6), "a": A, "activation": "swiglu"},
        ValueError,
        ("swiglu and k is grouped",),
    ),
    "swiglu with a bias of half": (
        {"b": f32(3, 6, 10), "bias": f32(5), "activation": "swiglu"},
        ValueError,
        ("bias is (5,)", "(10,)", "column of b"),
    ),
    "swiglu into integers": (
        {"a": i8(10, 6), "b": i8(3, 6, 10), "activation": "swiglu", "out_dtype": "int32"},
        ValueError,
        ("d is int32", "swiglu", "float16"),
    ),
    "swiglu by column": (
        {"b": f32(3, 6, 10), "activation": "swiglu", "out": f32(5, 10).T},
        ValueError,
        ("d.stride_row is 1", "row-major"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case: str) -> None:
    given, exception, words = BAD[case]
    arguments = {"a": A, "b": B, "offs": ENDS} | given
    out = arguments.get("out")
    before = None if out is None else out.copy()
    with pytest.raises(exception) as caught:
        cleave.grouped_gemm(**arguments)
    assert type(caught.value) is exception
    remedies.check(str(caught.value), cleave.grouped_gemm)
    for word in words:
        assert word in str(caught.value)
    if out is not None:
        np.testing.assert_array_equal(out, before)


# Bounds that only check_offsets looks at, of the ten rows of A.
WRONG: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "ends decrease": ({"offs": i32(2, 1, 9)}, ("offs[1] is 1", "offs[0] is 2", "running total")),
    "an end is negative": ({"offs": i64(-1, 2, 9)}, ("offs[0] is -1", "negative")),
    "an end is past the end": (
        {"offs": i32(2, 2, 11)},
        ("offs[2] is 11", "10 elements", "at most"),
    ),
    "indptr decreases": ({"indptr": i32(3, 2, 4, 9)}, ("indptr[1] is 2", "indptr[0] is 3")),
    "indptr is past the end": (
        {"indptr": i64(0, 1, 2, 2**40)},
        (f"indptr[3] is {2**40}", "10 elements"),
    ),
    "a start is negative": (
        {"starts": i32(0, -3, 5), "sizes": i32(1, 1, 1)},
        ("starts[1] is -3", "negative"),
    ),
    "a size is negative": (
        {"starts": i32(0, 3, 5), "sizes": i32(1, -1, 1)},
        ("sizes[1] is -1", "negative"),
    ),
    "a group is past the end": (
        {"starts": i64(0, 3, 5), "sizes": i64(1, 1, 6)},
        ("starts[2] is 5 and sizes[2] is 6", "10 elements"),
    ),
    "a sum overflows": (
        {"starts": i64(0, 3, 5), "sizes": i64(1, 1, 2**63 - 1)},
        ("starts[2] is 5", "10 elements"),
    ),
    "groups overlap": (
        {"starts": i32(6, 0, 4), "sizes": i32(2, 3, 3)},
        ("starts[2] is 4 and sizes[2] is 3", "starts[0] is 6", "overlap"),
    ),
    "ends do not count the padding": (
        {"offs": i32(3, 6, 9), "alignment": 8},
        ("offs[1] is 6", "begins at 8", "alignment = 8", "padding"),
    ),
    "a count is negative": ({"counts": i32(1, -2, 1), "alignment": 3}, ("counts[1] is -2",)),
    "a count is too large": (
        {"counts": i32(1, 2, 4), "alignment": 3},
        ("counts[2] is 4", "room for 3"),
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_check_offsets(case: str) -> None:
    keywords, words = WRONG[case]
    out = np.full((10, 5), 7, np.float32)
    with pytest.raises(ValueError) as caught:
        cleave.grouped_gemm(A, B, **keywords, out=out, check_offsets=True)
    for word in words:
        assert word in str(caught.value)
    assert (out == 7).all()
    cleave.grouped_gemm(A, B, **keywords, out=out)


def test_check_offsets_lets_what_is_right_pass() -> None:
    for keywords in (
        {"offs": i32(0, 0, 10)},
        {"indptr": i64(1, 1, 5, 10)},
        {"starts": i32(8, 0, 0), "sizes": i32(2, 8, 0)},
        {"offs": i32(3, 3, 10), "alignment": 8},
        {"offs": i32(3, 8, 10), "alignment": 8},
        {"counts": i32(0, 3, 1), "alignment": 3},
    ):
        cleave.grouped_gemm(A, B, **keywords, check_offsets=True)
    cleave.grouped_gemm(f32(3, 2, 6), B, check_offsets=True)


def test_weight_gradients() -> None:
    dy, x = f32(10, 4), f32(10, 5)
    for arguments, exception, words in (
        ((dy, x[:9], ENDS), ValueError, ("columns (10)", "rows (9)", "a is dy transposed")),
        ((dy, f32(3, 10, 5), ENDS), ValueError, ("dy is (10, 4)", "x is (3, 10, 5)", "matrices")),
        ((f32(3, 10, 4), f32(3, 10, 5), ENDS), ValueError, ("dy is (3, 10, 4)", "with counts")),
        (([1.0], x, ENDS), TypeError, ("dy must be an array",)),
        ((dy, i8(10, 5), ENDS), TypeError, ("b is int8", "b is x")),
    ):
        with pytest.raises(exception) as caught:
            cleave.grouped_gemm_wgrad(*arguments)
        for word in words:
            assert word in str(caught.value)
    with pytest.raises(ValueError, match="accumulate is True, but there is no out"):
        cleave.grouped_gemm_wgrad(dy, x, ENDS, accumulate=True)
    with pytest.raises(TypeError, match="accumulate must be True or False"):
        cleave.grouped_gemm_wgrad(dy, x, ENDS, accumulate=1)
    with pytest.raises(ValueError, match=r"offs\[2\] is 11, but the grouped dimension has 10"):
        cleave.grouped_gemm_wgrad(dy, x, i32(2, 2, 11), check_offsets=True)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((A, B, ENDS.astype(np.int64)), "groups of m by ends of int64"),
        ((A, f32(4, 6, 5), i32(2, 2, 2, 9)), "4 x 10 x 5 x 6, but the plan is for 3 x 10"),
        ((A, f32(6, 5), i32(2, 3, 6)), "the grouping is groups of k"),
        ((f32(3, 10, 6), B), "the grouping is none, but the plan is for groups of m"),
    ],
)
def test_plans_refuse_arrays_of_another_form(arguments: tuple, words: str) -> None:
    plan = cleave.plan_grouped_gemm(A, B, ENDS)
    with pytest.raises(ValueError, match=words):
        plan.run(*arguments)


def test_plans_refuse_other_bounds() -> None:
    plan = cleave.plan_grouped_gemm(A, B, ENDS, bias=f32(3, 5))
    with pytest.raises(ValueError, match=r"groups of m by indptr .*plan_grouped_gemm"):
        plan.run(A, B, indptr=i32(0, 2, 2, 9), bias=f32(3, 5))
    with pytest.raises(ValueError, match="distance from group to group is 0"):
        plan.run(A, B, ENDS, bias=f32(5))
    with pytest.raises(ValueError, match=r"the grouping is groups of k .* is for none"):
        cleave.plan_gemm(A, f32(6, 5)).run(A, f32(6, 5), ENDS)
    with pytest.raises(ValueError, match="offs is missing"):
        plan.run(A, B, bias=f32(3, 5))


def test_planning_without_arrays() -> None:
    options = {"batch": 3, "dtype": "float32", "device": "cpu"}
    with pytest.raises(ValueError, match='grouping is "l"'):
        cleave.plan_problem(8, 8, 8, grouping="l", **options)
    with pytest.raises(ValueError, match='bounds is "offsets"'):
        cleave.plan_problem(8, 8, 8, grouping="m", bounds="offsets", **options)
    with pytest.raises(ValueError, match=r"spacing \(alignment\) is 0"):
        cleave.plan_problem(8, 8, 8, grouping="m", bounds="counts", spacing=0, **options)
