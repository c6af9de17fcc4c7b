"""Every kind of bad input: its exception, what the message names, and that D keeps its contents."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import remedies

import cleave

A = np.ones((4, 6), np.float32)
B = np.ones((6, 5), np.float32)
BIG = np.ones((40, 40), np.float32)


class Stream:
    """An object with the attribute of a stream, but not its value."""

    cuda_stream = "seven"


class EndlessStream:
    cuda_stream = float("inf")


def f32(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


# What is passed beside or instead of A and B, the exception, and words of its message.
BAD: dict[str, tuple[dict[str, Any], type[Exception], tuple[str, ...]]] = {
    # not arrays
    "a is None": ({"a": None}, TypeError, ("a must be an array", "NoneType")),
    "a is a list": ({"a": [[1.0]]}, TypeError, ("a must be an array", "list")),
    "a is a number": ({"a": 3.0}, TypeError, ("a must be an array", "float")),
    "a is a class": ({"a": np.ndarray}, TypeError, ("a must be an array", "type")),
    "c is a string": ({"c": "c"}, TypeError, ("c must be an array", "str")),
    "bias is a list": ({"bias": [1.0] * 5}, TypeError, ("bias must be an array", "list")),
    "out is a tuple": ({"out": ()}, TypeError, ("out must be an array", "tuple")),
    "workspace is bytes": ({"workspace": b""}, TypeError, ("workspace must be an array", "bytes")),
    "deterministic is None": (
        {"deterministic": None},
        TypeError,
        ('deterministic must be True, False or "batch_invariant", got NoneType',),
    ),
    # rank
    "a is a vector": ({"a": f32(6)}, ValueError, ("a has 1 dimension", "2 or 3")),
    "a is a scalar": ({"a": np.float32(1)}, ValueError, ("a has 0 dimensions",)),
    "b has rank 4": ({"b": f32(1, 1, 6, 5)}, ValueError, ("b has 4 dimensions",)),
    "bias has rank 3": ({"bias": f32(1, 1, 5)}, ValueError, ("bias has 3 dimensions", "1 or 2")),
    # shapes
    "K differs": ({"b": f32(7, 5)}, ValueError, ("(4, 6)", "(7, 5)", "columns (6)", "rows (7)")),
    "batches differ": ({"a": f32(2, 4, 6), "b": f32(3, 6, 5)}, ValueError, ("(2 and 3)",)),
    "c has another shape": ({"c": f32(5, 4)}, ValueError, ("c is (5, 4)", "(4, 5)")),
    "c has a batch": ({"c": f32(2, 4, 5)}, ValueError, ("c is (2, 4, 5)", "(4, 5)")),
    "out has another shape": ({"out": f32(4, 4)}, ValueError, ("out is (4, 4)", "(4, 5)")),
    "out lacks the batch": (
        {"a": f32(2, 4, 6), "out": f32(4, 5)},
        ValueError,
        ("out is (4, 5)", "(2, 4, 5)"),
    ),
    "bias has another length": ({"bias": f32(4)}, ValueError, ("bias is (4,)", "(5,)", "(4, 1)")),
    "bias is a matrix": ({"bias": f32(4, 5)}, ValueError, ("bias is (4, 5)",)),
    # dtypes
    "a is float64": ({"a": np.ones((4, 6))}, TypeError, ("a is float64", "bfloat16", "convert")),
    "b is int8": ({"b": np.ones((6, 5), np.int8)}, TypeError, ("b is int8",)),
    "a is complex": ({"a": np.ones((4, 6), np.complex64)}, TypeError, ("a is complex64",)),
    "a is boolean": ({"a": np.ones((4, 6), bool)}, TypeError, ("a is bool;",)),
    "a holds objects": ({"a": np.ones((4, 6), object)}, TypeError, ("a has elements", "|O")),
    "a is big-endian": ({"a": np.ones((4, 6), ">f4")}, TypeError, (">f4", "native byte order")),
    "a and b differ": (
        {"b": np.ones((6, 5), np.float16)},
        TypeError,
        ("a is float32", "b is float16"),
    ),
    "out is float64": ({"out": np.ones((4, 5))}, TypeError, ("out is float64", "int32, pass an array of such a type")),
    "bias is int32": ({"bias": np.ones(5, np.int32)}, TypeError, ("bias is int32",)),
    "out_dtype is float64": ({"out_dtype": np.float64}, TypeError, ("out_dtype is float64",)),
    "out_dtype is a number": ({"out_dtype": 16}, TypeError, ("out_dtype is 16",)),
    "out and out_dtype differ": (
        {"out": f32(4, 5), "out_dtype": "float16"},
        TypeError,
        ("out is float32", "out_dtype is float16"),
    ),
    # strides
    "a has no unit stride": (
        {"a": BIG[:8:2, :12:2]},
        ValueError,
        ("a has strides (80, 2)", "contiguous"),
    ),
    "out has no unit stride": (
        {"out": BIG[:8:2, :10:2]},
        ValueError,
        ("out has strides (80, 2)", "Pass a contiguous out, and copy the result from it"),
    ),
    "out runs backwards": (
        {"out": f32(4, 5)[::-1]},
        ValueError,
        ("d.stride_row is -5", "Pass a contiguous d, and copy the result from it", "(d is out)"),
    ),
    "a runs backwards": ({"a": A[::-1]}, ValueError, ("a.stride_row is -6", "contiguous")),
    "a is broadcast": (
        {"a": np.broadcast_to(f32(6), (4, 6))},
        ValueError,
        ("a.stride_row is 0", "contiguous"),
    ),
    "bias has a stride": ({"bias": BIG[0, :10:2]}, ValueError, ("bias has a stride of 2", "copy")),
    "a splits elements": (
        {"a": np.ndarray((4, 6), np.float32, BIG.data, strides=(25, 4))},
        ValueError,
        ("25 bytes",),
    ),
    # memory that must not be shared or written
    "out is read-only": (
        {"out": np.broadcast_to(f32(4, 5), (4, 5))},
        ValueError,
        ("out is read-only",),
    ),
    "out overlaps itself": (
        {"out": np.lib.stride_tricks.as_strided(f32(40), (4, 5), (8, 4))},
        ValueError,
        ("overlaps itself",),
    ),
    "out is a": ({"a": BIG[:4, :6], "out": BIG[:4, :5]}, ValueError, ("overlaps a",)),
    "out touches b": ({"b": BIG[4:10, :5], "out": BIG[6:10, 4:9]}, ValueError, ("overlaps b",)),
    "out is half of c": (
        {"c": BIG[1:5, :5], "out": BIG[:4, :5]},
        ValueError,
        ("overlaps c", "exactly"),
    ),
    "c is out transposed": (
        {"b": f32(6, 4), "c": BIG[:4, :4].T, "out": BIG[:4, :4]},
        ValueError,
        ("row-major", "column-major"),
    ),
    "workspace is read-only": (
        {"workspace": np.broadcast_to(np.uint8(0), (64,))},
        ValueError,
        ("workspace",),
    ),
    "workspace is a matrix": (
        {"workspace": f32(4, 4)},
        ValueError,
        ("workspace is (4, 4)", "one-dim"),
    ),
    # names and numbers
    "unknown mode": (
        {"split_k_mode": "paralel"},
        ValueError,
        ("paralel", "stream_k", 'Did you mean "parallel"?'),
    ),
    "mode of another case": ({"split_k_mode": "Serial"}, ValueError, ('Did you mean "serial"?',)),
    "mode is no word": ({"split_k_mode": "?"}, ValueError, ("none, serial, parallel",)),
    "mode is None": (
        {"split_k_mode": None},
        TypeError,
        ("split_k_mode must be a string", "NoneType"),
    ),
    "unknown activation": ({"activation": "geluu"}, ValueError, ('Did you mean "gelu"?',)),
    "unknown kernel": ({"kernel": "sm_90"}, ValueError, ("portable", 'Did you mean "sm90"?')),
    "kernel on the CPU": ({"kernel": "sm90"}, ValueError, ("kernel", "CPU")),
    "no slices": ({"split_k_slices": 0}, ValueError, ("split_k_slices is 0",)),
    "negative slices": ({"split_k_slices": -2}, ValueError, ("split_k_slices is -2",)),
    "absurd slices": ({"split_k_slices": 2**80}, ValueError, ("out of range",)),
    "slices are a float": ({"split_k_slices": 2.0}, TypeError, ("split_k_slices", "float")),
    "slices are a boolean": ({"split_k_slices": True}, TypeError, ("split_k_slices", "bool")),
    "slices without a mode": (
        {"split_k_mode": "none", "split_k_slices": 2},
        ValueError,
        ("split_k_slices is 2", "none"),
    ),
    "deterministic is a number": ({"deterministic": 1}, TypeError, ("deterministic", "int")),
    "alpha is a string": ({"alpha": "1"}, TypeError, ("alpha must be a number", "str")),
    "alpha is complex": ({"alpha": 1j}, TypeError, ("alpha must be a real number", "complex")),
    "alpha is an array": ({"alpha": f32(1)}, TypeError, ("float(alpha)",)),
    "alpha overflows float32": ({"alpha": 1e40}, ValueError, ("alpha is 1e+40", "float32")),
    "alpha overflows float64": ({"alpha": 10**400}, ValueError, ("alpha is too large",)),
    "beta without c": ({"beta": 2}, ValueError, ("beta is 2", "pass c")),
    "stream is a string": ({"stream": "default"}, TypeError, ("stream must be", "str")),
    "stream is a boolean": ({"stream": True}, TypeError, ("stream must be", "bool")),
    "stream is negative": ({"stream": -1}, ValueError, ("stream is -1",)),
    "stream is absurd": ({"stream": 2**70}, ValueError, ("stream is",)),
    "stream has no handle": ({"stream": Stream()}, TypeError, ("stream must be", "Stream")),
    "stream's handle is no integer": (
        {"stream": EndlessStream()},
        TypeError,
        ("stream must be", "EndlessStream"),
    ),
    # keywords
    "unknown keyword": ({"transpose": True}, TypeError, ("transpose",)),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case: str) -> None:
    given, exception, words = BAD[case]
    arguments = {"a": A, "b": B} | given
    out = arguments.get("out")
    if not isinstance(out, np.ndarray):
        out = arguments["out"] = f32(4, 5) if "out" not in given and "out_dtype" not in given else out
    before = np.array(out)
    with pytest.raises(exception) as caught:
        cleave.gemm(**arguments)
    assert type(caught.value) is exception
    remedies.check(str(caught.value), cleave.gemm)
    for word in words:
        assert word in str(caught.value)
    np.testing.assert_array_equal(np.array(out), before)


@pytest.mark.parametrize("mode", ["serial", "parallel", "cluster", "stream_k", "auto"])
def test_more_slices_than_k_are_reduced(mode: str) -> None:
    out = cleave.gemm(A, B, split_k_mode=mode, split_k_slices=7)
    np.testing.assert_array_equal(out, A @ B)
    plan = cleave.plan_gemm(A, B, split_k_mode=mode, split_k_slices=7)
    if mode != "stream_k":
        assert plan.split_k_slices == 6
        assert "split_k_slices=7 reduced to 6" in plan.why


def test_a_gpu_reduces_them_to_blocks_of_k() -> None:
    for mode in ("serial", "parallel"):
        plan = cleave.plan_problem(256, 256, 300, split_k_mode=mode, split_k_slices=2**31 - 1, device="h100")
        assert 1 < plan.split_k_slices <= 300
        assert "split_k_slices=2147483647 reduced to" in plan.why


def test_numbers_at_the_ends_of_their_types() -> None:
    most = 2**31 - 1
    with pytest.raises(ValueError, match=r"images|pixels|channels"):
        cleave.plan_conv_problem(most, (most, most), most, most, 3, device="cpu")
    spread = np.ones((4, 6), np.float32)
    offs = np.array([1, 4], np.int32)
    with pytest.raises(ValueError, match="alignment"):
        cleave.grouped_gemm(spread, np.ones((2, 6, 5), np.float32), offs, alignment=2**63 - 1, check_offsets=True)


def test_sizes_that_overflow() -> None:
    with pytest.raises(ValueError, match="2\\^31"):
        cleave.plan_problem(2**31, 8, 8, device="cpu")
    with pytest.raises(ValueError, match="m is -1"):
        cleave.plan_problem(-1, 8, 8, device="cpu")
    with pytest.raises(ValueError, match="batch is -5"):
        cleave.plan_problem(8, 8, 8, batch=-5, device="cpu")


@pytest.mark.skipif(cleave.device_count() > 0, reason="this machine has a GPU")
def test_no_gpu() -> None:
    with pytest.raises(cleave.CudaError, match="GPU"):
        cleave.plan_problem(64, 64, 64, device="cuda")


def test_plan_problem_arguments() -> None:
    for options, words in (
        ({"device": "tpu"}, 'device is "tpu"'),
        ({"device": "cuda:x"}, 'device is "cuda:x"'),
        ({"device": "cuda:-1"}, 'device is "cuda:-1"'),
        ({"layout": "tx"}, 'layout is "tx"'),
        ({"bias": "rows"}, 'bias is "rows"'),
        ({"spacing": 8}, 'bounds is "ends" and spacing 8, but grouping is "none"'),
        ({"bounds": "counts"}, 'bounds is "counts" and spacing 1, but grouping is "none"'),
        ({"grouping": "m", "spacing": 8}, 'spacing is 8, but bounds is "ends", of groups that begin anywhere'),
        ({"scale_major": "mn"}, "scale_major is mn, but no scales are found"),
        ({"sum_order": "k", "split_k_mode": "parallel"}, "sum_order is k, but split_k_mode is parallel: slices"),
        ({"sum_order": "k", "split_k_slices": 3}, "sum_order is k, but split_k_slices is 3: slices"),
    ):
        with pytest.raises(ValueError, match=words):
            cleave.plan_problem(8, 8, 8, **({"device": "cpu"} | options))


def test_cuda_error_is_a_runtime_error() -> None:
    assert issubclass(cleave.CudaError, RuntimeError)
    assert cleave.CudaError.__module__ == "cleave"
