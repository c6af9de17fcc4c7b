"""cleave.scaled_gemm on the CPU backend against NumPy in float64, on randomly drawn problems."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import gemm_reference
import numpy as np
import pytest
from gemm_reference import spread
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies_matrices import CANARY, DTYPES, random_matrix

import cleave

FLOAT8 = [name for name in ("float8_e4m3fn", "float8_e5m2") if name in DTYPES]
PAIRS = [("int8", "int8"), *itertools.product(FLOAT8, FLOAT8)]


@dataclass
class Scales:
    """A's scales. Those of B are the transpose of [N, K]'s."""

    array: np.ndarray | None
    matrix: np.ndarray  # the same in float64, with at least two dimensions

    @property
    def transposed(self) -> np.ndarray | None:
        array = self.array
        return array if array is None or array.ndim < 2 else array.swapaxes(-1, -2)


@dataclass
class Problem:
    a: np.ndarray
    b: np.ndarray
    scale_a: Scales
    scale_b: Scales
    out_dtype: str
    out: np.ndarray | None = None
    frame: np.ndarray | None = None  # the buffer that `out` is a view of
    options: dict[str, Any] = field(default_factory=dict)
    epilogue: dict[str, Any] = field(default_factory=dict)

    def operands(self) -> tuple[np.ndarray | None, ...]:
        return self.a, self.b, self.scale_a.array, self.scale_b.transposed

    def real_operands(self) -> tuple[np.ndarray, np.ndarray]:
        (m, k), n = self.a.shape[-2:], self.b.shape[-1]
        return (
            self.a.astype(np.float64) * spread(self.scale_a.matrix, m, k),
            self.b.astype(np.float64) * spread(self.scale_b.matrix, n, k).swapaxes(-1, -2),
        )


def random_scales(draw, rng, kind: str, batch: int | None, rows: int, k: int) -> Scales:
    if kind == "none":
        return Scales(None, np.ones((1, 1)))
    if kind == "vector":
        shape = draw(st.sampled_from([(), (1,), (1, 1), (rows,), (rows, 1)]))
    else:
        shape = (draw(st.sampled_from([rows, -(-rows // 128)])), -(-k // 128))
    if batch is not None and len(shape) == 2 and draw(st.booleans()):
        shape = (draw(st.sampled_from([1, batch])), *shape)
    # A NaN beside each scale, a negative one among them.
    values = np.full((*shape, 2), np.nan, np.float32)[..., 0]
    values[...] = rng.uniform(-0.5, 2.0, shape)
    values = draw(st.sampled_from([np.asarray, np.ascontiguousarray, np.asfortranarray]))(values)
    values = values.reshape(shape)  # ascontiguousarray makes vectors of scalars
    matrix = values.reshape(-1, 1) if values.ndim < 2 else values
    return Scales(values, matrix.astype(np.float64))


@st.composite
def problems(draw) -> Problem:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    sizes = st.one_of(st.integers(0, 9), st.integers(0, 70), st.sampled_from([64, 128, 129, 260]))
    m, n = draw(sizes), draw(sizes)
    k = draw(st.one_of(st.integers(0, 9), st.integers(0, 400), st.sampled_from([128, 256, 1024])))
    batch = draw(st.integers(0, 3))
    batch_a, batch_b = draw(st.sampled_from([(None, None), (None, None), (batch, batch), (batch, None), (1, batch)]))
    d_batch = None if batch_a is None and batch_b is None else batch
    a_type, b_type = draw(st.sampled_from(PAIRS))
    kind = draw(st.sampled_from(["none", "vector", "vector", "block", "block"]))
    problem = Problem(
        random_matrix(draw, rng, a_type, batch_a, m, k)[0],
        random_matrix(draw, rng, b_type, batch_b, k, n)[0],
        random_scales(draw, rng, kind, d_batch, m, k),
        random_scales(draw, rng, kind, d_batch, n, k),
        draw(st.sampled_from(sorted(DTYPES))),
    )

    options, epilogue = problem.options, problem.epilogue
    options["out_dtype"] = problem.out_dtype
    if draw(st.booleans()):
        problem.out, problem.frame = random_matrix(draw, rng, problem.out_dtype, d_batch, m, n)
        problem.frame[...] = CANARY
        options["out"] = problem.out
    if np.dtype(DTYPES[problem.out_dtype]).itemsize == 1 and draw(st.booleans()):
        epilogue["scale_d"] = draw(st.sampled_from([0.25, 3.0]))
        shape = draw(st.sampled_from([(), (1,), (1, 1)]))
        options["scale_d"] = np.full(shape, epilogue["scale_d"], np.float32)
    if a_type == "int8" and kind != "block" and draw(st.booleans()):
        zero = options["azp_adj"] = rng.integers(-9999, 9999, n, dtype=np.int32)
        if draw(st.booleans()):
            shape = draw(st.sampled_from([(m,), (m, 1)]))
            options["azp"] = rng.integers(-128, 128, shape, dtype=np.int32)
            zero = zero * options["azp"].reshape(m, 1)
        zero = np.broadcast_to(zero, (m, n)) * problem.scale_a.matrix
        if k > 0:  # of the sum of nothing, nothing is taken
            epilogue["zero"] = zero * problem.scale_b.matrix.swapaxes(-1, -2)
    if draw(st.booleans()):
        shape = draw(st.sampled_from([(n,), (1, n)]))
        dtype = draw(st.sampled_from([np.float16, np.float32]))
        options["bias"] = rng.standard_normal(shape).astype(dtype)
        epilogue["bias"] = options["bias"].astype(np.float64)
    if draw(st.booleans()):
        options["alpha"] = epilogue["alpha"] = draw(st.sampled_from([0.25, -2.0]))
    options["activation"] = draw(st.sampled_from(gemm_reference.ACTIVATIONS))
    epilogue["activation"] = options["activation"]
    options["use_fast_accum"] = a_type != "int8" and draw(st.booleans())
    options["split_k_mode"] = mode = draw(st.sampled_from(gemm_reference.MODES))
    if mode != "none" and k > 0 and draw(st.booleans()):
        options["split_k_slices"] = draw(st.integers(1, min(k, 16)))
    return problem


@settings(max_examples=600)
@given(problems())
def test_any_problem_matches_float64(problem: Problem) -> None:
    result = cleave.scaled_gemm(*problem.operands(), **problem.options)
    assert type(result) is np.ndarray
    assert result.dtype.name == problem.out_dtype
    gemm_reference.assert_close(
        result.astype(np.float64), problem.out_dtype, *problem.real_operands(), **problem.epilogue
    )
    if problem.out is not None:
        assert result is problem.out
        problem.out[...] = CANARY
        assert (problem.frame == CANARY).all(), "elements beside D were written"


@settings(max_examples=100)
@given(problems())
def test_a_plan_gives_what_scaled_gemm_gives(problem: Problem) -> None:
    a, b, scale_a, scale_b = problem.operands()
    alpha = problem.options.pop("alpha", 1.0)
    plan = cleave.plan_scaled_gemm(a, b, scale_a, scale_b, **problem.options)
    arrays = {
        name: problem.options[name] for name in ("out", "bias", "scale_d", "azp", "azp_adj") if name in problem.options
    }
    from_plan = plan.run(a, b, scale_a=scale_a, scale_b=scale_b, alpha=alpha, **arrays).tobytes()
    direct = cleave.scaled_gemm(a, b, scale_a, scale_b, alpha=alpha, **problem.options)
    assert direct.tobytes() == from_plan


def int8(*shape: int, low: int = -128) -> np.ndarray:
    return np.random.default_rng(len(shape) + sum(shape)).integers(low, 128, shape, dtype=np.int8)


def f32(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


@pytest.mark.parametrize("mode", gemm_reference.MODES)
def test_int8_is_exact(mode: str) -> None:
    """Whatever the sums, and far beyond float32's 24 bits."""
    slices = None if mode in ("none", "auto") else 5
    a, b = int8(33, 70000, low=100), int8(70000, 17, low=100)
    expected = a.astype(np.int64) @ b.astype(np.int64)
    assert expected.min() > 2**29
    options = {"split_k_mode": mode, "split_k_slices": slices}
    for d in (cleave.gemm(a, b, **options), cleave.scaled_gemm(a, b, None, None, **options)):
        assert d.dtype == np.int32
        np.testing.assert_array_equal(d, expected)
    azp, azp_adj = np.arange(33, dtype=np.int32), b.sum(0, dtype=np.int32)
    d = cleave.scaled_gemm(a, b, None, None, azp=azp, azp_adj=azp_adj, out_dtype="int32", **options)
    np.testing.assert_array_equal(d, (a - azp[:, None].astype(np.int64)) @ b.astype(np.int64))


@pytest.mark.parametrize("mode", gemm_reference.MODES)
def test_integers_are_added_to_integers(mode: str) -> None:
    slices = None if mode in ("none", "auto") else 5
    a, b = int8(33, 70000, low=100), int8(70000, 17, low=100)
    sums = a.astype(np.int64) @ b.astype(np.int64)
    c = np.random.default_rng(3).integers(-(2**31), 2**31, (33, 17), dtype=np.int32)
    options = {"split_k_mode": mode, "split_k_slices": slices}
    for alpha, beta in ((1, 1), (1, -1), (-3, 7), (2, 0)):
        for function in (cleave.gemm, lambda a, b, **k: cleave.scaled_gemm(a, b, None, None, **k)):
            expected = (alpha * sums + beta * c.astype(np.int64)).astype(np.int32)  # they wrap
            d = function(a, b, c=c, alpha=alpha, beta=beta, **options)
            assert d.dtype == np.int32
            np.testing.assert_array_equal(d, expected)
            d = c.copy()
            assert function(a, b, c=d, out=d, alpha=alpha, beta=beta, **options) is d
            np.testing.assert_array_equal(d, expected)


def test_static_b_is_a_promise_alone() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-99, 99, shape).astype(np.int8) for shape in ((5, 64), (9, 64)))
    one = np.ones(1, np.float32)
    expected = cleave.scaled_gemm(a, b.T, one, one, out_dtype="float32")
    np.testing.assert_array_equal(cleave.scaled_gemm(a, b.T, one, one, out_dtype="float32", static_b=True), expected)
    real = cleave.gemm(a.astype(np.float32), b.T.astype(np.float32), static_b=True)
    np.testing.assert_array_equal(real, expected)
    plan = cleave.plan_scaled_gemm(a, b.T, one, one, out_dtype="float32", static_b=True)
    np.testing.assert_array_equal(plan.run(a, b.T, scale_a=one, scale_b=one), expected)
    with pytest.raises(TypeError, match="static_b must be True or False"):
        cleave.scaled_gemm(a, b.T, one, one, static_b=1)


def test_factors_of_integers_are_whole_numbers() -> None:
    a, b = int8(4, 20), int8(20, 5)
    c, d = np.ones((4, 5), np.int32), np.full((4, 5), 7, np.int32)
    for options, words in (
        ({"alpha": 2}, "alpha is 2, but d is int32, which without a c"),
        ({"c": c, "alpha": 0.5}, "alpha is 0.5, but d is int32: .* whole number"),
        ({"c": c, "beta": 1.5}, "beta is 1.5, but d is int32: .* whole number"),
        ({"c": c, "beta": 2.0**31}, "beta is .*, but d is int32: .* whole number"),
    ):
        with pytest.raises(ValueError, match=words):
            cleave.gemm(a, b, out=d, **options)
    for other in (np.ones((4, 5), np.float32), np.ones((4, 5), np.int8)):
        with pytest.raises(TypeError, match=rf"c is {other.dtype}, but d is int32.* Convert c"):
            cleave.gemm(a, b, c=other, out=d)
    with pytest.raises(TypeError, match=r"c is int32; .* or of d's type, float32. Convert c"):
        cleave.gemm(a, b, c=c, out_dtype="float32")
    assert (d == 7).all()


@pytest.mark.parametrize("dtype", ["int8", *FLOAT8])
def test_c_of_the_type_of_a_narrow_d(dtype: str) -> None:
    a, b = int8(33, 10, low=-3) // 40, int8(10, 17, low=-3) // 40
    c = np.random.default_rng(3).integers(-9, 10, (33, 17)).astype(DTYPES[dtype])
    expected = a.astype(np.float64) @ b.astype(np.float64) - 2 * c.astype(np.float64)
    expected = expected.astype(np.float32).astype(DTYPES[dtype])
    one = f32(1)
    d = cleave.scaled_gemm(a, b, one, one, c=c, beta=-2, out_dtype=dtype)
    np.testing.assert_array_equal(d.view(np.uint8), expected.view(np.uint8))


@pytest.mark.parametrize("dtype", ["int8", *FLOAT8])
@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_the_sum_of_nothing_is_zero_whatever_its_scales(dtype: str, value: float) -> None:
    a, b = np.zeros((32, 0), DTYPES[dtype]), np.zeros((0, 48), DTYPES[dtype])
    c, bias = np.full((32, 48), 3, np.float32), np.arange(48, dtype=np.float32)
    one = np.full((), value, np.float32)
    for scale_a, scale_b in ((one, one), (f32(32, 1) * one, f32(1, 48) * one)):
        d = cleave.scaled_gemm(a, b, scale_a, scale_b, out_dtype="float32")
        assert (d == 0).all()
        d = cleave.scaled_gemm(a, b, scale_a, scale_b, c=c, bias=bias, alpha=value, out_dtype="float32")
        np.testing.assert_array_equal(d, c + bias)


@pytest.mark.parametrize("mode", gemm_reference.MODES)
def test_epilogue_is_applied_once(mode: str) -> None:
    """Every value here is exact in float32, so that D is known bit by bit."""
    slices = None if mode in ("none", "auto") else 3
    a, b = int8(40, 300), int8(300, 24)
    scale_a = 2.0 ** np.arange(-20, 20, dtype=np.float32)[:, None]
    scale_b = 2.0 ** np.arange(-12, 12, dtype=np.float32)[None, :]
    product = (a.astype(np.float64) @ b.astype(np.float64)) * scale_a * scale_b
    d = cleave.scaled_gemm(
        a, b, scale_a, scale_b, alpha=-0.5, out_dtype="float32", activation="relu",
        split_k_mode=mode, split_k_slices=slices,
    )  # fmt: skip
    np.testing.assert_array_equal(d, np.maximum(-0.5 * product, 0))


@pytest.mark.parametrize("mode", gemm_reference.MODES)
def test_amax_is_a_running_maximum(mode: str) -> None:
    slices = None if mode in ("none", "auto") else 3
    a, b = int8(70, 300), int8(300, 90)
    scales = f32(70, 1) / 512, f32(1)
    amax = np.zeros(1, np.float32)
    options = {"activation": "gelu", "split_k_mode": mode, "split_k_slices": slices}
    values = cleave.scaled_gemm(a, b, *scales, out_dtype="float32", amax=amax, **options)
    assert amax[0] == abs(values).max() > 0
    once = amax[0]
    cleave.scaled_gemm(a, b, *scales, out_dtype="float16", amax=amax, alpha=0.5, **options)
    assert amax[0] == once
    amax[0] = 0
    scale_d = np.float32(once / 127)
    d = cleave.scaled_gemm(
        a, b, *scales, out_dtype="int8", scale_d=scale_d, amax=amax, **options
    )  # fmt: skip
    assert amax[0] == once and abs(d.astype(int)).max() == 127


def test_outputs_of_8_bits_saturate() -> None:
    a, b = np.full((2, 64), 127, np.int8), np.full((64, 3), 127, np.int8)
    a[1] = -127
    for name in DTYPES.keys() & {"int8", "float8_e4m3fn", "float8_e5m2"}:
        low, high = gemm_reference.RANGE[name]
        d = cleave.scaled_gemm(a, b, f32(1), f32(1), out_dtype=name).astype(np.float64)
        assert (d == [[high], [low]]).all()


@pytest.mark.parametrize("name", ["int8", "float8_e4m3fn", "float8_e5m2"])
def test_outputs_with_a_scale_per_row(name: str) -> None:
    if name not in DTYPES:
        pytest.skip("needs ml_dtypes")
    a, b, scale_a, scale_b = int8(40, 300), int8(300, 24), f32(40, 1) / 7, f32(1, 24) / 9
    scale_a[3] = 0
    exact = (a * scale_a.astype(np.float64)) @ (b * scale_b.astype(np.float64)) + 1
    options = {"bias": f32(24), "split_k_mode": "parallel", "split_k_slices": 3}
    scales = scale_a, scale_b
    q, scale = cleave.scaled_gemm(a, b, *scales, out_dtype=name, out_scale="row", **options)
    assert q.dtype.name == name and scale.dtype == np.float32 and scale.shape == (40, 1)
    largest = gemm_reference.RANGE[name][1]
    np.testing.assert_allclose(scale * largest, abs(exact).max(1, keepdims=True), rtol=2**-8)
    steps = abs(q.astype(np.float64) - exact / scale)
    if name == "int8":
        assert steps.max() < 0.501
    else:
        unit = gemm_reference.ROUNDOFF[name]
        assert (steps <= 1.1 * unit * abs(exact / scale) + gemm_reference.SMALLEST[name]).all()
    out = np.empty_like(q)
    again = cleave.scaled_gemm(a, b, *scales, out=out, out_scale="row", **options)
    assert again[0] is out and out.tobytes() == q.tobytes()
    assert again[1].tobytes() == scale.tobytes()


def test_nans_propagate_and_zeros_annihilate() -> None:
    a, b = int8(4, 200, low=1), int8(200, 3, low=1)
    scale_a = np.array([1, np.nan, 0, np.inf], np.float32)
    d = cleave.scaled_gemm(a, b, scale_a, f32(3), out_dtype="float32")
    assert (d[0] > 0).all() and np.isnan(d[1]).all() and (d[2] == 0).all() and np.isinf(d[3]).all()
    blocks = f32(4, 2)
    blocks[1, 1] = np.nan
    blocks[2] = 0
    d = cleave.scaled_gemm(a, b, blocks, f32(2, 1), out_dtype="float32")
    assert (d[0] > 0).all() and np.isnan(d[1]).all() and (d[2] == 0).all()


def test_no_k_gives_the_epilogue() -> None:
    a, b, bias = int8(3, 0), int8(0, 2), f32(2)
    for scales in ((f32(3), f32(2)), (f32(3, 0), f32(0, 2)), (None, None)):
        assert (cleave.scaled_gemm(a, b, *scales, bias=bias, out_dtype="float32") == 1).all()


@pytest.mark.parametrize("shape", [(0, 5, 3), (4, 5, 0), (0, 0, 0)])
def test_empty_results(shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    amax = np.full(1, 7, np.float32)
    d = cleave.scaled_gemm(int8(m, k), int8(k, n), f32(m), f32(n), out_dtype="int8", amax=amax)
    assert d.shape == (m, n) and d.dtype == np.int8 and amax[0] == 7


def test_default_types() -> None:
    pytest.importorskip("ml_dtypes")
    a, b = int8(3, 8), int8(8, 2)
    assert cleave.scaled_gemm(a, b, f32(1), f32(1)).dtype.name == "bfloat16"
    assert cleave.scaled_gemm(a, b, None, None).dtype.name == "int32"
    a, b = (x.astype(DTYPES["float8_e5m2"]) for x in (a, b))
    assert cleave.scaled_gemm(a, b, None, None).dtype.name == "bfloat16"
    assert cleave.gemm(a, b).dtype.name == "bfloat16"


@pytest.mark.parametrize("name", ["float8_e4m3fn", "e4m3", "float8_e5m2", "e5m2", "int8", "i8", "bfloat16", "bf16"])
def test_out_dtype_spellings(name: str) -> None:
    pytest.importorskip("ml_dtypes")
    d = cleave.scaled_gemm(int8(3, 8), int8(8, 2), f32(1), f32(1), out_dtype=name)
    assert cleave._core.dtype_name(name) == d.dtype.name
    again = cleave.scaled_gemm(int8(3, 8), int8(8, 2), f32(1), f32(1), out_dtype=d.dtype)
    assert again.dtype == d.dtype


def test_other_8_bit_types_are_refused() -> None:
    other = pytest.importorskip("ml_dtypes").float8_e4m3b11fnuz
    with pytest.raises(TypeError, match=r"a is float8_e4m3b11fnuz; it must be .*float8_e4m3fn"):
        cleave.scaled_gemm(int8(3, 8).astype(other), int8(8, 2), f32(1), f32(1))
