"""Arguments of every kind: a result or an exception that says why; never a crash.

ZeroDivisionError stands for an exception of the caller's own object, which may pass.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

import cleave

# Python itself warns of a __index__ that gives a boolean.
pytestmark = pytest.mark.filterwarnings("ignore:__index__ returned:DeprecationWarning")


class Raises:
    """Every attribute raises something that has nothing to do with attributes."""

    def __getattr__(self, name: str) -> Any:
        raise ZeroDivisionError(name)


class Answers:
    """The protocols of arrays and streams, with senseless answers."""

    def __init__(self, answer: Any):
        self._answer = answer
        self.__array_interface__ = answer
        self.__cuda_array_interface__ = answer
        self.cuda_stream = answer
        self.name = answer

    def __dlpack__(self, **_):
        return self._answer

    def __dlpack_device__(self):
        return self._answer

    def __index__(self):
        return self._answer

    def __float__(self):
        return self._answer


class ClaimsDevice(Answers):
    def __dlpack_device__(self):
        return (1, 0)


class Failing:
    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, **_):
        raise ZeroDivisionError

    def __index__(self):
        raise ZeroDivisionError

    __float__ = __index__


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.complex_numbers(),
    st.text(),
    st.binary(),
)
junk = st.one_of(
    scalars,
    st.lists(scalars, max_size=3),
    st.tuples(scalars, scalars),
    st.dictionaries(
        st.sampled_from(["shape", "typestr", "strides", "version", "stream"]),
        st.one_of(scalars, st.tuples(st.integers(), st.integers()), st.sampled_from(["<f4", "<V2"])),
    ),
    st.builds(object),
    st.builds(Raises),
    st.builds(Failing),
    st.sampled_from([int, np.ndarray, len, Ellipsis, NotImplemented, np, np.float16, np.dtype("f2")]),
)
things = st.one_of(junk, st.builds(Answers, junk), st.builds(ClaimsDevice, junk))


@st.composite
def arrays(draw) -> np.ndarray:
    dtype = draw(
        st.sampled_from(["f4", "f4", "f2", "i1", "f8", "i4", "?", "c8", ">f4", "O", "V2", "V1", "U3", "M8[s]"])
    )
    array = np.zeros(draw(npst.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=5)), dtype)
    if draw(st.booleans()):
        array = array[draw(npst.basic_indices(array.shape))]
    if isinstance(array, np.ndarray) and draw(st.booleans()):
        array = array.T
        array.flags.writeable = draw(st.booleans())
    return array


def operands() -> st.SearchStrategy:
    square = st.builds(lambda: np.ones((4, 4), np.float32))
    return st.one_of(square, square, arrays(), things)


anything = st.one_of(operands(), things)
OPTIONS = {
    "c": anything,
    "alpha": anything,
    "beta": anything,
    "bias": anything,
    "activation": st.one_of(anything, st.just("relu")),
    "out": anything,
    "out_dtype": anything,
    "split_k_mode": st.one_of(anything, st.sampled_from(["serial", "auto"])),
    "split_k_slices": anything,
    "deterministic": anything,
    "sum_order": anything,
    "kernel": anything,
    "precision": anything,
    "stream": anything,
    "workspace": anything,
}


def check(call: Callable[..., Any], *positional: Any, **options: Any) -> None:
    try:
        result = call(*positional, **options)
    except (TypeError, ValueError) as error:
        assert str(error)
    except ZeroDivisionError:
        pass
    else:
        assert isinstance(result, np.ndarray)


@settings(max_examples=600)
@given(operands(), operands(), st.fixed_dictionaries({}, optional=OPTIONS))
def test_gemm(a: Any, b: Any, options: dict[str, Any]) -> None:
    check(cleave.gemm, a, b, **options)


# One thing wrong at a time reaches further than many.
@settings(max_examples=600)
@given(st.sampled_from(["a", "b", *OPTIONS]), anything)
def test_gemm_with_one_thing_wrong(name: str, value: Any) -> None:
    arguments = {"a": np.ones((4, 4), np.float32), "b": np.ones((4, 4), np.float32), name: value}
    check(cleave.gemm, **arguments)


SCALED_OPTIONS = OPTIONS | {
    "scale_a": anything,
    "scale_b": anything,
    "scale_d": anything,
    "out_scale": anything,
    "amax": anything,
    "azp": anything,
    "azp_adj": anything,
    "use_fast_accum": anything,
    "static_b": anything,
}


@settings(max_examples=600)
@given(st.sampled_from(["a", "b", *SCALED_OPTIONS]), anything)
def test_scaled_gemm_with_one_thing_wrong(name: str, value: Any) -> None:
    square, one = np.ones((4, 4), np.int8), np.ones(1, np.float32)
    out = np.ones((4, 4), np.float32)
    arguments = {"a": square, "b": square, "scale_a": one, "scale_b": one, "out": out}
    check(cleave.scaled_gemm, **arguments | {name: value})


bounds = st.one_of(anything, st.lists(st.integers(-9, 9), max_size=5).map(np.array), st.just(np.arange(3)))
GROUPED_OPTIONS = OPTIONS | {
    "offs": bounds,
    "indptr": bounds,
    "starts": bounds,
    "sizes": bounds,
    "counts": bounds,
    "alignment": anything,
    "scale_a": anything,
    "scale_b": anything,
    "use_fast_accum": anything,
    "zero_rest": anything,
    "check_offsets": st.one_of(anything, st.just(True)),
}


few_wrong = st.sets(st.sampled_from(["a", "b", *GROUPED_OPTIONS]), max_size=3).flatmap(
    lambda names: st.fixed_dictionaries({name: GROUPED_OPTIONS.get(name, operands()) for name in sorted(names)})
)


@settings(max_examples=600)
@given(st.sampled_from([(4, 4), (2, 4, 4)]), st.sampled_from([(4, 4), (3, 4, 4)]), few_wrong)
def test_grouped_gemm_with_few_things_wrong(a: Any, b: Any, wrong: dict[str, Any]) -> None:
    arguments = {"a": np.ones(a, np.float32), "b": np.ones(b, np.float32), "offs": np.arange(3)}
    check(cleave.grouped_gemm, **arguments | wrong)


numbers = st.one_of(anything, st.integers(-2, 3), st.lists(st.integers(-1, 3), max_size=3), st.just("same"))
sizes = st.one_of(numbers, st.tuples(*[st.integers(-1, 5)] * 4))
four = st.one_of(
    anything,
    npst.arrays(np.float32, st.tuples(*[st.integers(0, 4)] * 4), elements=st.just(1.0)),
)
CONV_OPTIONS = (
    OPTIONS
    | dict.fromkeys(("input", "weight", "grad_output"), four)
    | dict.fromkeys(("stride", "padding", "dilation", "groups", "output_padding"), numbers)
    | dict.fromkeys(("input_size", "weight_size"), sizes)
    | {"convert": st.one_of(st.just(True), anything), "division": anything, "accumulate": anything}
)
# What each is called with, and what it alone may be given.
CONVOLUTIONS = {
    cleave.conv2d: (("input", "weight"), ()),
    cleave.conv2d_dgrad: (("input_size", "weight", "grad_output"), ("division",)),
    cleave.conv2d_wgrad: (("input", "weight_size", "grad_output"), ("accumulate",)),
    cleave.conv_transpose2d: (("input", "weight"), ("output_padding",)),
}
GOOD_CONV = {
    "input_size": (2, 4, 3, 3),
    "weight_size": (4, 4, 1, 1),
    "input": np.ones((2, 4, 3, 3), np.float32),
    "weight": np.ones((4, 4, 1, 1), np.float32),
    "grad_output": np.ones((2, 4, 3, 3), np.float32),
}


@settings(max_examples=600)
@given(st.sampled_from([*CONVOLUTIONS]), st.data())
def test_convolutions_with_few_things_wrong(function: Any, data: st.DataObject) -> None:
    taken, alone = CONVOLUTIONS[function]
    common = ("stride", "padding", "dilation", "groups", "convert")
    names = data.draw(st.sets(st.sampled_from([*OPTIONS, *taken, *common, *alone]), max_size=3))
    wrong = {name: data.draw(CONV_OPTIONS[name]) for name in sorted(names)}
    arguments = {name: GOOD_CONV[name] for name in taken} | {"convert": True} | wrong
    check(function, **arguments)


@settings(max_examples=200)
@given(
    st.lists(anything, max_size=3),
    st.dictionaries(
        st.sampled_from([*SCALED_OPTIONS, *GROUPED_OPTIONS, *CONV_OPTIONS, "x"]),
        anything,
        max_size=3,
    ),
)
def test_plans(positional: list[Any], options: dict[str, Any]) -> None:
    plan = cleave.plan_gemm(np.ones((4, 4), np.float32), np.ones((4, 4), np.float32))
    for call in (
        plan.run,
        plan.prepare,
        cleave.plan_gemm,
        cleave.plan_scaled_gemm,
        cleave.plan_grouped_gemm,
        cleave.grouped_gemm_wgrad,
        cleave.plan_problem,
        cleave.op.Gemm,
        cleave.op.ScaledGemm,
        cleave.op.GroupedGemm,
        cleave.plan_conv2d,
        cleave.plan_conv_problem,
        cleave.op.Conv2dFprop,
    ):
        with contextlib.suppress(TypeError, ValueError, ZeroDivisionError, cleave.CudaError):
            call(*positional, **options)
