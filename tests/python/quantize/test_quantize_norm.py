"""cleave.quantize with a norm and a residual, on the CPU backend, against their definitions in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import remedies
from hypothesis import given, settings
from hypothesis import strategies as st

import cleave

CANARY = 77
LARGEST = {"int8": 127, "float8_e4m3fn": 448, "float8_e5m2": 57344}


def normed(h: np.ndarray, norm: cleave.Norm) -> np.ndarray:
    """In float64."""
    h = h.astype(np.float64)
    if norm.kind == "layer_norm":
        h = h - h.mean(1, keepdims=True)
    y = h / np.sqrt((h * h).mean(1, keepdims=True) + norm.eps)
    if norm.weight is not None:
        y = y * (norm.weight.astype(np.float64) + norm.zero_centered)
    return y if norm.bias is None else y + norm.bias.astype(np.float64)


def spread(scale: np.ndarray, shape: tuple[int, int], granularity: str) -> np.ndarray:
    """The scale of each element."""
    if granularity == "block_1x128":
        return np.repeat(scale, 128, 1)[:, : shape[1]].astype(np.float64)
    return np.broadcast_to(scale.astype(np.float64), shape)


def reach(y: np.ndarray, granularity: str, symmetric: bool) -> np.ndarray:
    """What the largest q stands for, or all 256 values of it, in the shape of the scales."""
    if granularity == "tensor":
        y = y.reshape(1, -1)
    cuts = range(0, y.shape[1], 128) if granularity == "block_1x128" else [0]
    size = 128 if granularity == "block_1x128" else y.shape[1]
    pieces = [y[:, cut : cut + size] for cut in cuts]
    if symmetric:
        return np.stack([abs(piece).max(1) for piece in pieces], 1)
    return np.stack([np.maximum(p.max(1), 0) - np.minimum(p.min(1), 0) for p in pieces], 1)


@settings(max_examples=200)
@given(st.data())
def test_int8_is_the_nearest(data) -> None:
    draw = data.draw
    rows, cols = draw(st.integers(1, 9)), draw(st.one_of(st.integers(1, 300), st.sampled_from([128, 4096])))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    granularity = draw(st.sampled_from(["tensor", "row", "block_1x128"]))
    symmetric = granularity == "block_1x128" or draw(st.booleans())
    floats = st.sampled_from([np.float16, np.float32])

    def matrix(kind: Any) -> np.ndarray:
        padded = np.full((rows, cols + draw(st.sampled_from([0, 0, 3, 8]))), np.nan, kind)
        padded[:, :cols] = rng.standard_normal((rows, cols)) * 2.0 ** rng.integers(-4, 6, (rows, 1)) + 0.3
        return padded[:, :cols]

    x = matrix(draw(floats))
    options: dict[str, Any] = {"symmetric": symmetric}
    h = x
    if draw(st.booleans()):
        residual = options["residual"] = matrix(draw(floats))
        h = (x.astype(np.float32) + residual.astype(np.float32)).astype(residual.dtype)
        place = draw(st.sampled_from(["new", "own", "residual", "x"]))
        if place == "own":
            options["residual_out"] = np.zeros_like(residual)
        elif place == "residual":
            options["residual_out"] = residual
        elif place == "x" and x.dtype == residual.dtype:
            options["residual_out"] = x
    kind = draw(floats)

    def vector() -> np.ndarray | None:
        return (rng.standard_normal(cols) + 1).astype(kind) if draw(st.booleans()) else None

    weight, eps = vector(), draw(st.sampled_from([0.0, 1e-6, 0.1]))
    zero_centered = weight is not None and draw(st.booleans())
    if draw(st.booleans()):
        norm = cleave.rms_norm(weight, eps, zero_centered=zero_centered)
    else:
        norm = cleave.layer_norm(weight, vector(), eps or 1e-5, zero_centered=zero_centered)
    if draw(st.booleans()):
        options["normed_out"] = np.zeros_like(x)
    y = normed(h, norm)
    given = granularity == "tensor" and draw(st.booleans())
    if given:
        options["scale"] = np.float32([abs(y).max() / 100 + 1e-3])
        if not symmetric:
            options["zero"] = np.int32([-7])

    q, scale, *rest = cleave.quantize(x, "int8", granularity, norm=norm, **options)
    assert q.dtype == np.int8 and q.shape == x.shape
    zero = np.zeros((rows, 1))
    if not symmetric:
        zero, *rest = rest
        zero = zero.reshape(-1, 1).astype(np.float64)
    if "residual" in options:
        sums, *rest = rest
        assert sums is options.get("residual_out", sums)
        np.testing.assert_array_equal(sums, h)
    step = spread(scale.reshape(-1, 1) if granularity == "tensor" else scale, x.shape, granularity)
    # Roundings of float32, which differences from the mean make larger against what is left.
    slack = 2e-6 * abs(y)
    if norm.bias is not None:
        slack = slack + 1e-6 * abs(norm.bias.astype(np.float64))
    if norm.kind == "layer_norm":
        deviation = np.sqrt(h.astype(np.float64).var(1, keepdims=True) + norm.eps)
        factor = 1 if weight is None else abs(weight.astype(np.float64) + zero_centered)
        slack = slack + 2e-6 * abs(h.astype(np.float64)).max(1, keepdims=True) / deviation * factor
    step = np.where(step > 0, step, np.inf)
    exact = np.clip(y / step + zero, -128, 127)
    assert (abs(exact - q) <= 0.5001 + slack / step).all()
    if not given:
        expected = reach(y, granularity, symmetric) / (127 if symmetric else 255)
        np.testing.assert_allclose(scale, expected, rtol=3e-6, atol=float(slack.max()) / 64)
    if "normed_out" in options:
        assert len(rest) == 1 and rest[0] is options["normed_out"]
        np.testing.assert_allclose(rest[0], y, rtol=np.finfo(x.dtype).eps + 4e-6, atol=float(slack.max()) + 1e-7)
    else:
        assert not rest


@pytest.mark.parametrize("granularity", ["tensor", "row", "block_1x128"])
@pytest.mark.parametrize("dtype", LARGEST)
@pytest.mark.parametrize("source", ["float16", "bfloat16", "float32"])
def test_is_the_norm_quantised(source: str, dtype: str, granularity: str) -> None:
    """All types of torch: what comes is what `quantize` makes of the norm in float32."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    x, residual = (torch.randn(7, 600).to(getattr(torch, source)) for _ in range(2))
    weight = torch.randn(600).to(x.dtype)
    given = {"scale": torch.tensor([0.02])} if granularity == "tensor" and dtype == "int8" else {}
    q, scale, sums = cleave.quantize(
        x, dtype, granularity, norm=cleave.rms_norm(weight, 1e-5), residual=residual, **given
    )
    h = (x.float() + residual.float()).to(x.dtype)
    assert torch.equal(sums, h)
    y = torch.nn.functional.rms_norm(h.double(), (600,), weight.double(), 1e-5).float()
    expected, of_rows = cleave.quantize(y, dtype, granularity, **given)
    torch.testing.assert_close(scale, of_rows, rtol=1e-6, atol=0)
    differ = (q.float() - expected.float()).abs()
    most = {"int8": 1.0, "float8_e4m3fn": 32.0, "float8_e5m2": 8192.0}[dtype]  # a step, where rounding was close
    assert differ.max() <= most and (differ > 0).float().mean() < 0.01


@pytest.mark.parametrize("granularity", ["tensor", "row", "block_1x128"])
def test_scales_that_are_powers_of_two(granularity: str) -> None:
    x = np.random.default_rng(4).standard_normal((9, 300), np.float32)
    norm, normed = cleave.rms_norm(), np.empty_like(x)
    _, scale = cleave.quantize(x, "int8", granularity, norm=norm)
    q, powers, _ = cleave.quantize(x, "int8", granularity, norm=norm, normed_out=normed, use_ue8m0=True)
    np.testing.assert_array_equal(powers, np.exp2(np.ceil(np.log2(scale))))
    np.testing.assert_array_equal(q, np.rint(normed / spread(powers, x.shape, granularity)))


def test_in_place_as_vllm() -> None:
    """The sum in the residual's place, the norm in x's."""
    rng = np.random.default_rng(0)
    x, residual = (rng.standard_normal((5, 96)).astype(np.float32) for _ in range(2))
    norm = cleave.rms_norm(rng.standard_normal(96).astype(np.float32))
    expected = cleave.quantize(x, norm=norm, residual=residual, normed_out=np.zeros_like(x))
    made = cleave.quantize(x, norm=norm, residual=residual, residual_out=residual, normed_out=x)
    assert made[2] is residual and made[3] is x
    for one, other in zip(made, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_rows_of_zeros_and_of_nans() -> None:
    x = np.ones((3, 200), np.float32)
    x[0] = 0
    x[1, 3] = np.nan
    for granularity in ("row", "block_1x128"):
        q, scale = cleave.quantize(x, "int8", granularity, norm=cleave.rms_norm(eps=1e-6))
        assert (scale[0] == 0).all() and (q[0] == 0).all()
        assert np.isnan(scale[1]).all() and (q[1] == 0).all()
        assert (q[2] == 127).all()
    q, scale = cleave.quantize(x, norm=cleave.layer_norm())
    assert scale[2, 0] == 0 and (q[2] == 0).all()


def test_empty_matrices() -> None:
    for shape in ((0, 64), (64, 0)):
        x = np.zeros(shape, np.float32)
        q, scale, sums = cleave.quantize(x, norm=cleave.rms_norm(), residual=x)
        assert q.shape == sums.shape == shape and scale.tolist() == [[0.0]] * shape[0]


# --- bad input ---

X = np.ones((4, 256), np.float32)
NORM = cleave.rms_norm(np.ones(256, np.float32))

BAD: dict[str, tuple[dict[str, Any], type[Exception], tuple[str, ...]]] = {
    "norm is an array": ({"norm": X[0]}, TypeError, ("norm is", "cleave.rms_norm(weight, eps)")),
    "weight has another length": (
        {"norm": cleave.rms_norm(np.ones(255, np.float32))},
        ValueError,
        ("norm.weight is (255,)", "(256,)"),
    ),
    "weight is int8": ({"norm": cleave.rms_norm(np.ones(256, np.int8))}, TypeError, ("norm.weight is int8",)),
    "bias has another dtype": (
        {"norm": cleave.layer_norm(np.ones(256, np.float32), np.ones(256, np.float16))},
        TypeError,
        ("norm.weight is float32", "norm.bias is float16"),
    ),
    "residual without norm": ({"norm": None, "residual": X + 1}, ValueError, ("residual", "norm is none")),
    "normed_out without norm": ({"norm": None, "normed_out": X + 1}, ValueError, ("normed_out", "norm is none")),
    "residual_out without residual": ({"residual_out": X + 1}, ValueError, ("residual_out is given without residual",)),
    "residual has another shape": ({"residual": X[:3]}, ValueError, ("residual is (3, 256)", "(4, 256)")),
    "residual is int8": ({"residual": X.astype(np.int8)}, TypeError, ("residual is int8",)),
    "residual_out has another dtype": (
        {"residual": X + 1, "residual_out": X.astype(np.float16)},
        TypeError,
        ("residual_out is float16 and residual is float32",),
    ),
    "residual_out overlaps residual": (
        {"residual": np.ones((5, 256), np.float32)[:4], "residual_out": "one row further"},
        ValueError,
        ("residual_out overlaps residual",),
    ),
    "normed_out is residual_out": (
        {"residual": X + 1, "residual_out": "shared", "normed_out": "shared"},
        ValueError,
        ("residual_out overlaps normed_out",),
    ),
    "normed_out has another dtype": ({"normed_out": X.astype(np.float16)}, TypeError, ("normed_out", "x is float32")),
    "out is normed_out": ({"normed_out": "out"}, ValueError, ("overlaps",)),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case: str) -> None:
    given, exception, words = BAD[case]
    given = dict(given)
    out = np.full((4, 256), CANARY, np.int8)
    shared = np.ones((4, 256), np.float32)
    for name, value in given.items():
        if isinstance(value, str) and value == "shared":
            given[name] = shared
        elif isinstance(value, str) and value == "one row further":
            given[name] = given["residual"].base[1:]
        elif isinstance(value, str) and value == "out":
            given[name] = shared
            out = shared.view(np.int8)[:, :256]
            out[...] = CANARY
    with pytest.raises(exception) as caught:
        cleave.quantize(**{"x": X, "norm": NORM, "out": out} | given)
    assert type(caught.value) is exception
    for word in words:
        assert word in str(caught.value)
    remedies.check(str(caught.value), cleave.quantize)
    assert (out == CANARY).all()


def test_norms_refuse() -> None:
    for eps in (-1.0, float("nan"), float("inf"), "1e-6"):
        with pytest.raises(ValueError, match=r"eps is .*; it must be a finite number"):
            cleave.rms_norm(eps=eps)
    with pytest.raises(ValueError, match="zero_centered is True, but there is no weight"):
        cleave.layer_norm(zero_centered=True)
