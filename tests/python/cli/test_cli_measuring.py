"""How the `cleave` command measures: operands, references and errors, timing."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest
from array_libraries import library_for

import cleave
from cleave.cli import values
from cleave.testing import (
    accuracy,
    activations,
    arrays,
    case,
    conv,
    conv_operands,
    conv_reference,
    dense,
    grouped,
    grouped_operands,
    measure,
    operands,
    quantization,
)
from cleave.testing.conv_case import KINDS, ConvCase
from cleave.testing.errors import ToolError
from cleave.testing.grouped_case import FORMS, GroupedCase


@pytest.mark.parametrize("layout", values.LAYOUTS)
@pytest.mark.parametrize("batch", [1, 3])
def test_operands_have_the_layout(layout, batch):
    gemm = case.GemmCase(4, 6, 8, batch=batch, dtype="float32", layout=layout)
    made = operands.make_operands(arrays.NumpyArrays(), gemm)
    lead = (batch,) if batch > 1 else ()
    assert made.a.shape == (*lead, 4, 8)
    assert made.b.shape == (*lead, 8, 6)
    assert (made.a.strides[-1] == 4) == (layout[0] == "t")
    assert (made.b.strides[-1] == 4) == (layout[1] == "t")
    assert np.isnan(made.out).all()


def strides(library, array):
    if library.name == "torch":
        return array.stride()
    return tuple(stride // array.itemsize for stride in array.strides)


@pytest.mark.parametrize("scaling", values.SCALINGS)
@pytest.mark.parametrize("layout", values.LAYOUTS)
@pytest.mark.parametrize("dtype", ["int8", "float8_e4m3fn", "float8_e5m2"])
def test_scaled_operands_stand_for_the_normal_values(dtype, layout, scaling):
    library = library_for(dtype)
    m, n, k = 140, 200, 300
    gemm = case.GemmCase(m, n, k, dtype=dtype, layout=layout, scaling=scaling, out_dtype="float32")
    made = operands.make_operands(library, gemm)
    assert str(made.a.dtype).endswith(dtype)
    assert made.a.shape == (m, k)
    assert made.b.shape == (k, n)
    assert strides(library, made.a) == ((k, 1) if layout[0] == "t" else (1, m))
    assert strides(library, made.b) == ((n, 1) if layout[1] == "t" else (1, k))
    if scaling == "none":
        assert made.scales == {}
        return
    real_a, real_b = operands.real_factors(library, gemm, made)
    steps = {"int8": 0.04, "float8_e4m3fn": 2.0**-4, "float8_e5m2": 2.0**-3}[dtype]
    for real, shape, seed in ((real_a, (m, k), 0), (real_b, (n, k), 1)):
        normal = library.float64(library.normal(shape, "float32", seed))
        assert float((abs(real - normal) / (0.5 + abs(normal))).max()) < steps


@pytest.mark.parametrize(
    ("scaling", "shapes"),
    [
        ("tensor", ((1, 1), (1, 1))),
        ("row", ((140, 1), (1, 200))),
        ("block_1x128", ((140, 3), (3, 200))),
        ("block_128x128", ((140, 3), (3, 2))),
    ],
)
def test_scales_have_the_shapes_and_layouts_that_the_peers_demand(scaling, shapes):
    library = arrays.NumpyArrays()
    gemm = case.GemmCase(140, 200, 300, dtype="int8", scaling=scaling, out_dtype="float32")
    made = operands.make_operands(library, gemm)
    a, b = made.scales["scale_a"], made.scales["scale_b"]
    assert (a.shape, b.shape) == shapes
    if scaling.startswith("block"):
        assert strides(library, a) == (1, 140)
        assert strides(library, b) == ((200, 1) if scaling == "block_1x128" else (1, 3))


@pytest.mark.parametrize("form", FORMS)
def test_grouped_operands_have_their_shapes_and_layouts(form):
    library = arrays.NumpyArrays()
    case_ = GroupedCase(3, 9, 5, 7, sizes=(4, 0, 5), form=form, dtype="float32", bias="row")
    made = grouped_operands.make_operands(library, case_)
    shapes = {
        "forward": ((9, 7), (3, 7, 5), (9, 5)),
        "dgrad": ((9, 5), (3, 5, 7), (9, 7)),
        "wgrad": ((5, 9), (9, 7), (3, 5, 7)),
    }[form]
    assert (made.a.shape, made.b.shape, made.out.shape) == shapes
    assert made.bias.shape == (3, made.out.shape[-1])
    assert made.offs.tolist() == [4, 4, 9]
    unit = {"forward": (1, 0), "dgrad": (1, 1), "wgrad": (0, 1)}[form]
    assert strides(library, made.a)[unit[0]] == 1
    assert strides(library, made.b)[unit[1] - 2] == 1
    assert np.isnan(made.out).all()


@pytest.mark.parametrize("scaling", values.GROUP_SCALINGS[1:])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", ["int8", "float8_e4m3fn"])
def test_scaled_groups_stand_for_normal_values(dtype, form, scaling):
    library = library_for(dtype)
    sizes = (130, 0, 1, 60)
    options = {"dtype": dtype, "scaling": scaling, "out_dtype": "float32"}
    case_ = GroupedCase(4, sum(sizes), 140, 200, sizes=sizes, form=form, **options)
    made = grouped_operands.make_operands(library, case_)
    scale_a, scale_b = made.scales["scale_a"], made.scales["scale_b"]
    n = 200 if form == "dgrad" else 140
    if scaling == "row":
        expected = ((4, 140), (4, 200)) if form == "wgrad" else ((191,), (4, n))
    elif form == "wgrad":
        expected = (140, 4), (4, 200 if scaling == "block_1x128" else 2)
    else:
        expected = (191, 2), (4, 2, n if scaling == "block_1x128" else 2)
    assert (tuple(scale_a.shape), tuple(scale_b.shape)) == expected
    for group, size in enumerate(sizes):
        product, own = grouped_operands.of_group(case_, made, group)
        assert size in (product.m, product.k)
        for real in operands.real_factors(library, product, own):
            if size > 1:
                assert float((real * real).mean()) == pytest.approx(1, rel=0.1)
                assert float(abs(real).max()) < 6


def conv_cases(**options):
    """A geometry of each kind that has everything."""
    return [
        ConvCase(
            2, (6, 7), 4, 6, (3, 2), (2, 1), ((1, 0), (2, 2)), (1, 2), 2, kind, **options
        )
        for kind in KINDS
    ]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_conv_operands_are_channels_last(kind):
    library = arrays.NumpyArrays()
    layer = ConvCase(2, (6, 7), 4, 8, 3, groups=2, kind=kind, bias="row")
    made = conv_operands.make_operands(library, layer)
    assert list(made.inputs) == {
        "fprop": ["input", "weight"], "dgrad": ["output", "weight"], "wgrad": ["output", "input"],
    }[kind]  # fmt: skip
    shapes = {"input": (2, 4, 6, 7), "weight": (8, 2, 3, 3), "output": (2, 8, 4, 5)}
    for name, array in (made.inputs | {layer.made: made.out}).items():
        assert array.shape == shapes[name]
        assert np.moveaxis(array, 1, -1).flags.c_contiguous
    assert np.isnan(made.out).all()
    assert made.bias.shape == (made.out.shape[1],)


def direct_convolution(case_, parts):
    """In float64, one multiplication after the other."""
    x, w, y = (
        np.asarray(parts[name], np.float64) if name in parts else np.zeros(case_.shapes[name])
        for name in ("input", "weight", "output")
    )
    channels, filters = w.shape[1], w.shape[0] // case_.groups
    axis_h, axis_w = case_.axes
    for n, k, c in itertools.product(range(case_.images), range(w.shape[0]), range(channels)):
        of_x = k // filters * channels + c
        for p, q in itertools.product(*map(range, case_.outputs)):
            for r, s in itertools.product(*map(range, case_.filter_size)):
                i = p * axis_h.stride + r * axis_h.dilation - axis_h.before
                j = q * axis_w.stride + s * axis_w.dilation - axis_w.before
                if not (0 <= i < axis_h.size and 0 <= j < axis_w.size):
                    continue
                if case_.kind == "fprop":
                    y[n, k, p, q] += x[n, of_x, i, j] * w[k, c, r, s]
                elif case_.kind == "dgrad":
                    x[n, of_x, i, j] += y[n, k, p, q] * w[k, c, r, s]
                else:
                    w[k, c, r, s] += y[n, k, p, q] * x[n, of_x, i, j]
    return {"fprop": y, "dgrad": x, "wgrad": w}[case_.kind]


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("case_", conv_cases(dtype="float32"), ids=KINDS)
def test_conv_reference(case_, library):
    if library == "torch":
        pytest.importorskip("torch")
    library = arrays.NumpyArrays() if library == "numpy" else arrays.TorchArrays("cpu")
    made = conv_operands.make_operands(library, case_)
    parts = {name: np.asarray(array) for name, array in made.inputs.items()}
    right = library.from_numpy(direct_convolution(case_, parts), "float64")
    expected = conv_reference.reference(library, case_, made)
    found = conv_reference.matrices(library, case_, right)
    assert float(abs(found - expected.values).max()) < 1e-12
    # Rows are as large as they would be if signs were random.
    sizes = np.asarray((expected.values**2).mean(-1)) ** 0.5
    typical = np.asarray(expected.row_magnitudes)
    assert ((typical > 0) == (sizes > 0)).all()
    assert 0.5 < sizes.mean() / typical.mean() < 2


@pytest.mark.parametrize("case_", conv_cases(dtype="float32"), ids=KINDS)
def test_a_wrong_element_of_a_convolution_is_not_acceptable(case_):
    library = arrays.NumpyArrays()
    made = conv_operands.make_operands(library, case_)
    assert not conv.errors(library, case_, made).acceptable
    parts = {name: np.asarray(array) for name, array in made.inputs.items()}
    made.out[...] = direct_convolution(case_, parts)
    assert conv.errors(library, case_, made).acceptable
    made.out[-1, -1, -1, -1] += 0.5
    assert not conv.errors(library, case_, made).acceptable


def test_conv_reference_has_bias_and_activation():
    library = arrays.NumpyArrays()
    plain, *_ = conv_cases(dtype="float32")
    biased, *_ = conv_cases(dtype="float32", bias="row", activation="relu")
    made = conv_operands.make_operands(library, biased)
    parts = {name: np.asarray(array) for name, array in made.inputs.items()}
    right = direct_convolution(plain, parts) + made.bias.reshape(1, -1, 1, 1)
    made.out[...] = np.maximum(right, 0)
    assert conv.errors(library, biased, made).acceptable


def test_errors_of_several_outputs():
    one = accuracy.Errors(0.5, 0.1, 0.2, 3.0, 1.0, True)
    other = accuracy.Errors(0.25, 0.3, 0.4, 1.0, 2.0, True)
    both = accuracy.overall([(one, 3), (other, 1)])
    assert (both.max_relative, both.max_row, both.max_absolute) == (0.5, 0.4, 3.0)
    assert both.rms_absolute == pytest.approx(math.sqrt((3 * 1 + 4) / 4))
    assert both.acceptable
    wrong = accuracy.Errors(math.nan, math.nan, math.nan, math.nan, math.nan, False)
    for parts in ([(wrong, 1), (one, 3)], [(one, 3), (wrong, 1)]):
        assert math.isnan(accuracy.overall(parts).max_row)
        assert not accuracy.overall(parts).acceptable


@pytest.mark.parametrize("form", FORMS)
def test_an_error_in_one_group_is_not_acceptable(form):
    library = arrays.NumpyArrays()
    case_ = GroupedCase(3, 9, 5, 7, sizes=(4, 0, 5), form=form, dtype="float32")
    made = grouped_operands.make_operands(library, case_)
    for group, (begin, end) in enumerate(case_.ranges):
        _, own = grouped_operands.of_group(case_, made, group)
        own.out[...] = own.a @ own.b
        assert (begin == end) == (0 in own.a.shape)
    assert grouped.errors(library, case_, made).acceptable
    if form == "wgrad":  # an empty group's gradient is zero, exactly
        made.out[1, 2, 3] = 1e-30
    else:
        made.out[8, 3] += 0.1
    assert not grouped.errors(library, case_, made).acceptable


def test_quantize_by_hand():
    library = arrays.NumpyArrays()
    x = np.array([[1.0, -127.0, 0.0], [0.0, 0.0, 0.0]])
    q, scale = quantization.quantize(library, x, "int8", (1, None))
    assert q.tolist() == [[1, -127, 0], [0, 0, 0]]
    assert scale.tolist() == [[1.0], [0.0]]
    assert quantization.dequantize(library, q, scale, (1, None)).tolist() == x.tolist()
    q, scale = quantization.quantize(library, x, "int8", (1, 2))
    assert scale.tolist() == [[1.0, 0.0], [0.0, 0.0]]


@pytest.mark.parametrize("activation", list(activations.ELEMENTWISE))
def test_reference_activations(activation):
    library = arrays.NumpyArrays()
    x = np.linspace(-4, 4, 33)
    scalar = {
        "none": lambda v: v,
        "relu": lambda v: max(v, 0.0),
        "relu2": lambda v: max(v, 0.0) ** 2,
        "gelu": lambda v: v * 0.5 * (1 + math.erf(v / math.sqrt(2))),
        "gelu_tanh": lambda v: v * 0.5 * (1 + math.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3))),
        "silu": lambda v: v / (1 + math.exp(-v)),
    }[activation]
    given = operands.Operands(a=x[:, None], b=np.ones((1, 1)), bias=None, out=None)
    gemm = case.GemmCase(33, 1, 1, dtype="float32", activation=activation)
    expected = accuracy.reference(library, gemm, given)
    np.testing.assert_allclose(expected.values, [[scalar(float(v))] for v in x], atol=1e-15)
    np.testing.assert_allclose(expected.row_magnitudes, [scalar(abs(v)) for v in x], atol=1e-15)


def test_reference_of_swiglu():
    library = arrays.NumpyArrays()
    case_ = case.GemmCase(3, 4, 16, dtype="float32", activation="swiglu", bias="row")
    assert case_.flops == 2 * 3 * 8 * 16
    given = operands.make_operands(library, case_)
    assert (given.b.shape, given.bias.shape, given.out.shape) == ((16, 8), (8,), (3, 4))
    sums = given.a.astype(np.float64) @ given.b + given.bias
    right = sums[:, :4] / (1 + np.exp(-sums[:, :4])) * sums[:, 4:]
    expected = accuracy.reference(library, case_, given)
    np.testing.assert_allclose(expected.values, right, atol=1e-12)
    np.testing.assert_array_less(expected.row_magnitudes, 10 * abs(right).max(-1))
    assert accuracy.compare(library, right, expected).acceptable
    assert not accuracy.compare(library, 1.2 * right, expected).acceptable


def test_reference_of_integers_and_their_scales():
    library = arrays.NumpyArrays()
    a, b = np.array([[1, 2], [3, 4]], np.int8), np.array([[5, 6], [7, 8]], np.int8)
    gemm = case.GemmCase(2, 2, 2, dtype="int8")
    exact = accuracy.reference(library, gemm, operands.Operands(a, b, None, None))
    assert exact.values.tolist() == [[19, 22], [43, 50]]
    assert not exact.tolerance.any()
    scales = {
        "scale_a": np.array([[10.0], [1.0]]),
        "scale_b": np.array([[1.0, 0.5]]),
        "scale_d": np.array([2.0]),
    }
    gemm = case.GemmCase(2, 2, 2, dtype="int8", scaling="row", out_dtype="int8")
    given = operands.Operands(a, b, None, None, scales)
    assert accuracy.reference(library, gemm, given).values.tolist() == [[95, 55], [21.5, 12.5]]


def test_errors_are_relative_to_the_reference():
    expected = accuracy.Reference(
        values=np.array([[1.0, 4.0], [0.5, 0.0]]),
        row_magnitudes=np.array([2.0, 0.5]),
        tolerance=np.array([[0.0, 0.5], [0.0, 0.1]]),
    )
    errors = accuracy.compare(arrays.NumpyArrays(), np.array([[1.0, 4.5], [0.5, 0.1]]), expected)
    assert errors.max_absolute == 0.5
    assert errors.max_relative == 0.125
    assert errors.max_row == 0.25
    assert errors.rms_relative == pytest.approx(math.sqrt(0.26 / 17.25))
    assert errors.acceptable
    wrong = accuracy.compare(arrays.NumpyArrays(), np.array([[1.1, 4.0], [0.5, 0.0]]), expected)
    assert not wrong.acceptable


@pytest.mark.parametrize("scaling", ["none", "row"])
def test_poison_and_wrong_elements_are_never_acceptable(scaling):
    dtype = "float16" if scaling == "none" else "int8"
    gemm = case.GemmCase(64, 64, 64, dtype=dtype, scaling=scaling, out_dtype="float16")
    library = arrays.NumpyArrays()
    given = operands.make_operands(library, gemm)
    expected = accuracy.reference(library, gemm, given)
    right = expected.values.astype(np.float16)
    assert accuracy.compare(library, right, expected).acceptable
    for wrong in (math.nan, math.inf, 0.5):
        damaged = right.copy()
        damaged[63, 63] += wrong
        assert not accuracy.compare(library, damaged, expected).acceptable


def test_a_slightly_wrong_scale_of_one_row_is_not_acceptable():
    gemm = case.GemmCase(64, 64, 256, dtype="int8", scaling="row", out_dtype="float16")
    library = arrays.NumpyArrays()
    given = operands.make_operands(library, gemm)
    expected = accuracy.reference(library, gemm, given)
    damaged = expected.values.copy()
    damaged[5] *= 1.003
    errors = accuracy.compare(library, damaged.astype(np.float16), expected)
    assert errors.rms_relative < 1e-3
    assert not errors.acceptable


@pytest.mark.parametrize("dtype", ["int8", "int32", "float16"])
def test_poison_is_what_no_kernel_writes(dtype):
    library = arrays.NumpyArrays()
    array = library.full((3,), 0, dtype)
    library.poison(array)
    poison = math.nan if dtype == "float16" else np.iinfo(dtype).min
    np.testing.assert_array_equal(array, np.full(3, poison, dtype))


def test_interleaved_alternates_and_takes_medians():
    order = []

    class Graph:
        def __init__(self, name, times):
            self.name, self.times = name, iter(times)

        def sample(self):
            order.append(self.name)
            return next(self.times)

    # The first sample of each is a warm-up and does not count.
    medians = measure.interleaved([Graph("a", [99, 1, 5, 3]), Graph("b", [99, 2, 2, 8])], 3)
    assert medians == [3, 2]
    assert "".join(order) == "ababbaab"


def test_host_time_skips_the_warm_up_but_not_the_only_call():
    calls = []
    assert measure.host_microseconds(lambda: calls.append(1), 3) < 1e5
    assert len(calls) == 4
    measure.host_microseconds(lambda: calls.append(1), 3, budget_s=0.0)
    assert len(calls) == 5


def test_operand_sets_exceed_the_cache():
    assert measure.set_count(8_000_000) == 25
    assert measure.set_count(10**9) == 2
    assert measure.set_count(0) > 1


def test_select_says_what_is_missing(monkeypatch):
    monkeypatch.setattr(arrays, "_importable", lambda name: False)
    with pytest.raises(ToolError, match="NumPy has no bfloat16, float8_e5m2: install torch"):
        arrays.select("cpu", {"bfloat16", "float8_e5m2", "int8"})
    monkeypatch.setattr(cleave, "device_count", lambda: 1)
    with pytest.raises(ToolError, match="torch with CUDA or CuPy"):
        arrays.select("cuda:0", {"float16"})
    with pytest.raises(ToolError, match="there is no cuda:1: cleave sees 1 GPUs"):
        arrays.select("cuda:1", {"float16"})
    with pytest.raises(ToolError, match="planning target"):
        arrays.select("h100", {"float16"})


@pytest.mark.parametrize("ue8m0", [False, True])
def test_found_scales_must_be_those_of_their_blocks(ue8m0):
    library = arrays.NumpyArrays()
    gemm = case.GemmCase(3, 200, 64, dtype="float32", out_dtype="int8", out_scale="block_1x128", use_ue8m0=ue8m0)
    made = operands.make_operands(library, gemm)
    assert not dense.errors(library, gemm, made).acceptable  # neither values nor scales are there
    dense.run(dense.plan_for(gemm, made), made, None)
    assert dense.errors(library, gemm, made).acceptable

    def damaged(**change):
        return dense.errors(library, gemm, dataclasses.replace(made, **change)).acceptable

    values, scales = made.out, made.scale_out
    twice = scales.copy()
    twice[2, 1] *= 2
    halves = values.copy()
    halves[2, 128:] = np.round(values[2, 128:] / 2.0)
    assert not damaged(scale_out=twice)
    assert not damaged(scale_out=twice, out=halves)  # nearly the same, but half of the steps are not used
    off = values.copy()
    off[1, 7] += 3
    assert not damaged(out=off)
    absent = scales.copy()
    absent[0, 0] = np.nan
    assert not damaged(scale_out=absent)
