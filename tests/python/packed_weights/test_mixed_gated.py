"""Packed weights whose gates and ups the product joins: on the CPU, beside what they stand for; what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cleave
from cleave import _core


@cleave.epilogue
def limited(acc: Any, alpha: cleave.scalar, limit: cleave.scalar) -> Any:
    gate, up = cleave.minimum(acc.gate, limit), cleave.maximum(cleave.minimum(acc.up, limit), -limit)
    return gate * cleave.sigmoid(alpha * gate) * (up + 1.0)


def weight_of(rows: int, columns: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal((rows, columns), np.float32)


def silu(x: Any) -> Any:
    return x / (1 + np.exp(-x))


@pytest.mark.parametrize("rows", [16, 48, 208])
@pytest.mark.parametrize(("format", "group"), [("int4", 32), ("int4", -1), ("mxfp4", 32)])
def test_rows_take_turns_in_packed_and_nowhere_else(format: str, group: int, rows: int) -> None:
    w = weight_of(rows, 96)
    gated, plain = (cleave.pack_weights(w, group, format, gated=gated) for gated in (True, False))
    assert np.array_equal(cleave.unpack_weights(gated), cleave.unpack_weights(plain))
    assert np.array_equal(cleave.dequantize_weights(gated), cleave.dequantize_weights(plain))
    assert np.array_equal(gated.packed, plain.packed) == (rows == 16)
    for gate in range(rows // 2):
        at = gate // 8 * 16 + gate % 8
        assert np.array_equal(gated.scales[:, at], plain.scales[:, gate])
        assert np.array_equal(gated.scales[:, at + 8], plain.scales[:, rows // 2 + gate])


def test_zeros_and_act_order() -> None:
    random = np.random.default_rng(1)
    codes = random.integers(0, 16, (32, 128), np.uint8)
    scales = random.random((2, 32)).astype(np.float16)
    zeros = random.integers(0, 16, (2, 32), np.uint8)
    g_idx = random.permutation(np.arange(128) % 2)
    given = {"scales": scales, "zeros": zeros, "g_idx": g_idx}
    gated, plain = (cleave.pack_weights(codes, 64, gated=gated, **given) for gated in (True, False))
    assert np.array_equal(cleave.unpack_weights(gated), codes)
    assert np.array_equal(cleave.dequantize_weights(gated), cleave.dequantize_weights(plain))


@pytest.mark.parametrize(("format", "group"), [("int4", 64), ("mxfp4", 32)])
@pytest.mark.parametrize("split", [{}, {"split_k_mode": "parallel", "split_k_slices": 3}])
def test_products(format: str, group: int, split: dict[str, Any]) -> None:
    packed = cleave.pack_weights(weight_of(80, 192), group, format, gated=True)
    x, bias = weight_of(7, 192, 1).astype(np.float16), weight_of(1, 80, 2)[0]
    w = cleave.dequantize_weights(packed, "float16" if format == "int4" else "float32").astype(np.float64)
    gate, up = np.split(x.astype(np.float64) @ w.T + bias, 2, 1)
    d = cleave.mixed_gemm(x, packed, bias=bias, activation="swiglu", out_dtype="float32", **split)
    np.testing.assert_allclose(d, silu(gate) * up, rtol=1e-4, atol=1e-2)
    function = limited(alpha=1.702, limit=2.0)
    d = cleave.mixed_gemm(x, packed, bias=bias, epilogue=function, out_dtype="float32", **split)
    gate, up = np.minimum(gate, 2), np.clip(up, -2, 2)
    np.testing.assert_allclose(d, gate / (1 + np.exp(-1.702 * gate)) * (up + 1), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("by_row", [False, True])
def test_nvfp4_and_global_scales(by_row: bool) -> None:
    """What scales rows in the epilogue has the gates first, as a bias has."""
    torch = pytest.importorskip("torch")
    codes = torch.from_numpy(np.random.default_rng(0).integers(0, 16, (48, 64), np.uint8))
    scales = torch.from_numpy(np.abs(weight_of(4, 48))).to(torch.float8_e4m3fn)
    given = {"scales": scales, "global_scale": torch.rand(48) + 0.5 if by_row else 0.25}
    gated, plain = (cleave.pack_weights(codes, 16, "nvfp4", gated=gated, **given) for gated in (True, False))
    assert torch.equal(cleave.dequantize_weights(gated), cleave.dequantize_weights(plain))
    x = torch.from_numpy(weight_of(5, 64)).bfloat16()
    gate, up = (x.double() @ cleave.dequantize_weights(plain).double().T).chunk(2, 1)
    d = cleave.mixed_gemm(x, gated, activation="swiglu", out_dtype="float32")
    torch.testing.assert_close(d.double(), torch.nn.functional.silu(gate) * up, rtol=1e-3, atol=1e-3)


def test_in_torch() -> None:
    """Under torch.compile, whose shapes are what is joined."""
    torch = pytest.importorskip("torch", minversion="2.10")
    pytest.importorskip("cleave.torch", exc_type=ImportError)
    w = torch.from_numpy(weight_of(32, 64)).bfloat16()
    packed, x = cleave.pack_weights(w, 32, gated=True), torch.ones(3, 64, dtype=torch.bfloat16)
    ends = torch.tensor([1, 3], dtype=torch.int32)
    both = cleave.pack_weights(torch.stack((w, w)), 32, gated=True)

    def call(x: Any, ends: Any) -> Any:
        function = limited(alpha=1.0, limit=9.0)
        return (
            cleave.torch.mixed_gemm(x, packed, activation="swiglu"),
            cleave.torch.mixed_gemm(x, packed, epilogue=function),
            cleave.torch.mixed_gemm(x, both, offs=ends, epilogue=function),
        )

    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")(x, ends)
    for one, other in zip(compiled, call(x, ends), strict=True):
        assert one.shape == (3, 16) and torch.equal(one, other)
    assert torch.equal(compiled[0], cleave.mixed_gemm(x, packed, activation="swiglu"))


@cleave.epilogue
def reduced(acc: Any) -> Any:
    d = cleave.silu(acc.gate) * acc.up
    return cleave.outputs(
        d=d,
        sums=cleave.sum(d, over="rows"),
        norms=cleave.sum_of_squares(d, over="columns"),
    )


@cleave.epilogue
def largest(acc: Any) -> Any:
    return cleave.outputs(d=acc.gate * acc.up, amax=cleave.absmax(acc.up, over="all"))


@pytest.mark.parametrize("split", [{}, {"split_k_mode": "parallel", "split_k_slices": 3}])
def test_what_is_reduced(split: dict[str, Any]) -> None:
    packed = cleave.pack_weights(weight_of(80, 192), 64, gated=True)
    x = weight_of(7, 192, 1).astype(np.float16)
    w = cleave.dequantize_weights(packed, "float16").astype(np.float64)
    gate, up = np.split(x.astype(np.float64) @ w.T, 2, 1)
    d, sums, norms = cleave.mixed_gemm(x, packed, epilogue=reduced, out_dtype="float32", **split)
    expected = silu(gate) * up
    np.testing.assert_allclose(d, expected, rtol=1e-4, atol=1e-2)
    of_d = d.astype(np.float64)
    np.testing.assert_allclose(sums, of_d.sum(0), rtol=1e-5, atol=1e-5 * np.abs(of_d).sum(0).max())
    np.testing.assert_allclose(norms, (of_d**2).sum(1), rtol=1e-6)
    d, amax = cleave.mixed_gemm(x, packed, epilogue=largest, out_dtype="float32", **split)
    np.testing.assert_allclose(d, gate * up, rtol=1e-4, atol=1e-2)
    np.testing.assert_allclose(amax, np.abs(up).max(), rtol=1e-3)


def test_experts() -> None:
    w = weight_of(3 * 48, 64).reshape(3, 48, 64)
    packed = cleave.pack_weights(w, format="mxfp4", gated=True)
    values = cleave.dequantize_weights(packed).astype(np.float64)
    x, offs = weight_of(9, 64, 1).astype(np.float16), np.array([2, 2, 9], np.int32)
    d = cleave.mixed_gemm(x, packed, offs=offs, epilogue=limited(alpha=1.0, limit=1e4), out_dtype="float32")
    for expert, rows in ((0, slice(0, 2)), (2, slice(2, 9))):
        gate, up = np.split(x[rows].astype(np.float64) @ values[expert].T, 2, 1)
        np.testing.assert_allclose(d[rows], silu(gate) * (up + 1), rtol=1e-3, atol=1e-2)


GATED, PLAIN = (
    cleave.pack_weights(weight_of(32, 64), 64, scale_dtype="float16", gated=gated) for gated in (True, False)
)
X = np.ones((3, 64), np.float16)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: cleave.mixed_gemm(X, GATED), "nothing joins its gates and ups: pass activation"),
        (lambda: cleave.plan_mixed_gemm(X, GATED, activation="relu"), "nothing joins its gates and ups"),
        (lambda: cleave.mixed_gemm(X, PLAIN, activation="swiglu"), "packed without gated=True"),
        (lambda: cleave.mixed_gemm(X, PLAIN, epilogue=limited(alpha=1, limit=1)), "packed without gated=True"),
        (lambda: cleave.pack_weights(weight_of(24, 64), 64, gated=True), "N = 24 rows"),
        (
            lambda: cleave.PackedWeights(PLAIN.packed, PLAIN.scales[:, :24], None, (24, 64), 64, gated=True),
            "must be a multiple of 16",
        ),
        (
            lambda: _core.mixed_gemm(
                X, PLAIN.packed, PLAIN.scales[:, :24].copy(), out_features=24, group_size=64, activation="swiglu"
            ),
            "n is 12, but b is a packed weight of gates and ups, 8 of each in turn",
        ),
        (lambda: cleave.mixed_gemm(X, GATED, activation="swiglu", c=np.ones((3, 16), np.float16)), "c is given"),
    ],
)
def test_errors(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(ValueError) as caught:
        call()
    assert words in str(caught.value)
