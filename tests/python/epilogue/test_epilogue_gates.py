"""Epilogue functions of gates, on the CPU backend: halves of the columns, and columns in turn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from epilogue_functions import values

import cleave


@cleave.epilogue
def limited_swiglu(acc, limit: cleave.scalar, shift: cleave.row, weight: cleave.column):
    gate, up = cleave.minimum(acc.gate, limit), cleave.clamp(acc.up, -limit, limit)
    return cleave.outputs(d=gate * cleave.sigmoid(1.702 * gate) * (up + 1.0) * weight + shift, up=up)


def limited_swiglu_exactly(gate: np.ndarray, up: np.ndarray, limit: float, shift: Any, weight: Any) -> tuple:
    gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit)
    return gate / (1 + np.exp(-1.702 * gate)) * (up + 1) * weight + shift, up


@cleave.epilogue
def limited_in_pairs(acc, limit: cleave.scalar, shift: cleave.row, weight: cleave.column):
    gate, up = cleave.minimum(acc.even, limit), cleave.clamp(acc.odd, -limit, limit)
    return cleave.outputs(d=gate * cleave.sigmoid(1.702 * gate) * (up + 1.0) * weight + shift, up=up)


def in_pairs(x: np.ndarray) -> np.ndarray:
    """Halves of columns, in turn."""
    return np.stack(np.split(x, 2, -1), -1).reshape(x.shape)


@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("mode", ["none", "serial", "parallel", "stream_k"])
@pytest.mark.parametrize("n", [1, 33, 130])
def test_gates_that_alternate_with_ups_make_the_same_bits(n: int, mode: str, order: str) -> None:
    rng = np.random.default_rng(n)
    m, k = 70, 200
    a, b, bias = values(rng, m, k) / np.float32(k**0.5), values(rng, k, 2 * n), values(rng, 2 * n)
    inputs = {"limit": 1.5, "shift": values(rng, n), "weight": values(rng, m)}
    expected = cleave.gemm(a, b, bias=bias, epilogue=limited_swiglu(**inputs), split_k_mode=mode)
    paired = np.asarray(in_pairs(b), order=order)
    made = cleave.gemm(a, paired, bias=in_pairs(bias), epilogue=limited_in_pairs(**inputs), split_k_mode=mode)
    for got, same in zip(made, expected, strict=True):
        np.testing.assert_array_equal(got, same)
    fixed = cleave.gemm(a, paired, bias=in_pairs(bias), activation="swiglu_interleaved", split_k_mode=mode)
    np.testing.assert_array_equal(fixed, cleave.gemm(a, b, bias=bias, activation="swiglu", split_k_mode=mode))


@pytest.mark.parametrize("granularity", ["row", "block_1x128"])
def test_scales_alternate_as_columns_do(granularity: str) -> None:
    rng = np.random.default_rng(3)
    x, weight = values(rng, 40, 300), values(rng, 2 * 70, 300)
    results = []
    for rows, activation in ((weight, "swiglu"), (in_pairs(weight.T).T.copy(), "swiglu_interleaved")):
        (q, scale_a), (w, scale_b) = (cleave.quantize(matrix, "int8", granularity) for matrix in (x, rows))
        scale_b = scale_b.ravel() if granularity == "row" else scale_b.T
        results.append(cleave.scaled_gemm(q, w.T, scale_a, scale_b, activation=activation, out_dtype="float32"))
    np.testing.assert_array_equal(*results)
    squares = cleave.quantize(weight, "int8", "block_128x128")[1]
    with pytest.raises(ValueError, match="128 columns of b share a scale, gates' and ups'; sort b's columns"):
        cleave.scaled_gemm(
            q, w.T, cleave.quantize(x, "int8", "block_1x128")[1], squares.T, activation=activation, out_dtype="float32"
        )


@pytest.mark.parametrize("mode", ["none", "serial", "parallel", "stream_k"])
@pytest.mark.parametrize("n", [1, 33, 130])
def test_gates(n: int, mode: str) -> None:
    rng = np.random.default_rng(n)
    m, k = 70, 200
    a, b = values(rng, m, k) / np.float32(k**0.5), values(rng, k, 2 * n)
    bias, shift, weight = values(rng, 2 * n), values(rng, n), values(rng, m)
    call = limited_swiglu(limit=1.5, shift=shift, weight=weight)
    made = cleave.gemm(a, b, bias=bias, epilogue=call, split_k_mode=mode)
    sums = a.astype(np.float64) @ b + bias
    exact = limited_swiglu_exactly(sums[:, :n], sums[:, n:], 1.5, shift, weight[:, None])
    for got, expected in zip(made, exact, strict=True):
        assert got.shape == (m, n)
        np.testing.assert_allclose(got, expected, atol=1e-4)
    # As the fixed activation has it, bit by bit.
    plain = cleave.epilogue(lambda acc: cleave.silu(acc.gate) * acc.up)
    fixed = cleave.gemm(a, b, bias=bias, activation="swiglu", split_k_mode=mode)
    np.testing.assert_array_equal(cleave.gemm(a, b, bias=bias, epilogue=plain, split_k_mode=mode), fixed)


@pytest.mark.parametrize("mode", ["none", "serial", "parallel", "stream_k"])
def test_gates_of_groups(mode: str) -> None:
    rng = np.random.default_rng(9)
    a, b = values(rng, 40, 64) / np.float32(8), values(rng, 3, 64, 2 * 24)
    offs, shift, weight = np.array([7, 7, 33], np.int32), values(rng, 3, 24), values(rng, 40)
    inputs = {"limit": 1.0, "shift": shift, "weight": weight}
    made = cleave.grouped_gemm(a, b, offs, epilogue=limited_swiglu(**inputs), split_k_mode=mode)
    paired = cleave.grouped_gemm(a, in_pairs(b), offs, epilogue=limited_in_pairs(**inputs), split_k_mode=mode)
    for got, same in zip(paired, made, strict=True):
        np.testing.assert_array_equal(got, same)
    owner = np.array([0] * 7 + [2] * 26)
    sums = np.einsum("mk,mkn->mn", a[:33].astype(np.float64), b[owner])
    exact = limited_swiglu_exactly(sums[:, :24], sums[:, 24:], 1.0, shift[owner], weight[:33, None])
    for got, expected in zip(made, exact, strict=True):
        np.testing.assert_allclose(got[:33], expected, atol=1e-4)
        assert not got[33:].any()


def test_what_gates_do_not_go_with() -> None:
    gate = cleave.epilogue(lambda acc: cleave.relu(acc.gate) * acc.up)
    assert gate.function.gated and not cleave.epilogue(lambda acc: acc * 2).function.gated
    assert cleave.EpilogueFunction(gate.function.text) == gate.function
    with pytest.raises(ValueError, match=r"takes acc beside acc.gate or acc.up"):
        cleave.epilogue(lambda acc: acc + acc.gate)
    with pytest.raises(ValueError, match=r"takes acc beside acc.even or acc.odd"):
        cleave.epilogue(lambda acc: acc - acc.odd)
    with pytest.raises(ValueError, match=r"acc.even or acc.odd is beside acc.gate or acc.up"):
        cleave.epilogue(lambda acc: acc.even * acc.up)
    with pytest.raises(ValueError, match=r"on .*H100.*takes? no b that is contiguous along n if .* ups alternate"):
        cleave.plan_problem(64, 64, 64, layout="tt", activation="swiglu_interleaved", device="h100")
    with pytest.raises(cleave.EpilogueError, match="only the sum, the function's first parameter, has a gate"):
        cleave.epilogue(lambda acc: (acc * 2).gate)
    a, b = np.ones((4, 6), np.float32), np.ones((6, 7), np.float32)
    with pytest.raises(ValueError, match=r"b is \(6, 7\), but the epilogue function takes acc.gate and acc.up, which"):
        cleave.gemm(a, b, epilogue=gate)
    with pytest.raises(ValueError, match=r"c is given, but the epilogue function takes acc.gate and acc.up"):
        cleave.gemm(a, b[:, :6], c=np.ones((4, 3), np.float32), epilogue=gate)
    with pytest.raises(ValueError, match=r"a convolution has no acc.gate and acc.up"):
        x, w = np.ones((1, 4, 5), np.float32), np.ones((2, 4, 3), np.float32)
        cleave.conv1d(x.swapaxes(1, 2).copy().swapaxes(1, 2), w.swapaxes(1, 2).copy().swapaxes(1, 2), epilogue=gate)


def test_gated_functions_are_planned_without_arrays() -> None:
    @cleave.epilogue
    def geglu(acc, bias: cleave.row):
        return cleave.gelu(acc.gate) * acc.up + bias

    for layout in ("tn", "tt"):
        sizes = {"m": 512, "n": 512, "k": 1024, "dtype": "bfloat16", "layout": layout, "device": "h100"}
        plan = cleave.plan_problem(**sizes, epilogue=geglu(bias="float32"))
        assert "acc, up" in plan.kernel_source or "float up" in plan.kernel_source
        fixed = cleave.plan_problem(**sizes, activation="swiglu")
        if layout == "tn":  # b is contiguous along K: a kernel does not know which of its rows are gates
            assert cleave.plan_problem(**sizes, activation="swiglu_interleaved").kernel_source == fixed.kernel_source
        assert plan.roofline_us == pytest.approx(fixed.roofline_us, rel=0.01)
