"""Keywords: a mistyped one is refused by the name that was meant, whatever function it went to."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import cleave
from cleave._mistakes import parameters_of, takes_any_keyword
from cleave.compat import deep_gemm, flashinfer, torch, vllm

MODULES = (cleave, cleave.moe, cleave.emit, deep_gemm, flashinfer, torch, vllm)
A, B = np.ones((4, 6), np.float32), np.ones((6, 5), np.float32)
PACKED = cleave.pack_weights(np.ones((5, 64), np.float32), 64)


def functions_of(module: ModuleType) -> list[Callable[..., Any]]:
    public = (getattr(module, name) for name in getattr(module, "__all__", vars(module)))
    return [f for f in public if inspect.isfunction(f) or type(f).__name__ == "nb_func"]


FUNCTIONS = [
    function
    for module in MODULES
    for function in functions_of(module)
    if not (inspect.isfunction(function) and takes_any_keyword(function))
    and any(len(name) > 3 for name in parameters_of(function))
]


@pytest.mark.parametrize("function", [cleave.gemm, cleave.moe.gather, cleave.conv2d])
def test_a_keyword_that_is_no_text_is_refused(function: Callable[..., Any]) -> None:
    """In words of nanobind's or CPython's."""
    with pytest.raises((TypeError, UnicodeEncodeError)):
        function(A, B, **{"\ud800": 1})


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_every_function_says_which_keyword_was_meant(function: Callable[..., Any]) -> None:
    (meant, *_) = (name for name in parameters_of(function) if len(name) > 3)
    mistyped = meant[:-2] + meant[-1]
    with pytest.raises(TypeError) as caught:
        function(**{mistyped: None})
    expected = f"{function.__name__}() got an unexpected keyword argument '{mistyped}'."
    assert str(caught.value) == f"{expected} Did you mean '{meant}'?"


def test_all_are_seen() -> None:
    names = {function.__name__ for function in FUNCTIONS}
    assert {"gemm", "plan_gemm", "conv2d", "permute", "smooth", "pytorch", "_scaled_mm"} <= names
    assert len(names) > 50


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: cleave.gemm(A, B, activaton="relu"), "Did you mean 'activation'?"),
        (
            lambda: cleave.mixed_gemm(np.ones((4, 64), np.float16), PACKED, activaton="relu"),
            "Did you mean 'activation'?",
        ),
        # Functions of Python, called as most calls are: 3.11 enters them otherwise than by **.
        (lambda: cleave.pack_weights(A, grop_size=32), "Did you mean 'group_size'?"),
        (
            lambda: cleave.gemm(A, B, zzz=1),
            "gemm() got an unexpected keyword argument 'zzz'; it ha",
        ),
        (lambda: cleave.gemm(A, B, transpose_b=True), "'transpose_b'; pass b.T, a view: nothing is copied"),
        (lambda: cleave.gemm(A, B, transA=True), "'transA'; pass a.T, a view: nothing is copied"),
        (lambda: cleave.gemm(A), "gemm() is missing b"),
        (lambda: cleave.gemm(b=B), "gemm() is missing a"),
        (
            lambda: cleave.gemm(A, B, None),
            "2 positional arguments but 3 were given; pass bias",
        ),
        (lambda: cleave.gemm(A, B, a=A), "gemm() got multiple values for argument 'a'"),
        (lambda: cleave.plan_gemm(A, B).run(A, B, ot=A), "GemmPlan.run() got an unexpected"),
        (lambda: cleave.plan_gemm(A, B).run(A), "GemmPlan.run() is missing b"),
        (lambda: cleave.plan_gemm(A, B).prepare(steam=None), "Did you mean 'stream'?"),
        (lambda: cleave.op.Gemm(elment="float32"), "Did you mean 'element'?"),
        (lambda: cleave.op.Gemm().run(A, B, split_k_mod="auto"), "Did you mean 'split_k_mode'?"),
        (lambda: cleave.op.Gemm().construct(A, B, bia=A), "Did you mean 'bias'?"),
    ],
)
def test_what_is_wrong_with_a_call(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(TypeError) as caught:
        call()
    assert message in str(caught.value)


def test_other_refusals_stay_as_they_are() -> None:
    with pytest.raises(TypeError, match="a must be an array"):
        cleave.gemm(None, B)
    with pytest.raises(ValueError, match='activation is "rel"'):
        cleave.gemm(A, B, activation="rel")


@pytest.mark.parametrize(
    ("call", "meant"),
    [
        (lambda: cleave.gemm(A, B, deterministic="batch_invarant"), "batch_invariant"),
        (lambda: cleave.plan_problem(8, 8, 8, dtype="int8", scaling="rows", device="cpu"), "row"),
        (lambda: cleave.plan_conv_problem(1, (4,), 4, 4, (1,), dtype="int8", scaling="tenser", device="cpu"), "tensor"),
    ],
)
def test_values_say_which_was_meant(call: Callable[[], Any], meant: str) -> None:
    with pytest.raises(ValueError, match=f"Did you mean '{meant}'"):
        call()


def test_layers_say_it_too() -> None:
    layers = pytest.importorskip("cleave.torch", exc_type=ImportError)
    with pytest.raises(TypeError, match="Did you mean 'top_k'"):
        layers.MoE(8, 8, 4, topk=2)
    with pytest.raises(TypeError, match="Did you mean 'granularity'"):
        layers.W8A8Linear.from_linear(None, granularty="row")


def test_bias_stands_before_c_everywhere() -> None:
    lists = [parameters_of(function) for function in functions_of(cleave)]
    lists.append(parameters_of(vars(cleave.GemmPlan)["run"]))
    with_bias = [names for names in lists if {"bias", "c"} <= {*names}]
    assert len(with_bias) == 23
    for names in with_bias:
        between = names[names.index("bias") + 1 : names.index("c")]
        # torch has the bias of convolutions among what may be passed by position.
        assert not between or names[:2] == ["input", "weight"], names
