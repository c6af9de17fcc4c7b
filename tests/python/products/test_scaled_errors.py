"""Every kind of bad input that 8-bit operands and their scales add; D keeps its contents."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import remedies

import cleave

A = np.ones((4, 200), np.int8)
B = np.ones((200, 5), np.int8)
BUFFER = np.ones(400, np.float32)


def f32(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def i32(*shape: int) -> np.ndarray:
    return np.ones(shape, np.int32)


def misaligned(*shape: int) -> np.ndarray:
    size = 4 * int(np.prod(shape))
    return np.ones(size + 4, np.uint8)[1 : 1 + size].view(np.float32).reshape(shape)


def read_only(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


# What is passed beside or instead of A, B and one scale for each, the exception, and words of its
# message.
BAD: dict[str, tuple[dict[str, Any], type[Exception], tuple[str, ...]]] = {
    # operands
    "b is float16": (
        {"b": np.ones((200, 5), np.float16)},
        TypeError,
        ("a is int8", "b is float16"),
    ),
    "a is int32": ({"a": i32(4, 200)}, TypeError, ("a is int32", "int8", "convert")),
    "a is uint8": ({"a": A.view(np.uint8)}, TypeError, ("a is uint8", "int8")),
    "operands of 16 bits": (
        {"a": np.ones((4, 6), np.float16), "b": np.ones((6, 5), np.float16)},
        ValueError,
        ("scale_a", "float16", "8-bit"),
    ),
    # forms of scales
    "scale_a is a number": ({"scale_a": 0.5}, TypeError, ("scale_a must be an array", "float")),
    "scale_a is missing": ({"scale_a": None}, ValueError, ("scale_a is missing", "neither")),
    "scale_b is missing": ({"scale_b": None}, ValueError, ("scale_b is missing", "neither")),
    "scale_a is float64": ({"scale_a": np.ones(1)}, TypeError, ("scale_a is float64", "float32")),
    "scale_b is int32": ({"scale_b": i32(1)}, TypeError, ("scale_b is int32", "float32")),
    "scale_a has rank 4": (
        {"scale_a": f32(1, 1, 1, 1)},
        ValueError,
        ("scale_a has 4 dim", "0 to 3"),
    ),
    "scale_a has another length": (
        {"scale_a": f32(5)},
        ValueError,
        ("scale_a is (5,)", "(4,)", "(4, 1)", "(4, 2)", "(1, 2)"),
    ),
    "scale_a is of columns": ({"scale_a": f32(1, 4)}, ValueError, ("scale_a is (1, 4)", "(4, 1)")),
    "scale_b is of rows": ({"scale_b": f32(5, 1)}, ValueError, ("scale_b is (5, 1)", "(1, 5)")),
    "scale_b is not transposed": (
        {"scale_a": f32(4, 2), "scale_b": f32(5, 2)},
        ValueError,
        ("scale_b is (5, 2)", "(2, 5)", "(2, 1)"),
    ),
    "blocks of 64": ({"scale_a": f32(4, 4)}, ValueError, ("scale_a is (4, 4)", "128", "(4, 2)")),
    "blocks of one operand": (
        {"scale_a": f32(4, 2), "scale_b": f32(1, 5)},
        ValueError,
        ("scale_a is (4, 2)", "scale_b is (1, 5)", "both"),
    ),
    "scale_a has a batch": (
        {"scale_a": f32(2, 4, 1)},
        ValueError,
        ("scale_a is (2, 4, 1)", "be 1"),
    ),
    "scale_b has another batch": (
        {"a": np.ones((3, 4, 200), np.int8), "out": None, "scale_b": f32(2, 1, 5)},
        ValueError,
        ("scale_b is (2, 1, 5)", "3 or 1"),
    ),
    "scale_a runs backwards": (
        {"scale_a": f32(4)[::-1]},
        ValueError,
        ("scale_a.stride_row is -1",),
    ),
    "scale_a is misaligned": ({"scale_a": misaligned(4)}, ValueError, ("scale_a is at", "4 bytes")),
    "blocks of int8 with zero points": (
        {"scale_a": f32(4, 2), "scale_b": f32(2, 5), "azp_adj": i32(5)},
        ValueError,
        ("zero points", "blocks"),
    ),
    # the range of D
    "scale_d is a number": ({"scale_d": 2.0}, TypeError, ("scale_d must be an array",)),
    "scale_d is a vector": (
        {"scale_d": f32(5), "out_dtype": "int8"},
        ValueError,
        ("scale_d is (5,)", "one value"),
    ),
    "scale_d is float16": ({"scale_d": np.ones(1, np.float16)}, TypeError, ("scale_d is float16",)),
    "scale_d of a wide D": ({"scale_d": f32(1)}, ValueError, ("scale_d", "float32", "8-bit")),
    "amax is float64": ({"amax": np.zeros(1)}, TypeError, ("amax is float64", "float32")),
    "amax is a vector": ({"amax": f32(4)}, ValueError, ("amax is (4,)", "one value")),
    "amax is read-only": ({"amax": read_only(f32(1))}, ValueError, ("amax is read-only",)),
    "amax is in D": (
        {"out": BUFFER[:20].reshape(4, 5), "amax": BUFFER[7:8]},
        ValueError,
        ("amax overlaps d",),
    ),
    "D is in the scales": (
        {"out": BUFFER[:20].reshape(4, 5), "scale_a": BUFFER[18:22]},
        ValueError,
        ("d overlaps scale_a",),
    ),
    "unknown out_scale": ({"out_scale": "column"}, ValueError, ('"column"', "block_1x128")),
    "out_scale is true": ({"out_scale": True}, TypeError, ("out_scale must be a string", "bool")),
    "out_scale beside scale_d": (
        {"out_scale": "row", "scale_d": f32(1), "out_dtype": "int8"},
        ValueError,
        ("scale_d is given beside out_scale",),
    ),
    "out_scale beside a stream": (
        {"out_scale": "row", "stream": 0, "out_dtype": "int8"},
        ValueError,
        ("stream is given beside out_scale", "current"),
    ),
    "out_scale of a batch": (
        {"out_scale": "row", "a": np.ones((3, 4, 200), np.int8), "out_dtype": "int8"},
        ValueError,
        ("a is (3, 4, 200)", 'out_scale="row" is for products whose D is a matrix'),
    ),
    "out_scale of a wide D": ({"out_scale": "row"}, TypeError, ("out is float32", "int8")),
    "out_scale of two types": (
        {"out_scale": "row", "out": np.ones((4, 5), np.int8), "out_dtype": "float8_e5m2"},
        TypeError,
        ("out is int8, but out_dtype is not",),
    ),
    "out_scale of no D": (
        {"out_scale": "row", "out": None},
        TypeError,
        ("out_dtype is None", "float8_e4m3fn"),
    ),
    # zero points
    "azp without azp_adj": ({"azp": i32(4)}, ValueError, ("azp", "pass the sums of b's columns")),
    "azp_adj is float32": ({"azp_adj": f32(5)}, TypeError, ("azp_adj is float32", "int32")),
    "azp_adj has another length": ({"azp_adj": i32(4)}, ValueError, ("azp_adj is (4,)", "(5,)")),
    "out is azp_adj": (
        {"azp_adj": (shared := i32(20))[:5], "out": shared.view(np.float32).reshape(4, 5)},
        ValueError,
        ("d overlaps zero_b", "zero_b is azp_adj"),
    ),
    "azp_adj has a stride": (
        {"azp_adj": i32(10)[::2]},
        ValueError,
        ("azp_adj is not contiguous", "azp_adj.contiguous()"),
    ),
    "azp has another length": (
        {"azp": i32(5), "azp_adj": i32(5)},
        ValueError,
        ("azp is (5,)", "(4,)"),
    ),
    # exact products
    "int32 with scales": ({"out": i32(4, 5)}, ValueError, ("int32", "scale_a", "scale_b")),
    "int32 with a bias": (
        {"scale_a": None, "scale_b": None, "out": i32(4, 5), "bias": f32(5)},
        ValueError,
        ("int32", "bias"),
    ),
    "int32 times alpha": (
        {"scale_a": None, "scale_b": None, "out": i32(4, 5), "alpha": 2.0},
        ValueError,
        ("alpha is 2", "int32"),
    ),
    "int8 accumulates exactly": ({"use_fast_accum": True}, ValueError, ("int8", "8-bit floats")),
    "use_fast_accum is a number": ({"use_fast_accum": 1}, TypeError, ("use_fast_accum", "int")),
    "the bias is int8": ({"bias": np.ones(5, np.int8)}, TypeError, ("bias is int8", "float32")),
    "c is int32": ({"c": i32(4, 5)}, TypeError, ("c is int32", "float32")),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case: str) -> None:
    given, exception, words = BAD[case]
    arguments = {"a": A, "b": B, "scale_a": f32(1), "scale_b": f32(1), "out": f32(4, 5)} | given
    if "out_dtype" in given and "out" not in given:
        del arguments["out"]
    before = np.array(arguments.get("out"))
    with pytest.raises(exception) as caught:
        cleave.scaled_gemm(**arguments)
    assert type(caught.value) is exception
    remedies.check(str(caught.value), cleave.scaled_gemm)
    for word in words:
        assert word in str(caught.value)
    np.testing.assert_array_equal(np.array(arguments.get("out")), before)


def test_zero_points_of_floats() -> None:
    e4m3 = pytest.importorskip("ml_dtypes").float8_e4m3fn
    with pytest.raises(ValueError, match="only int8 operands have zero points"):
        cleave.scaled_gemm(A.astype(e4m3), B.astype(e4m3), f32(1), f32(1), azp_adj=i32(5))


def test_int32_of_floats() -> None:
    for a, b in ((f32(4, 6), f32(6, 5)), (A.astype(np.float16), B.astype(np.float16))):
        with pytest.raises(TypeError, match="int8"):
            cleave.gemm(a, b, out_dtype="int32")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"scale_a": f32(4, 1)}, r"scale_a is a vector with strides \(0, 1\), but .* one value"),
        ({"scale_a": f32(4, 2), "scale_b": f32(2, 1)}, r"scale_a is blocks of 1x128 with strides"),
        ({"scale_a": None, "scale_b": None}, "scale_a is missing, but the plan is for one value"),
        ({"scale_d": f32(1)}, "scale_d is given, but the plan is for none"),
        ({"amax": f32(1)}, "amax is given, but the plan is for none"),
        ({"azp_adj": i32(5)}, "azp_adj is given, but the plan is for none"),
    ],
)
def test_plans_of_another_form(given: dict[str, Any], words: str) -> None:
    plan = cleave.plan_scaled_gemm(A, B, f32(1), f32(1), out_dtype="int8")
    out = np.zeros((4, 5), np.int8)
    with pytest.raises(ValueError, match=words):
        plan.run(A, B, out=out, **({"scale_a": f32(1), "scale_b": f32(1)} | given))
    assert (out == 0).all()


def test_plan_problem_arguments() -> None:
    for options, words in (
        ({"scaling": "rows"}, 'scaling is "rows".*"block_128x128"'),
        ({"scaling": "row", "dtype": "float16"}, "scale_a.*float16"),
        ({"use_fast_accum": True, "dtype": "int8"}, "8-bit floats"),
    ):
        with pytest.raises(ValueError, match=words):
            cleave.plan_problem(8, 8, 8, device="cpu", **options)
    with pytest.raises(TypeError, match="int32 is a type of c and d only"):
        cleave.plan_problem(8, 8, 8, device="cpu", dtype="int32")


def test_rows_of_a_batch_have_matrices_of_scales() -> None:
    """Two dimensions would be taken for blocks."""
    a, b = np.ones((2, 4, 8), np.int8), np.ones((2, 8, 5), np.int8)
    with pytest.raises(ValueError, match=r"scale_a is \(2, 4\); .*\(4, 1\).*; or such a matrix for each"):
        cleave.scaled_gemm(a, b, f32(2, 4), f32(2, 5))
    scales = np.full((2, 4, 1), 2, np.float32), np.ones((2, 1, 5), np.float32)
    np.testing.assert_array_equal(cleave.scaled_gemm(a, b, *scales, out_dtype="float32"), 16)
