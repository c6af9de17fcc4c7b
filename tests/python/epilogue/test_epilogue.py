"""Epilogue functions on the CPU backend: what is traced, what it computes, what is refused, and where."""

from __future__ import annotations

import copy
import pickle
import re
from random import Random
from typing import Any

import epilogue_functions
import numpy as np
import pytest
from epilogue_functions import Bounded, assert_close, values
from gemm_reference import activate
from hypothesis import given
from hypothesis import strategies as st

import cleave

MODES = ("none", "serial", "parallel", "cluster", "stream_k")


@cleave.epilogue
def gelu_residual(acc, bias: cleave.row, scale: cleave.scalar, residual: cleave.matrix):
    pre = acc * scale + bias
    return cleave.outputs(d=cleave.gelu(pre) + residual, pre=pre)


@cleave.epilogue
def scaled(acc, weight: cleave.column, factor: cleave.scalar = 2.0):
    return acc * weight * factor


@given(random=st.randoms(use_true_random=False), mode=st.sampled_from(MODES), seed=st.integers(0, 2**32 - 1))
def test_drawn_functions(random: Random, mode: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    drawn = epilogue_functions.draw(random)
    batch = random.choice([None, None, 2])
    m, n, k = (random.choice([1, 7, 33, 130]) for _ in range(3))
    lead = () if batch is None else (batch,)
    a, b = values(rng, *lead, m, k) / np.float32(k**0.5), values(rng, *lead, k, n)
    sizes = {"scalar": (1, 1), "row": (1, n), "column": (m, 1), "matrix": (m, n)}
    inputs: dict[str, Any] = {}
    exact: dict[str, Any] = {}
    for name, shape in drawn.shapes.items():
        full = (*(lead if random.random() < 0.5 else (1,) * len(lead)), *sizes[shape])
        x = values(rng, *full).astype(random.choice([np.float16, np.float32]))
        if shape == "matrix" and random.random() < 0.3:
            x = np.asfortranarray(x) if batch is None else x.swapaxes(-1, -2).copy().swapaxes(-1, -2)
        exact[name] = Bounded(x.astype(np.float64), np.zeros(()))
        inputs[name] = x
        if shape == "scalar" and full == (1, 1) and random.random() < 0.5:
            inputs[name] = float(x[0, 0])
    acc = a.astype(np.float64) @ b.astype(np.float64)
    sums = Bounded(acc, (k + 4) * epilogue_functions.ROUNDOFF * (np.abs(a).astype(np.float64) @ np.abs(b)))
    expected = drawn.exact(sums, exact)

    made = cleave.gemm(a, b, epilogue=drawn.traced()(**inputs), split_k_mode=mode)
    for got, (name, dtype) in zip(made if len(drawn.outputs) > 1 else [made], drawn.outputs.items(), strict=True):
        assert got.dtype == np.dtype(dtype or "float32") and got.shape == acc.shape
        assert_close(got.astype(np.float64), expected[name], dtype or "float32", drawn.text)


def test_the_bounds_know_most_values() -> None:
    """Else the test above would pass whatever is computed."""
    known = total = 0
    rng = np.random.default_rng(0)
    for seed in range(200):
        drawn = epilogue_functions.draw(Random(seed))
        acc = Bounded(values(rng, 20).astype(np.float64), np.full(20, 1e-6))
        inputs = {name: Bounded(values(rng, 20).astype(np.float64), np.zeros(20)) for name in drawn.shapes}
        for output in drawn.exact(acc, inputs).values():
            error, value = np.broadcast_arrays(output.error, np.abs(output.value))
            known += int((error < 0.02 * (1 + value)).sum())
            total += error.size
    assert known > 0.9 * total


@pytest.mark.parametrize("name", ["relu", "relu2", "gelu", "gelu_tanh", "silu"])
@pytest.mark.parametrize("mode", MODES)
def test_activations_are_functions_of_this_kind(name: str, mode: str) -> None:
    """Bit by bit: they have one definition in kernels and another one here."""

    @cleave.epilogue
    def activated(acc, bias: cleave.row):
        if name == "gelu_tanh":
            return cleave.gelu(acc + bias, approximate="tanh")
        return getattr(cleave, name)(acc + bias)

    rng = np.random.default_rng(1)
    a, b, bias = values(rng, 130, 300), values(rng, 300, 140), values(rng, 140)
    options: dict[str, Any] = {"split_k_mode": mode}
    fixed = cleave.gemm(a, b, bias=bias, activation=name, **options)
    np.testing.assert_array_equal(cleave.gemm(a, b, epilogue=activated(bias=bias), **options), fixed)
    np.testing.assert_allclose(fixed, activate(name, a.astype(float) @ b + bias), atol=2e-4, rtol=1e-5)


def test_what_is_in_the_sum_already() -> None:
    rng = np.random.default_rng(2)
    a, b, c, w = values(rng, 9, 20), values(rng, 20, 11), values(rng, 9, 11), values(rng, 9)
    d = cleave.gemm(a, b, c=c, alpha=0.5, beta=3.0, bias=c[0].copy(), epilogue=scaled(weight=w))
    np.testing.assert_allclose(d, (0.5 * (a @ b) + 3 * c + c[0]) * w[:, None] * 2, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("mode", MODES)
def test_sums_of_scaled_integers(mode: str) -> None:
    rng = np.random.default_rng(6)
    a, b = rng.integers(-9, 9, (70, 300)).astype(np.int8), rng.integers(-9, 9, (300, 90)).astype(np.int8)
    scale_a, scale_b = (np.exp2(-rng.integers(0, 5, size)).astype(np.float32) for size in (70, 90))
    residual = rng.integers(-9, 9, (70, 90)).astype(np.float32)
    call = gelu_residual(bias=np.zeros(90, np.float32), scale=0.5, residual=residual)
    options: dict[str, Any] = {"out_dtype": "float32", "split_k_mode": mode}
    _, pre = cleave.scaled_gemm(a, b, scale_a, scale_b, epilogue=call, **options)
    np.testing.assert_array_equal(pre, cleave.scaled_gemm(a, b, scale_a, scale_b, alpha=0.5, **options))
    q, beside, scale = cleave.scaled_gemm(
        a, b, scale_a, scale_b, out_scale="row", epilogue=call, **options | {"out_dtype": "int8"}
    )
    d, _ = cleave.scaled_gemm(a, b, scale_a, scale_b, epilogue=call, **options)
    for one, other in zip((q, scale, beside), (*cleave.quantize(d), pre), strict=True):
        np.testing.assert_array_equal(one, other)


def test_outputs_go_where_they_are_asked_to() -> None:
    rng = np.random.default_rng(3)
    a, b, bias, residual = values(rng, 33, 20), values(rng, 20, 50), values(rng, 50), values(rng, 33, 50)
    call = gelu_residual(bias=bias, scale=0.5, residual=residual)
    d, pre = cleave.gemm(a, b, epilogue=call)
    np.testing.assert_allclose(pre, a @ b * 0.5 + bias, atol=1e-5)
    buffer = np.full((33, 64), 7.0, np.float32)
    outs = np.empty_like(d), buffer[:, :50]
    results = cleave.gemm(a, b, epilogue=call, out=outs)
    assert results[0] is outs[0] and results[1] is outs[1]
    np.testing.assert_array_equal(outs[0], d)
    np.testing.assert_array_equal(outs[1], pre)
    assert (buffer[:, 50:] == 7).all()
    np.testing.assert_array_equal(cleave.gemm(a, b, epilogue=call, out=(None, outs[1]))[0], d)
    # In place: an element of the residual is read for that of D alone.
    in_place = residual.copy()
    cleave.gemm(a, b, epilogue=gelu_residual(bias=bias, scale=0.5, residual=in_place), out=(in_place, None))
    np.testing.assert_array_equal(in_place, d)


def test_outputs_have_types_of_their_own() -> None:
    @cleave.epilogue
    def two(acc, scale: cleave.scalar):
        return cleave.outputs(d=(acc * scale).to("int8"), pre=acc.to("float16"))

    rng = np.random.default_rng(4)
    a, b = values(rng, 20, 30), values(rng, 30, 40)
    d, pre = cleave.gemm(a, b, epilogue=two(scale=np.array([30.0], np.float32)))
    assert d.dtype == np.int8 and pre.dtype == np.float16
    np.testing.assert_array_equal(d, np.clip(np.rint(cleave.gemm(a, b) * np.float32(30)), -128, 127).astype(np.int8))
    np.testing.assert_array_equal(pre, cleave.gemm(a, b).astype(np.float16))


def test_a_plan_runs_with_other_values() -> None:
    rng = np.random.default_rng(5)
    a, b = values(rng, 20, 30), values(rng, 30, 40)
    first, second = values(rng, 20), values(rng, 20)
    plan = cleave.plan_gemm(a, b, epilogue=scaled(weight=first))
    np.testing.assert_allclose(plan.run(a, b, epilogue=scaled(weight=first)), a @ b * first[:, None] * 2, atol=1e-4)
    d = plan.run(a, b, epilogue=scaled(weight=second, factor=-1.0))
    np.testing.assert_allclose(d, -(a @ b) * second[:, None], atol=1e-4)
    with pytest.raises(ValueError, match="the epilogue function is missing, but the plan is for"):
        plan.run(a, b)
    with pytest.raises(ValueError, match=r"inputs or outputs is .*weight: float16"):
        plan.run(a, b, epilogue=scaled(weight=first.astype(np.float16)))


def test_a_function_is_traced_once_and_known_by_what_it_does() -> None:
    calls = []

    def body(acc, x: cleave.row):
        calls.append(1)
        y = x * acc
        _unused = cleave.exp(y)
        return y + y

    first, second = cleave.epilogue(body), cleave.epilogue(body)
    assert len(calls) == 2
    a = np.ones((2, 3), np.float32)
    cleave.gemm(a, a.T, epilogue=first(x=np.ones(2, np.float32)))
    assert len(calls) == 2
    assert first.function == second.function and hash(first.function) == hash(second.function)
    assert first.function != scaled.function
    assert first.function.text == "x row\n%0 = multiply x acc\n%1 = add %0 %0\nd = %1\n"
    assert first.function.inputs == [("x", "row")] and first.function.outputs == ["d"]
    assert cleave.EpilogueFunction(first.function.text) == first.function


def test_a_function_without_inputs_need_not_be_called() -> None:
    @cleave.epilogue
    def negated(acc):
        return -acc

    a = np.eye(3, dtype=np.float32)
    np.testing.assert_array_equal(cleave.gemm(a, a, epilogue=negated), -a)
    with pytest.raises(TypeError, match="missing its input 'weight'"):
        cleave.gemm(a, a, epilogue=scaled)


def branch(acc):
    if acc > 0:
        return acc
    return -acc


def unknown(acc, x: cleave.row):
    y = acc + x
    return y % 2


def library(acc):
    return np.tanh(acc)


def constant_array(acc):
    return acc + np.ones(3)


def a_condition(acc):
    return (acc > 0) + 1


def no_condition(acc):
    return cleave.where(acc, 1.0, 2.0)


def too_large(acc):
    return acc * 1e300


def power(acc):
    return acc**1.5


def method(acc):
    doubled = 2 * acc
    return doubled.sigmoid()


def reduced(acc):
    doubled = 2 * acc
    return cleave.sum(doubled)


def nothing(acc):
    acc + 1


def a_tuple(acc):
    doubled = 2 * acc
    return doubled, acc


def too_many_outputs(acc):
    doubled = 2 * acc
    return cleave.outputs(d=doubled, one=acc, two=acc, three=acc)


def too_many_inputs(
    acc,
    a: cleave.row,
    b: cleave.row,
    c: cleave.row,
    d: cleave.row,
    e: cleave.row,
    f: cleave.row,
    g: cleave.row,
    h: cleave.row,
    i: cleave.row,
):
    return acc + a + b + c + d + e + f + g + h + i


def halves_and_turns(acc):
    gate = cleave.silu(acc.gate)
    return gate * acc.odd


def a_sum_beside_gates(acc):
    gated = cleave.silu(acc.gate) * acc.up
    return gated + acc


@pytest.mark.parametrize(
    ("function", "line", "reason"),
    [
        (branch, 1, "is not known when the function is traced; use cleave.where"),
        (unknown, 2, "unsupported operand type"),
        (library, 1, "use Python's operators and Cleave's functions"),
        (method, 2, "a value has no sigmoid; use Python's operators and Cleave's functions"),
        (reduced, 2, "d is reduced"),
        (constant_array, 1, "pass arrays as inputs"),
        (a_condition, 1, "a condition is no number"),
        (no_condition, 1, "takes a condition"),
        (too_large, 1, "too large for float32"),
        (power, 1, "the exponent is 1.5; it must be 0.5 or from 1 to 64"),
        (nothing, 1, "returns nothing"),
        (a_tuple, 2, "it returns a tuple; return D's value, or cleave.outputs(d=..., name=...)"),
        (too_many_outputs, 2, "three is one output too many; there may be 2 beside D"),
        (too_many_inputs, 0, "i is one input too many; there may be 8"),
        (halves_and_turns, 2, "acc.even or acc.odd is beside acc.gate or acc.up"),
        (a_sum_beside_gates, 2, "takes acc beside acc.gate or acc.up"),
    ],
)
def test_errors_name_the_line(function: Any, line: int, reason: str) -> None:
    with pytest.raises(cleave.EpilogueError) as caught:
        cleave.epilogue(function)
    text = str(caught.value)
    assert text.startswith(f"{function.__name__}, line {function.__code__.co_firstlineno + line} of {__file__}: ")
    assert reason in text


def test_powers() -> None:
    x = np.linspace(0.5, 2, 12, dtype=np.float32).reshape(3, 4)
    eye = np.eye(4, dtype=np.float32)
    for exponent in (1, 2, 5, 2.0, -1, -3.0, 0.5, -0.5, np.float64(0.5)):
        function = cleave.epilogue(lambda acc: acc**exponent)  # noqa: B023
        d = cleave.gemm(x, eye, epilogue=function)
        np.testing.assert_allclose(d, x ** np.float32(exponent), rtol=1e-5)


def test_inputs_are_given_by_name() -> None:
    with pytest.raises(TypeError, match=r"scaled\(\) takes its inputs by name: scaled\(weight=\.\.\., factor=\.\.\.\)"):
        scaled(np.ones(3), 2.0)


def test_parameters_are_annotated() -> None:
    with pytest.raises(TypeError, match=r"parameter x of plain\(\) must be an input by name, annotated cleave.scalar"):

        @cleave.epilogue
        def plain(acc, x):
            return acc + x

    local = cleave

    def named(acc, x: local.row):  # a string, by a name that is the test's
        return acc * x

    with pytest.raises(TypeError, match=r"an annotation of named\(\) cannot be read: NameError: .*cleave.scalar"):
        cleave.epilogue(named)
    with pytest.raises(TypeError, match="no sum"):
        cleave.epilogue(lambda: 1)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"bias": (51,)}, "bias is (51,); it must be (50,): one value per column of D"),
        ({"bias": (33, 1)}, "bias is (33, 1); it must be (50,): one value per column of D"),
        ({"residual": (50, 33)}, "residual is (50, 33); it must be (33, 50): one value per element of D"),
        ({"scale": (2,)}, "scale is (2,); it must be (): one value"),
    ],
)
def test_shapes_that_do_not_broadcast(inputs: dict[str, tuple[int, ...]], message: str) -> None:
    shapes = {"bias": (50,), "scale": (), "residual": (33, 50)} | inputs
    arrays = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
    with pytest.raises(ValueError, match=re.escape(message)):
        cleave.gemm(np.ones((33, 4), np.float32), np.ones((4, 50), np.float32), epilogue=gelu_residual(**arrays))


def test_what_does_not_go_together() -> None:
    a = np.ones((4, 4), np.float32)
    call = scaled(weight=np.ones(4, np.float32))
    with pytest.raises(ValueError, match="activation is relu, but an epilogue function is given"):
        cleave.gemm(a, a, activation="relu", epilogue=call)
    with pytest.raises(ValueError, match=r"d is int32, .* there is an epilogue function"):
        cleave.gemm(a.astype(np.int8), a.astype(np.int8), epilogue=call)
    with pytest.raises(TypeError, match=r"epilogue must be a function made by @cleave.epilogue, .* got function"):
        cleave.gemm(a, a, epilogue=lambda acc: acc)
    with pytest.raises(ValueError, match="out is a tuple of 2, but the epilogue function has 1 outputs"):
        cleave.gemm(a, a, epilogue=call, out=(a.copy(), a.copy()))
    other = a.copy()
    with pytest.raises(ValueError, match="d overlaps residual"):
        buffer = np.ones((5, 4), np.float32)
        x = gelu_residual(bias=other[0], scale=1.0, residual=buffer[1:])
        cleave.gemm(a, a, epilogue=x, out=(buffer[:4], None))
    with pytest.raises(ValueError, match="pre overlaps d"):
        cleave.gemm(a, a, epilogue=gelu_residual(bias=a[0], scale=1.0, residual=a), out=(other, other))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no output"),
        ("d = add acc", "line 1 of the epilogue function: add takes 2 values, not 1"),
        ("x row\nd = add acc y", "line 2 .*: y is neither acc nor an input"),
        ("x line\nd = acc", "line 1 .*: input x is line; it must be scalar, row, column or matrix"),
        ("%0 = cos acc\nd = %0", "line 1 .*: there is no operation cos"),
        ("d = acc\nd = acc", "line 2 .*: there is an output d already"),
        ("".join(f"x{i} row\n" for i in range(9)) + "d = acc", "line 9 .*: x8 is one input too many; there may be 8"),
    ],
)
def test_texts_that_describe_no_function(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cleave.EpilogueFunction(text)


def test_problems_are_planned_from_types() -> None:
    rng = np.random.default_rng(0)
    a, b = values(rng, 3, 8, 16), values(rng, 3, 16, 12)
    types = {"bias": "float16", "scale": 1.0, "residual": "float32"}
    options = {"batch": 3, "dtype": "float32", "layout": "tt", "device": "cpu"}
    plan = cleave.plan_problem(8, 12, 16, epilogue=gelu_residual(**types), **options)
    arrays = {"bias": values(rng, 12).astype(np.float16), "scale": 0.5, "residual": values(rng, 3, 8, 12)}
    made = plan.run(a, b, epilogue=gelu_residual(**arrays))
    for got, expected in zip(made, cleave.gemm(a, b, epilogue=gelu_residual(**arrays)), strict=True):
        np.testing.assert_array_equal(got, expected)
    with pytest.raises(ValueError, match=r"the plan is for .*bias: float16"):
        plan.run(a, b, epilogue=gelu_residual(**arrays | {"bias": values(rng, 12)}))


def test_functions_are_copied_and_pickled() -> None:
    """As models are that hold one."""
    ones = np.ones((2, 3), np.float32)
    for again in (copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))):
        assert repr(again(scaled)) == repr(scaled)
        assert again(scaled.function) == scaled.function
        d = cleave.gemm(ones, ones.T, epilogue=again(scaled(weight=np.ones(2, np.float32))))
        np.testing.assert_array_equal(d, 6)
