"""Reductions of D by epilogue functions on the CPU backend: of every operation in every split mode, against float64."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from epilogue_functions import Bounded, assert_close
from epilogue_operations import OPERATIONS, Draw
from epilogue_reductions import OVER, REDUCTIONS, drawn_reductions, reduced
from hypothesis import given, settings
from hypothesis import strategies as st

import cleave

MODES = ("none", "serial", "parallel", "cluster", "stream_k")


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.__name__)
@settings(max_examples=25)
@given(random=st.randoms(use_true_random=False), mode=st.sampled_from(MODES), seed=st.integers(0, 2**32 - 1))
def test_drawn_reductions(operation: Any, random: Random, mode: str, seed: int) -> None:
    op = operation(Draw(random, np.random.default_rng(seed)))
    name = operation.__name__
    chosen = [(random.choice(REDUCTIONS), random.choice(OVER)) for _ in range(2)]
    function = drawn_reductions(tuple(chosen))
    d, *made = op.run(epilogue=function(scale=0.5), split_k_mode=mode)
    exact = Bounded(np.where(op.exists, 0.5 * op.sums.value + 0.25, 0.0), op.sums.error + 1e-6)
    assert_close(op.placed(d), exact, "float32", function.text)
    for got, (reduction, over) in zip(made, chosen, strict=True):
        expected = reduced(d, reduction, over, name, op.ranges)
        assert got.dtype == np.float32 and got.shape == expected.shape, (name, over)
        np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max(initial=0.0))


@cleave.epilogue
def with_norm(acc, bias: cleave.row):
    x = acc + bias
    return cleave.outputs(d=x, norm=cleave.sum_of_squares(x, over="columns"))


@cleave.epilogue
def with_largest(acc):
    return cleave.outputs(d=acc, largest=cleave.absmax(acc), rows=cleave.absmax(acc, over="columns"))


def test_the_next_product_takes_them() -> None:
    """RMSNorm between two layers: its weight in the second's, the norm of a row in its epilogue."""

    @cleave.epilogue
    def normalised(acc, norm: cleave.column, width: cleave.scalar):
        return acc * cleave.rsqrt(norm / width + 1e-5)

    rng = np.random.default_rng(0)
    a, b, b2 = (rng.standard_normal(shape, np.float32) for shape in ((40, 96), (96, 72), (72, 24)))
    for lead in ((), (3,)):
        x = np.broadcast_to(a, (*lead, *a.shape)).copy()
        h, norm = cleave.gemm(x, b, epilogue=with_norm(bias=np.zeros(72, np.float32)))
        y = cleave.gemm(h, b2, epilogue=normalised(norm=norm, width=72.0))
        expected = h / np.sqrt((h.astype(float) ** 2).mean(-1, keepdims=True) + 1e-5) @ b2
        np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4)


def test_nans_are_the_largest() -> None:
    a = np.eye(4, dtype=np.float32)
    b = np.array([[1, -5, 3], [0, -0.0, 0], [2, np.nan, 1], [np.inf, 1, 0]], np.float32)
    _, largest, rows = cleave.gemm(a[:2], b, epilogue=with_largest)
    assert np.isnan(largest) and np.isnan(rows).all(), "a NaN times 0 is in every sum"
    _, largest, rows = cleave.gemm(a[:2, :2], b[:2], epilogue=with_largest)
    assert largest == 5 and rows.tolist() == [5, 0] and not np.signbit(rows).any()


def test_rows_of_no_group_stay_or_become_zero() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((12, 8), np.float32), rng.standard_normal((2, 8, 5), np.float32)
    offs, call = np.array([3, 9], np.int32), with_norm(bias=np.ones(5, np.float32))
    d, norm = cleave.grouped_gemm(a, b, offs, epilogue=call)
    assert norm.shape == (12,) and (norm[:9] > 0).all() and not norm[9:].any()
    out = np.full_like(d, 7), np.full_like(norm, 7)
    cleave.grouped_gemm(a, b, offs, epilogue=call, out=out)
    np.testing.assert_array_equal(out[1], np.where(np.arange(12) < 9, norm, 7))


@pytest.mark.parametrize("lead", [(), (3,)])
def test_groups_that_lie_anywhere(lead: tuple[int, ...]) -> None:
    """In no order, one of them empty, rows of none between them; results in the middle of an array."""
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((20, 8), np.float32), rng.standard_normal((3, 8, 5), np.float32)
    starts, counts = np.array([12, 2, 6], np.int64), np.array([7, 0, 3], np.int64)

    @cleave.epilogue
    def summed(acc):
        return cleave.outputs(d=acc, rows=cleave.sum(acc, over="rows"), largest=cleave.absmax(acc))

    framed = np.full((3, 3, 5), 7, np.float32), np.full((3, 3), 7, np.float32)
    out = (None, *(x[1] for x in framed)) if lead else None
    options = {"zero_rest": True} if lead else {}
    d, rows, largest = cleave.grouped_gemm(a, b, starts=starts, sizes=counts, epilogue=summed, out=out, **options)
    parts = [d[s : s + c].astype(float) for s, c in zip(starts, counts, strict=True)]
    np.testing.assert_allclose(rows, [x.sum(0) for x in parts], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(largest, [np.abs(x).max(initial=0) for x in parts], rtol=1e-6)
    assert not lead or all((x[[0, 2]] == 7).all() for x in framed)


def test_an_empty_d_is_reduced_to_zeros() -> None:
    a, b = np.ones((4, 8), np.float32), np.ones((8, 0), np.float32)
    _, norm = cleave.gemm(a, b, epilogue=with_norm(bias=np.ones(0, np.float32)), out=(None, np.full(4, 7, np.float32)))
    assert norm.tolist() == [0, 0, 0, 0]


def test_8_bit_outputs_are_reduced_before_they_are_rounded() -> None:
    rng = np.random.default_rng(2)
    a, b = rng.standard_normal((20, 64), np.float32), rng.standard_normal((64, 130), np.float32)
    bias = rng.standard_normal(130).astype(np.float32)
    whole, norm = cleave.gemm(a, b, epilogue=with_norm(bias=bias))
    q, same, scale = cleave.gemm(a, b, epilogue=with_norm(bias=bias), out_dtype="int8", out_scale="block_1x128")
    np.testing.assert_array_equal(same, norm)
    back = q * np.repeat(scale, 128, axis=1)[:, :130]
    np.testing.assert_allclose(back, whole, atol=np.abs(whole).max() / 200)


def test_what_is_refused() -> None:
    a, b = np.ones((6, 8), np.float32), np.ones((2, 8, 5), np.float32)
    with pytest.raises(ValueError, match=r"largest is \(\); it must be \(2,\): one value"):
        out = (np.empty((6, 5), np.float32), np.empty((), np.float32), np.empty(6, np.float32))
        cleave.grouped_gemm(a, b, np.array([3, 6], np.int32), epilogue=with_largest, out=out)
    with pytest.raises(ValueError, match=r"norm is \(1, 6\); it must be \(6,\): one value per row of D"):
        out = (None, np.empty((1, 6), np.float32))
        cleave.gemm(a, b[0], epilogue=with_norm(bias=b[0, 0]), out=out)
    with pytest.raises(TypeError, match="norm is float16, but the epilogue function makes it float32"):
        cleave.gemm(a, b[0], epilogue=with_norm(bias=b[0, 0]), out=(None, np.empty(6, np.float16)))


@pytest.mark.parametrize("promise", [{"deterministic": "batch_invariant"}, {"sum_order": "k"}])
def test_rows_that_depend_on_themselves_alone(promise: dict[str, str]) -> None:
    rng = np.random.default_rng(6)
    a, b, bias = (rng.standard_normal(shape, np.float32) for shape in ((70, 300), (300, 90), (90,)))
    d, norm = cleave.gemm(a, b, epilogue=with_norm(bias=bias), **promise)
    np.testing.assert_allclose(d, a.astype(np.float64) @ b + bias, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(norm, (d.astype(np.float64) ** 2).sum(1), rtol=1e-6)
    for rows in (1, 17):
        some = cleave.gemm(a[:rows], b, epilogue=with_norm(bias=bias), **promise)
        assert np.array_equal(some[0], d[:rows]) and np.array_equal(some[1], norm[:rows])
    plan = cleave.plan_problem(256, 512, 1024, device="h100", epilogue=with_norm(bias="float32"), **promise)
    assert "reduce_partials" in plan.kernel_sources[-1] and plan.workspace_size >= 4 * 256 * 512
    with pytest.raises(ValueError, match="D has 2 x 2147483647 elements, more than 4294963199; reduce it in parts"):
        cleave.plan_problem(2, 2**31 - 1, 64, device="h100", epilogue=with_norm(bias="float32"), **promise)
    with pytest.raises(ValueError, match="reduces D in a step of its own here, which emitted projects do not"):
        cleave.emit.cpp(plan, "reducing", sourcedir="unused")


def test_plans_for_a_gpu() -> None:
    """Two kernels, partial results in the workspace."""
    sizes: dict[str, Any] = {"m": 256, "n": 512, "k": 1024, "dtype": "bfloat16", "device": "h100"}
    plan = cleave.plan_problem(**sizes, epilogue=with_norm(bias="float32"))
    assert len(plan.kernel_sources) == 2 and "reduce_partials" in plan.kernel_sources[1]
    assert plan.workspace_size > 0 and len(cleave.plan_problem(**sizes).kernel_sources) == 1


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("d=acc * cleave.sum(acc)", "what is reduced is known when all of D is"),
        ("d=cleave.sum(acc)", "d is reduced; D has a value for each element"),
        ('d=acc, x=cleave.sum(acc, over="columns").to("float16")', "an output beside D, which has no to"),
        ('d=acc, x=cleave.sum(acc, over="row")', 'over is \'row\'; it must be "rows", "columns" or "all"'),
        ("d=acc, x=cleave.absmax(acc > 0)", "a condition is no number"),
        ("d=acc, x=cleave.sum(3.0)", "cleave.sum is for values of an epilogue function, got float"),
        ("d=cleave.exp(cleave.absmax(acc))", "cleave.exp is for values|what is reduced is known when all of D is"),
    ],
)
def test_what_a_function_cannot_do(expression: str, message: str) -> None:
    names: dict[str, Any] = {"cleave": cleave}
    exec(f"def f(acc):\n    return cleave.outputs({expression})", names)
    with pytest.raises(cleave.EpilogueError, match=message):
        cleave.epilogue(names["f"])


def test_the_text_says_it_once() -> None:
    text = with_norm.text
    assert text.endswith("norm = sum column %1\n") and cleave.EpilogueFunction(text).text == text
    for line, message in (
        ("n = sum matrix acc", "takes scalar, row or column"),
        ("d = sum row acc", "an output d already"),
    ):
        with pytest.raises(ValueError, match=message):
            cleave.EpilogueFunction("d = acc\n" + line)
