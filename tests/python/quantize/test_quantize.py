"""cleave.quantize on the CPU backend against its definition in float64, and cleave.smooth."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import numpy as np
import pytest
import remedies
from hypothesis import given, settings
from hypothesis import strategies as st

import cleave

# Rows and columns that share a scale; None: all of them.
GRANULARITIES: dict[str, tuple[int | None, int | None]] = {
    "tensor": (None, None),
    "row": (1, None),
    "block_1x128": (1, 128),
    "block_128x128": (128, 128),
}
CANARY = 77


def groups(rows: int, cols: int, granularity: str) -> tuple[int, int]:
    """Rows and columns that share a scale."""
    height, width = GRANULARITIES[granularity]
    return height or max(rows, 1), width or max(cols, 1)


def scale_shape(rows: int, cols: int, granularity: str) -> tuple[int, int]:
    height, width = GRANULARITIES[granularity]
    return -(-rows // height) if height else 1, -(-cols // width) if width else 1


def spread(scale: np.ndarray, shape: tuple[int, int], granularity: str) -> np.ndarray:
    """The scale of each element, in float64."""
    height, width = groups(*shape, granularity)
    spread = np.repeat(np.repeat(scale.astype(np.float64), height, 0), width, 1)
    return spread[: shape[0], : shape[1]]


def framed(shape: tuple[int, int], dtype: Any, padding: int) -> tuple[np.ndarray, np.ndarray]:
    """A view whose rows are padded, and the buffer that it is a view of."""
    buffer = np.full((shape[0], shape[1] + padding), CANARY, dtype)
    return buffer[:, : shape[1]], buffer


@settings(max_examples=200)
@given(st.data())
def test_int8_is_the_nearest(data) -> None:
    draw = data.draw
    rows = draw(st.one_of(st.integers(0, 9), st.sampled_from([128, 130, 200])))
    cols = draw(st.one_of(st.integers(0, 9), st.integers(0, 300), st.sampled_from([128, 256])))
    granularity = draw(st.sampled_from(sorted(GRANULARITIES)))
    symmetric = draw(st.booleans()) or granularity.startswith("block")
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    x, _ = framed((rows, cols), draw(st.sampled_from([np.float16, np.float32])), draw(
        st.sampled_from([0, 0, 3, 8])))  # fmt: skip
    x[...] = rng.standard_normal((rows, cols)) * 2.0 ** rng.integers(-4, 8, (rows, 1)) + 0.5
    options: dict[str, Any] = {"symmetric": symmetric}
    divisor = np.ones(cols, np.float32)
    if draw(st.booleans()):
        divisor = options["smooth"] = (2.0 ** rng.standard_normal(cols)).astype(np.float32)
    frame = None
    if draw(st.booleans()):
        options["out"], frame = framed((rows, cols), np.int8, 5)
    shape = scale_shape(rows, cols, granularity)
    if draw(st.booleans()):
        options["scale_out"] = np.zeros(shape[::-1], np.float32).T
    else:
        options["scale_major"] = draw(st.sampled_from(["k", "mn"]))

    q, scale, *rest = cleave.quantize(x, "int8", granularity, **options)
    assert q.dtype == np.int8 and q.shape == (rows, cols)
    assert scale.dtype == np.float32 and scale.shape == shape
    assert q is options.get("out", q) and scale is options.get("scale_out", scale)
    if frame is not None:
        assert (frame[:, cols:] == CANARY).all()
    zero = np.zeros((rows, 1))
    if not symmetric:
        assert rest[0].dtype == np.int32 and rest[0].shape == (shape[0], 1)
        zero = spread(rest[0], (rows, cols), granularity)

    value = x.astype(np.float64) / divisor
    step = spread(scale, (rows, cols), granularity)
    bound = 0.5 * step * (1 + 1e-4) + 2e-6 * abs(value)
    assert (abs(value - step * (q - zero)) <= bound).all()
    if value.size:
        height, width = groups(rows, cols, granularity)
        for i in range(shape[0]):
            for j in range(shape[1]):
                group = value[i * height : (i + 1) * height, j * width : (j + 1) * width]
                reach = abs(group).max() / 127 if symmetric else (max(group.max(), 0) - min(group.min(), 0)) / 255
                assert scale[i, j] == pytest.approx(reach, rel=1e-6)


def test_defaults_are_int8_by_row() -> None:
    x = np.array([[1.0, -2.0], [0.0, 0.0]], np.float32)
    q, scale = cleave.quantize(x)
    assert q.tolist() == [[64, -127], [0, 0]]  # 63.5 rounds to the even neighbour
    np.testing.assert_array_equal(scale, np.array([[2 / 127], [0]], np.float32))


def test_scale_major() -> None:
    x = np.ones((5, 300), np.float32)
    assert cleave.quantize(x, "int8", "block_1x128")[1].strides == (12, 4)
    assert cleave.quantize(x, "int8", "block_1x128", scale_major="mn")[1].strides == (4, 20)


def test_given_scales() -> None:
    x = np.array([[1.0, 2.0, 1e9], [3.0, -4.0, -1e9]], np.float32)
    for scale in (np.float32([0.5]), np.full((1, 1), 0.5, np.float32), np.float32(0.5).reshape(())):
        q, same = cleave.quantize(x, "int8", "tensor", scale=scale)
        assert same is scale
        assert q.tolist() == [[2, 4, 127], [6, -8, -128]]
    for scale in (np.float32([0.5, 1.0]), np.float32([[0.5], [1.0]]), np.float32([0.5, 9, 1])[::2]):
        assert cleave.quantize(x, scale=scale)[0].tolist() == [[2, 4, 127], [3, -4, -128]]
    q, _, zero = cleave.quantize(x, scale=np.float32([0.5, 1.0]), zero=np.int32([3, -7]), symmetric=False)
    assert q.tolist() == [[5, 7, 127], [-4, -11, -128]]
    assert zero.tolist() == [3, -7]


def test_nan_stays_in_its_group() -> None:
    x = np.ones((3, 4), np.float32)
    x[1, 2] = np.nan
    q, scale = cleave.quantize(x)
    assert np.isnan(scale[:, 0]).tolist() == [False, True, False]
    assert q.tolist() == [[127] * 4, [0] * 4, [127] * 4]


@pytest.mark.parametrize("granularity", GRANULARITIES)
@pytest.mark.parametrize("major", ["k", "mn"])
def test_scales_that_are_powers_of_two(major: str, granularity: str) -> None:
    rng = np.random.default_rng(3)
    x = (rng.standard_normal((150, 300)) * np.exp2(rng.integers(-3, 4, (150, 1)))).astype(np.float32)
    call = partial(cleave.quantize, dtype="int8", granularity=granularity, scale_major=major)
    both_ways = {"transpose": True} if granularity.startswith("block") else {}
    found = call(x, **both_ways)
    rounded = call(x, use_ue8m0=True, **both_ways)
    for scale, powers in zip(found[1::2], rounded[1::2], strict=True):
        np.testing.assert_array_equal(powers, np.exp2(np.ceil(np.log2(scale))))
    np.testing.assert_array_equal(rounded[0], np.rint(x / spread(rounded[1], x.shape, granularity)))
    if both_ways:
        wide = spread(rounded[3], x.T.shape, granularity)
        np.testing.assert_array_equal(rounded[2], np.rint(x.T / wide))


@pytest.mark.parametrize("options", [{"scale": np.ones((1, 1), np.float32)}, {"symmetric": False}])
def test_scales_that_are_not_powers_of_two(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="use_ue8m0"):
        cleave.quantize(np.ones((4, 8), np.float32), "int8", "tensor", use_ue8m0=True, **options)


# --- torch, which has 8-bit floats ---


@pytest.mark.parametrize("granularity", GRANULARITIES)
@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2", "int8"])
@pytest.mark.parametrize("source", ["float16", "bfloat16", "float32"])
def test_torch_rounds_the_same(source: str, dtype: str, granularity: str) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    x = (torch.randn(200, 330) * torch.randn(200, 1).exp2()).to(getattr(torch, source))
    q, scale = cleave.quantize(x, dtype, granularity)
    assert q.dtype == getattr(torch, dtype) and scale.dtype == torch.float32
    inverse = torch.from_numpy(spread(1 / scale.numpy(), (200, 330), granularity).astype(np.float32))
    value = x.float() * inverse
    if dtype == "int8":
        expected = value.round().to(torch.int8)
    else:
        most = torch.finfo(q.dtype).max
        expected = value.clamp(-most, most).to(q.dtype)
    assert torch.equal(q.view(torch.int8), expected.view(torch.int8))


def assert_same(made: tuple[Any, ...], expected: tuple[Any, ...]) -> None:
    import torch

    for one, other in zip(made, expected, strict=True):
        assert torch.equal(one.view(torch.int8), other.view(torch.int8))


@pytest.mark.parametrize("granularity", ["block_1x128", "block_128x128"])
def test_transposes(granularity: str) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    x = torch.randn(260, 150)
    q, scale, q_t, scale_t = cleave.quantize(x, "float8_e4m3fn", granularity, transpose=True)
    assert_same(cleave.quantize(x, q.dtype, granularity), (q, scale))
    assert_same(cleave.quantize(x.T.contiguous(), q.dtype, granularity), (q_t, scale_t))


def test_numpy_has_8_bit_floats_by_ml_dtypes() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = np.float32([[1, -2, 4]])
    for dtype in (ml_dtypes.float8_e4m3fn, "float8_e4m3fn"):
        q, scale = cleave.quantize(x, dtype)
        assert q.dtype == ml_dtypes.float8_e4m3fn
        assert q.astype(np.float32).tolist() == [[112, -224, 448]]
        assert scale[0, 0] == np.float32(4 / 448)


def test_dtypes_of_torch() -> None:
    torch = pytest.importorskip("torch")
    x = torch.ones(2, 3)
    assert cleave.quantize(x, torch.float8_e5m2)[0].dtype == torch.float8_e5m2
    out = torch.empty(2, 3, dtype=torch.float8_e4m3fn)
    assert cleave.quantize(x, "e4m3", out=out)[0] is out
    with pytest.raises(ValueError, match=r"x requires grad.*x\.detach\(\)"):
        cleave.quantize(torch.ones(2, 3, requires_grad=True))


def test_a_scaled_product() -> None:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((20, 260)), rng.standard_normal((30, 260))
    for granularity in ("tensor", "row", "block_1x128"):
        a, scale_a = cleave.quantize(x.astype(np.float32), "int8", granularity)
        b, scale_b = cleave.quantize(w.astype(np.float32), "int8", granularity)
        d = cleave.scaled_gemm(a, b.T, scale_a, scale_b.T, out_dtype="float32")
        exact = x @ w.T
        assert np.linalg.norm(d - exact) < 0.02 * np.linalg.norm(exact)


def test_a_scaled_product_with_zero_points() -> None:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((20, 260)) + 3, rng.standard_normal((30, 260))
    a, scale_a, zero = cleave.quantize(x.astype(np.float32), symmetric=False)
    b, scale_b = cleave.quantize(w.astype(np.float32))
    sums = b.sum(1, dtype=np.int32)
    d = cleave.scaled_gemm(a, b.T, scale_a, scale_b.T, azp=zero, azp_adj=sums, out_dtype="float32")
    exact = x @ w.T
    assert np.linalg.norm(d - exact) < 0.02 * np.linalg.norm(exact)


def test_plans() -> None:
    plan = cleave.plan_quantize(np.ones((4, 8), np.float32), "int8", "tensor")
    plan.prepare()
    assert plan.kernel_name == "cpu" and plan.kernel_source == ""
    assert repr(plan) == "<cleave.QuantizePlan cpu>"


def test_numpy_alone_has_no_8_bit_floats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(ValueError, match="pip install ml_dtypes, or ask for int8") as caught:
        cleave.quantize(np.ones((4, 8), np.float32), "float8_e4m3fn")
    remedies.check(str(caught.value), cleave.quantize)
    with pytest.raises(ValueError, match="out_dtype='float32'") as caught:
        a = np.ones((4, 8), np.float16)
        cleave.gemm(a, a.T.copy(), out_dtype="bfloat16")
    remedies.check(str(caught.value), cleave.gemm)


# --- bad input ---

X = np.ones((4, 256), np.float32)

# What is passed beside or instead of X, the exception, and words of its message.
BAD: dict[str, tuple[dict[str, Any], type[Exception], tuple[str, ...]]] = {
    "x is a list": ({"x": [[1.0]]}, TypeError, ("x must be an array", "list")),
    "x has a batch": ({"x": np.ones((2, 4, 8), np.float32)}, ValueError, ("x has 3 dim", "have 2")),
    "x is float64": ({"x": np.ones((4, 8))}, TypeError, ("x is float64", "convert")),
    "x is int8": ({"x": np.ones((4, 8), np.int8)}, TypeError, ("x is int8",)),
    "x is transposed": ({"x": X.T}, ValueError, ("x has strides (1, 256)", "contiguous")),
    "x skips columns": ({"x": X[:, ::2]}, ValueError, ("x has strides (256, 2)",)),
    "out skips columns": (
        {"out": np.empty((len(X), 2 * X.shape[1]), np.int8)[:, ::2]},
        ValueError,
        ("out has strides (512, 2)", "Pass a contiguous out, and copy the result from it"),
    ),
    "x runs backwards": ({"x": X[::-1]}, ValueError, ("x.stride_row is -256",)),
    "dtype is float16": ({"dtype": "float16"}, TypeError, ("dtype is float16", "float8_e5m2")),
    "dtype is unknown": ({"dtype": "int9"}, TypeError, ("dtype is int9",)),
    "granularity has a typo": (
        {"granularity": "block_1x182"},
        ValueError,
        ("granularity", 'Did you mean "block_1x128"?'),
    ),
    "granularity is a number": ({"granularity": 128}, TypeError, ("granularity must be a string",)),
    "symmetric is a number": ({"symmetric": 0}, TypeError, ("symmetric must be True or False",)),
    "zero points of blocks": (
        {"symmetric": False, "granularity": "block_1x128"},
        ValueError,
        ("symmetric is false", "block_1x128"),
    ),
    "zero points of floats": (
        {"symmetric": False, "dtype": "float8_e4m3fn", "out": None},
        ValueError,
        ("only int8 has zero points",),
    ),
    "transpose of rows": ({"transpose": True}, ValueError, ("has_transpose", "row")),
    "transpose with scales": (
        {"transpose": True, "granularity": "block_1x128", "scale": np.ones((4, 2), np.float32)},
        ValueError,
        ("always found",),
    ),
    "scale has another shape": (
        {"scale": np.ones((3, 1), np.float32)},
        ValueError,
        ("scale is (3, 1)", "(4, 1)"),
    ),
    "scale is float64": ({"scale": np.ones((4, 1))}, TypeError, ("scale is float64",)),
    "scale_out has another shape": (
        {"granularity": "block_128x128", "scale_out": np.ones((2, 1), np.float32)},
        ValueError,
        ("scale_out is (2, 1)", "(1, 2)"),
    ),
    "scale and scale_out": (
        {"scale": np.ones(4, np.float32), "scale_out": np.ones(4, np.float32)},
        ValueError,
        ("scale_out is given beside scale",),
    ),
    "scale_out repeats": (
        {"scale_out": np.lib.stride_tricks.as_strided(np.ones(1, np.float32), (4, 1), (0, 4))},
        ValueError,
        ("scale overlaps itself",),
    ),
    "scale_out is read-only": (
        {"scale_out": np.broadcast_to(np.float32(1), (4, 1))},
        ValueError,
        ("scale_out is read-only",),
    ),
    "scale_major": ({"scale_major": "m"}, ValueError, ('scale_major is "m"', "of k, mn")),
    "zero without scale": (
        {"zero": np.ones(4, np.int32), "symmetric": False},
        ValueError,
        ("zero is given",),
    ),
    "scale without zero": (
        {"scale": np.ones(4, np.float32), "symmetric": False},
        ValueError,
        ("zero is missing",),
    ),
    "zero has another length": (
        {"scale": np.ones(4, np.float32), "symmetric": False, "zero": np.ones(3, np.int32)},
        ValueError,
        ("zero is (3,)", "(4,)"),
    ),
    "zero is float32": (
        {"scale": np.ones(4, np.float32), "symmetric": False, "zero": np.ones(4, np.float32)},
        TypeError,
        ("zero is float32",),
    ),
    "smooth has another length": (
        {"smooth": np.ones(255, np.float32)},
        ValueError,
        ("smooth is (255,)", "(256,)"),
    ),
    "smooth has a stride": ({"smooth": np.ones(512, np.float32)[::2]}, ValueError, ("contiguous",)),
    "out has another shape": (
        {"out": np.zeros((4, 255), np.int8)},
        ValueError,
        ("out is (4, 255)", "(4, 256)"),
    ),
    "out has another dtype": (
        {"out": np.zeros((4, 256), np.int8), "dtype": "float8_e4m3fn"},
        TypeError,
        ("out is int8", "dtype is float8_e4m3fn"),
    ),
    "out is float32": ({"out": np.zeros((4, 256), np.float32)}, TypeError, ("out is float32",)),
    "out is x": ({"out": X.view(np.int8)[:, :256]}, ValueError, ("q overlaps x", "(q is out)")),
    "stream is a string": ({"stream": "default"}, TypeError, ("stream must be",)),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case: str) -> None:
    given, exception, words = BAD[case]
    out = np.full((4, 256), CANARY, np.int8)
    arguments = {"x": X, "out": out} | given
    with pytest.raises(exception) as caught:
        cleave.quantize(**arguments)
    assert type(caught.value) is exception
    for word in words:
        assert word in str(caught.value)
    assert (out == CANARY).all()


# --- smoothing ---


def test_smooth_leaves_the_product_alone() -> None:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((50, 40)), rng.standard_normal((30, 40)).astype(np.float32)
    divisors, folded = cleave.smooth(abs(x).max(0).astype(np.float32), w)
    assert divisors.dtype == folded.dtype == np.float32
    np.testing.assert_allclose((x / divisors) @ folded.T, x @ w.T, rtol=1e-4, atol=1e-4)


def test_smooth_follows_its_definition() -> None:
    amax, w = np.float32([4, 9]), np.float32([[1, -4], [-2, 3]])
    for alpha in (0.0, 0.25, 1.0):
        divisors, folded = cleave.smooth(amax, w, alpha)
        expected = amax**alpha / np.float32([2, 4]) ** (1 - alpha)
        np.testing.assert_allclose(divisors, expected, rtol=1e-6)
        np.testing.assert_allclose(folded, w * expected, rtol=1e-6)


def test_silent_channels_keep_the_divisor_one() -> None:
    divisors, folded = cleave.smooth(np.float32([0, 4, 0]), np.float32([[1, 0, 0]]))
    assert divisors.tolist() == [1, 1, 1]
    assert folded.tolist() == [[1, 0, 0]]
    assert cleave.smooth(np.float32([2, 4]), np.zeros((0, 2), np.float32))[0].tolist() == [1, 1]


def test_smooth_tames_outliers() -> None:
    """A few channels of large activations cost all others their precision, unless smoothed."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((64, 256)).astype(np.float32)
    x[:, ::64] *= 100
    w = rng.standard_normal((96, 256)).astype(np.float32)
    exact = x.astype(np.float64) @ w.T.astype(np.float64)

    def error(weight: np.ndarray, smooth: np.ndarray | None) -> float:
        b, scale_b = cleave.quantize(weight)
        a, scale_a = cleave.quantize(x, smooth=smooth)
        d = cleave.scaled_gemm(a, b.T, scale_a, scale_b.T, out_dtype="float32")
        return np.linalg.norm(d - exact)

    divisors, folded = cleave.smooth(abs(x).max(0), w)
    assert error(folded, divisors) < 0.5 * error(w, None)


def test_smooth_takes_torch() -> None:
    torch = pytest.importorskip("torch")
    amax, w = torch.tensor([4.0, 9.0]), torch.tensor([[1.0, -4.0], [-2.0, 3.0]]).bfloat16()
    divisors, folded = cleave.smooth(amax, w)
    torch.testing.assert_close(divisors, torch.tensor([2 / 2**0.5, 1.5]))
    torch.testing.assert_close(folded, w.float() * divisors)


def test_smooth_refuses() -> None:
    amax, w = np.ones(3, np.float32), np.ones((2, 3), np.float32)
    with pytest.raises(TypeError, match="alpha is '1'; it must be a number from 0 to 1"):
        cleave.smooth(np.ones(8, np.float32), np.ones((4, 8), np.float32), "1")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"alpha is 1\.5"):
        cleave.smooth(amax, w, 1.5)
    with pytest.raises(TypeError, match="amax is float64"):
        cleave.smooth(np.ones(3), w)
    with pytest.raises(TypeError, match="amax is list; it must be an array of torch, NumPy, CuPy or JAX"):
        cleave.smooth([1.0, 1.0, 1.0], w)
    with pytest.raises(TypeError, match="weight is NoneType"):
        cleave.smooth(amax, None)
    with pytest.raises(ValueError, match=r"amax is \(3,\) and weight is \(3, 2\)"):
        cleave.smooth(amax, w.T)


@pytest.mark.parametrize("wrong", [-0.5, np.nan])
def test_smooth_takes_magnitudes(wrong: float) -> None:
    """x.max(0) is negative where a whole channel is."""
    amax, w = np.float32([1, wrong, 2]), np.ones((2, 3), np.float32)
    with pytest.raises(ValueError, match=rf"amax has a value of {wrong:g}.*abs\(x\)\.max\(0\)"):
        cleave.smooth(amax, w)
    torch = pytest.importorskip("torch")
    with pytest.raises(ValueError, match=f"amax has a value of {wrong:g}"):
        cleave.smooth(torch.tensor(amax), torch.tensor(w))
    divisors, _ = cleave.smooth(torch.tensor(amax, device="meta"), torch.tensor(w, device="meta"))
    assert divisors.shape == (3,)


def test_smooth_is_traced_by_jax() -> None:
    jax = pytest.importorskip("jax")
    amax, w = np.float32([4, 9]), np.float32([[1, -4], [-2, 3]])
    np.testing.assert_allclose(jax.jit(cleave.smooth)(amax, w)[0], cleave.smooth(amax, w)[0], rtol=1e-6)
