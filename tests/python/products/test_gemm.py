"""cleave.gemm on the CPU backend against NumPy in float64, on randomly drawn problems."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import gemm_reference
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cleave

try:
    from ml_dtypes import bfloat16
except ImportError:
    bfloat16 = None

DTYPES = {"float16": np.float16, "float32": np.float32}
if bfloat16 is not None:
    DTYPES["bfloat16"] = bfloat16

CANARY = -704.0  # exact in every dtype


@dataclass
class Problem:
    a: np.ndarray
    b: np.ndarray
    out_dtype: str
    out: np.ndarray | None = None
    frame: np.ndarray | None = None  # the buffer that `out` is a view of
    options: dict[str, Any] = field(default_factory=dict)
    epilogue: dict[str, Any] = field(default_factory=dict)


def matrix(draw, rng, batch: int | None, rows: int, cols: int, dtype: str, column_major: bool | None = None):
    """A view, transposed or not, into a buffer with longer lines; and the buffer."""
    if column_major is None:
        column_major = draw(st.booleans())
    padding = draw(st.sampled_from([0, 0, 1, 8]))
    lines, length = (cols, rows) if column_major else (rows, cols)
    lead = () if batch is None else (batch,)
    # Half-integers and small: products are exact, sums are not always.
    values = np.round(rng.standard_normal((*lead, lines, length + padding)) * 4) / 2
    buffer = values.astype(DTYPES[dtype])
    view = buffer[..., :length]
    return (view.swapaxes(-1, -2) if column_major else view), buffer


@st.composite
def problems(draw) -> Problem:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    sizes = st.one_of(st.integers(0, 9), st.integers(0, 70), st.sampled_from([16, 64, 128, 129]))
    m, n = draw(sizes), draw(sizes)
    k = draw(st.one_of(st.integers(0, 9), st.integers(0, 300), st.sampled_from([64, 1024])))
    batch = draw(st.integers(0, 3))
    batch_a, batch_b = draw(
        st.sampled_from([(None, None), (batch, batch), (batch, None), (None, batch), (batch, 1), (1, batch)])
    )
    d_batch = None if batch_a is None and batch_b is None else batch
    dtype = draw(st.sampled_from(sorted(DTYPES)))
    out_dtype = draw(st.sampled_from([dtype, *sorted(DTYPES)]))

    problem = Problem(
        matrix(draw, rng, batch_a, m, k, dtype)[0],
        matrix(draw, rng, batch_b, k, n, dtype)[0],
        out_dtype,
    )
    column_major = draw(st.booleans())
    if draw(st.booleans()):
        problem.out, problem.frame = matrix(draw, rng, d_batch, m, n, out_dtype, column_major)
        problem.frame[...] = CANARY
        problem.out[...] = np.nan
    else:
        column_major = False

    options, epilogue = problem.options, problem.epilogue
    match draw(st.sampled_from(["no C", "C", "shared C", "C is D", "unread C"])):
        case "C":
            options["c"] = matrix(draw, rng, d_batch, m, n, draw(st.sampled_from(sorted(DTYPES))), column_major)[0]
        case "shared C":
            options["c"] = matrix(draw, rng, None, m, n, out_dtype, column_major)[0]
        case "C is D" if problem.out is not None:
            problem.out[...] = np.round(rng.standard_normal(problem.out.shape) * 4).astype(DTYPES[out_dtype])
            options["c"] = problem.out
        case "unread C":
            options["c"] = matrix(draw, rng, d_batch, m, n, out_dtype, column_major)[0]
            options["c"][...] = np.nan
            options["beta"] = 0.0
    if "c" in options:
        epilogue["c"] = options["c"].astype(np.float64)
        if "beta" not in options and draw(st.booleans()):
            options["beta"] = draw(st.sampled_from([1.0, -0.5, 2]))
    match draw(st.sampled_from(["none", "row", "row as matrix", "column"])):
        case "row":
            shape = (n,)
        case "row as matrix":
            shape = (1, n)
        case "column":
            shape = (m, 1)
        case _:
            shape = None
    if shape is not None and (m != 1 or shape != (1, 1)):
        options["bias"] = rng.standard_normal(shape).astype(DTYPES[draw(st.sampled_from(sorted(DTYPES)))])
        epilogue["bias"] = options["bias"].astype(np.float64)
    if draw(st.booleans()):
        options["alpha"] = draw(st.sampled_from([1.0, 0.25, -2, np.float32(0.5), 0.0]))
    options["activation"] = draw(st.sampled_from(gemm_reference.ACTIVATIONS))
    epilogue |= {key: options[key] for key in ("alpha", "beta", "activation") if key in options}

    options["split_k_mode"] = mode = draw(st.sampled_from(gemm_reference.MODES))
    if mode != "none" and k > 0 and draw(st.booleans()):
        options["split_k_slices"] = draw(st.integers(1, min(k, 16)))
    if problem.out is not None:
        options["out"] = problem.out
    elif out_dtype != dtype:
        options["out_dtype"] = out_dtype
    return problem


@settings(max_examples=400)
@given(problems())
def test_any_problem_matches_float64(problem: Problem) -> None:
    if problem.out is None and "out_dtype" not in problem.options:
        problem.out_dtype = problem.a.dtype.name
    result = cleave.gemm(problem.a, problem.b, **problem.options)

    assert type(result) is np.ndarray
    assert result.dtype.name == problem.out_dtype
    gemm_reference.assert_close(
        result.astype(np.float64),
        problem.out_dtype,
        problem.a.astype(np.float64),
        problem.b.astype(np.float64),
        **problem.epilogue,
    )
    if problem.out is not None:
        assert result is problem.out
        problem.out[...] = CANARY
        assert (problem.frame == CANARY).all(), "elements beside D were written"


@settings(max_examples=60)
@given(problems())
def test_results_are_repeatable_bit_by_bit(problem: Problem) -> None:
    before = None if problem.out is None else problem.out.copy()
    first = cleave.gemm(problem.a, problem.b, **problem.options).tobytes()
    if before is not None:
        problem.out[...] = before
    assert cleave.gemm(problem.a, problem.b, **problem.options).tobytes() == first


@settings(max_examples=60)
@given(problems())
def test_a_plan_gives_what_gemm_gives(problem: Problem) -> None:
    plan_options = {k: v for k, v in problem.options.items() if k not in ("alpha", "beta")}
    run_options = {k: v for k, v in problem.options.items() if k in ("alpha", "beta", "bias", "c", "out")}
    before = None if problem.out is None else problem.out.copy()
    plan = cleave.plan_gemm(problem.a, problem.b, **plan_options)
    from_plan = plan.run(problem.a, problem.b, **run_options).tobytes()
    if before is not None:
        problem.out[...] = before
    assert cleave.gemm(problem.a, problem.b, **problem.options).tobytes() == from_plan


@pytest.mark.parametrize("mode", gemm_reference.MODES)
@pytest.mark.parametrize("slices", [None, 1, 2, 7, 16])
def test_every_mode_and_slice_count(mode: str, slices: int | None) -> None:
    if mode == "none" and slices not in (None, 1):
        pytest.skip("mode none has one slice")
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((33, 4099), (4099, 65)))
    bias = rng.standard_normal(65).astype(np.float32)
    result = cleave.gemm(a, b, bias=bias, activation="relu", split_k_mode=mode, split_k_slices=slices)
    gemm_reference.assert_close(
        result.astype(np.float64), "float32", a.astype(np.float64), b.astype(np.float64),
        bias=bias.astype(np.float64), activation="relu",
    )  # fmt: skip


def test_nan_and_infinity_pass_through() -> None:
    a = np.array([[np.nan, 1.0], [np.inf, 1.0], [2.0, 1.0]], np.float32)
    b = np.ones((2, 1), np.float32)
    for activation in ("none", "relu"):
        result = cleave.gemm(a, b, activation=activation)
        assert np.isnan(result[0, 0])
        assert result[1, 0] == np.inf
        assert result[2, 0] == 3.0


def test_beta_zero_does_not_read_c() -> None:
    a = b = np.eye(4, dtype=np.float32)
    c = np.full((4, 4), np.nan, np.float32)
    assert (cleave.gemm(a, b, c=c, beta=0.0) == np.eye(4)).all()


def test_no_k_gives_beta_c() -> None:
    a, b, c = (
        np.zeros((3, 0), np.float32),
        np.zeros((0, 2), np.float32),
        np.ones((3, 2), np.float32),
    )
    assert (cleave.gemm(a, b, c=c, beta=3.0) == 3.0).all()
    assert (cleave.gemm(a, b) == 0.0).all()


@pytest.mark.parametrize("shape", [(0, 5, 3), (4, 5, 0), (0, 0, 0)])
def test_empty_results(shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    result = cleave.gemm(np.zeros((m, k), np.float16), np.zeros((k, n), np.float16))
    assert result.shape == (m, n) and result.dtype == np.float16
