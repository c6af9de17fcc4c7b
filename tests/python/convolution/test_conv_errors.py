"""Every kind of bad input of convolutions: the argument, the value seen, the remedy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import remedies

import cleave


def nhwc(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    """Ones of the logical shape (N, C, ...), channels last."""
    first, channels, *axes = shape
    return np.moveaxis(np.ones((first, *axes, channels), dtype), -1, 1)


def line(size: int, dtype: Any = np.float32) -> np.ndarray:
    return np.ones(size, dtype)


INPUT, WEIGHT, OUTPUT = nhwc(2, 6, 9, 8), nhwc(10, 3, 3, 2), nhwc(2, 10, 5, 4)
GEOMETRY = {"stride": 2, "padding": ((1, 1), (0, 0)), "groups": 2}
CALLS: dict[str, tuple[Any, dict[str, Any]]] = {
    "fprop": (cleave.conv2d, {"input": INPUT, "weight": WEIGHT}),
    "dgrad": (
        cleave.conv2d_dgrad,
        {"input_size": INPUT.shape, "weight": WEIGHT, "grad_output": OUTPUT},
    ),
    "wgrad": (
        cleave.conv2d_wgrad,
        {"input": INPUT, "weight_size": WEIGHT.shape, "grad_output": OUTPUT},
    ),
    "transpose": (cleave.conv_transpose2d, {"input": OUTPUT, "weight": WEIGHT}),
}

Case = tuple[str, dict[str, Any], type[Exception], tuple[str, ...]]

# The function, what is passed beside or instead of its good arguments, the exception, and words of
# its message.
BAD: dict[str, Case] = {
    # arrays
    "input is a list": ("fprop", {"input": [1.0]}, TypeError, ("input must be an array", "list")),
    "weight is None": ("fprop", {"weight": None}, TypeError, ("weight must be an array",)),
    "input is no batch": (
        "fprop", {"input": INPUT[0]}, ValueError, ("input has 3 dimensions", "must have 4")),
    "input has a time": (
        "fprop", {"input": nhwc(1, 6, 1, 9, 8)}, ValueError, ("input has 5 dimensions",)),
    "input has 7 axes": (
        "fprop", {"input": np.ones((1,) * 7, np.float32)}, ValueError, ("7 dimensions",)),
    "input is float64": (
        "fprop", {"input": INPUT.astype(np.float64)}, TypeError,
        ("input is float64", "float16, bfloat16, float32, int8, float8_e4m3fn or float8_e5m2")),
    "integers backwards": (
        "dgrad", {"grad_output": OUTPUT.astype(np.int8)}, TypeError,
        ("grad_output is int8", "float16, bfloat16 or float32")),
    "two dtypes": (
        "fprop", {"weight": WEIGHT.astype(np.float16)}, TypeError,
        ("input is float32 and weight is float16", "convert")),
    "bias is int32": (
        "fprop", {"bias": line(10, np.int32)}, TypeError, ("bias is int32", "convert")),
    "out is int8": (
        "dgrad", {"out": INPUT.astype(np.int8)}, TypeError, ("d is int8", "quantise")),
    "out_dtype is float8": (
        "wgrad", {"out_dtype": "float8_e5m2"}, TypeError, ("d is float8_e5m2", "quantise")),
    "out_dtype is none": ("fprop", {"out_dtype": "half"}, TypeError, ("out_dtype is half",)),
    "out and out_dtype": (
        "fprop", {"out": OUTPUT.copy("K"), "out_dtype": "float16"}, TypeError,
        ("out is float32, but out_dtype is float16",)),
    # shapes
    "channels do not match": (
        "fprop", {"input": nhwc(2, 5, 9, 8)}, ValueError,
        ("input is (2, 5, 9, 8)", "weight is (10, 3, 3, 2)", "groups = 2", "2 x 3 channels",
         "input has 5")),
    "channels are last in sizes": (
        "fprop", {"input": np.ones((2, 9, 8, 6), np.float32), "weight": np.ones((10, 3, 2, 3), np.float32)}, ValueError,
        ("channels second", "transpose both")),
    "channels of another number of groups": (
        "fprop", {"groups": 5}, ValueError, ("groups = 5", "5 x 3 channels")),
    "filters do not divide": (
        "fprop", {"groups": 3}, ValueError, ("weight is (10, 3, 3, 2)", "groups is 3", "divide")),
    "no groups": ("fprop", {"groups": 0}, ValueError, ("groups is 0", "at least 1")),
    "negative groups": ("fprop", {"groups": -2}, ValueError, ("groups is -2",)),
    "groups is huge": ("fprop", {"groups": 2**40}, ValueError, ("groups is 1099511627776",)),
    "bias is of the input": (
        "fprop", {"bias": line(6)}, ValueError, ("bias is (6,)", "(10,)", "each channel")),
    "bias has a stride": (
        "fprop", {"bias": line(20)[::2]}, ValueError, ("bias is not contiguous", "bias.contiguous()")),
    "c is of another shape": (
        "fprop", {"c": INPUT}, ValueError, ("c is (2, 6, 9, 8); it must be (2, 10, 5, 4)",)),
    "out is of another shape": (
        "dgrad", {"out": OUTPUT.copy("K")}, ValueError,
        ("out is (2, 10, 5, 4); it must be (2, 6, 9, 8)",)),
    "grad_output is of another convolution": (
        "dgrad", {"grad_output": nhwc(2, 10, 5, 5)}, ValueError,
        ("grad_output is (2, 10, 5, 5)", "is (2, 10, 5, 4)")),
    "images do not match": (
        "wgrad", {"input": nhwc(3, 6, 9, 8)}, ValueError, ("is (3, 10, 5, 4)",)),
    "filters do not match": (
        "wgrad", {"weight_size": (8, 3, 3, 2)}, ValueError, ("is (2, 8, 5, 4)",)),
    "channels of weight_size": (
        "wgrad", {"weight_size": (10, 6, 3, 2)}, ValueError,
        ("weight_size is (10, 6, 3, 2)", "2 x 6 channels")),
    "channels of input_size": (
        "dgrad", {"input_size": (2, 3, 9, 8)}, ValueError, ("input_size is (2, 3, 9, 8)",)),
    "input_size is short": (
        "dgrad", {"input_size": (2, 6, 9)}, ValueError, ("input_size has 3 numbers", "have 4")),
    "input_size is a number": ("dgrad", {"input_size": 9}, TypeError, ("input_size must be",)),
    "input_size has a float": (
        "dgrad", {"input_size": (2, 6, 9.0, 8)}, TypeError, ("input_size", "float")),
    "input_size is negative": (
        "dgrad", {"input_size": (2, 6, -9, 8)}, ValueError,
        ("size of the image along the height is -9",)),
    "input_size is huge": (
        "dgrad", {"input_size": (2, 6, 2**31, 8)}, ValueError,
        ("the size of the image is 2147483648",)),
    "input_size overflows": (
        "dgrad", {"input_size": (2**40, 6, 2**28, 2**28)}, ValueError, ("1099511627776 images",)),
    "many images": (
        "dgrad", {"input_size": (2**29, 6, 9, 8)}, ValueError,
        ("38654705664 pixels in its images", "2^31 - 1")),
    "weight_size is negative": (
        "wgrad", {"weight_size": (-2, 3, 3, 2)}, ValueError, ("-1 filters in a group",)),
    "input's channels do not match in a transposed one": (
        "transpose", {"input": nhwc(2, 6, 5, 4)}, ValueError,
        ("input is (2, 6, 5, 4)", "input's channels (6) must match", "(10)")),
    # geometry
    "stride is 0": ("fprop", {"stride": 0}, ValueError, ("stride along the height is 0", "1 or")),
    "a stride is negative": (
        "fprop", {"stride": (1, -1)}, ValueError, ("stride along the width is -1",)),
    "stride is huge": ("fprop", {"stride": 2**31}, ValueError, ("stride is 2147483648",)),
    "stride is beyond int64": ("fprop", {"stride": 2**70}, ValueError, ("stride is out of range",)),
    "stride is a float": ("fprop", {"stride": 1.0}, TypeError, ("stride must be", "float")),
    "stride is None": ("fprop", {"stride": None}, TypeError, ("stride must be", "NoneType")),
    "stride is a flag": ("fprop", {"stride": True}, TypeError, ("stride must be", "bool")),
    "three strides": (
        "fprop", {"stride": (1, 2, 3)}, ValueError, ("stride has 3 values", "each of the 2 axes")),
    "no strides": ("fprop", {"stride": ()}, ValueError, ("stride has 0 values",)),
    "dilation is 0": ("fprop", {"dilation": 0}, ValueError, ("dilation along the height is 0",)),
    "dilation is huge": (
        "fprop", {"dilation": 2**31 - 1}, ValueError,
        ("filter with its dilation spans 4294967295 pixels",)),
    "padding is negative": (
        "fprop", {"padding": -1}, ValueError, ("padding before the image along the height is -1",)),
    "padding overflows": (
        "fprop", {"padding": 2**30}, ValueError, ("image with its padding spans 2147483657",)),
    "padding is a word": (
        "fprop", {"padding": "full"}, ValueError, ("padding is 'full'", '"same"')),
    "padding of an axis has three": (
        "fprop", {"padding": ((1, 2, 3), 0)}, ValueError, ("padding of an axis has 3 values",)),
    "padding is a float": ("fprop", {"padding": (0.5, 1)}, TypeError, ("padding must be", "float")),
    "same with a stride": (
        "fprop", {"padding": "same"}, ValueError, ('padding is "same"', "stride is 2")),
    "same of a transposed one": (
        "transpose", {"padding": "same"}, ValueError, ('padding is "same"', "pass numbers")),
    "output of size zero": (
        "fprop", {"dilation": (5, 1), "padding": 0}, ValueError,
        ("output is of size zero", "height", "11 pixels (3 taps, dilation 5)", "has 9")),
    "many classes": (
        "dgrad", {"input_size": (2, 6, 300, 300), "stride": 299, "grad_output": nhwc(2, 10, 2, 2)},
        ValueError, ("strides are 1 x 299 x 299", "at most 65536")),
    "output_padding is the stride": (
        "transpose", {"output_padding": 2}, ValueError,
        ("output_padding is 2", "stride is 2", "less")),
    "output_padding is negative": (
        "transpose", {"output_padding": (0, -1)}, ValueError, ("output_padding is -1",)),
    "a transposed one of size zero": (
        "transpose", {"padding": 6}, ValueError, ("output has a size of -1", "padding takes 12")),
    # orders of memory
    "input is NCHW": (
        "fprop", {"input": np.ascontiguousarray(INPUT)}, ValueError,
        ("input is (2, 6, 9, 8) with strides (432, 72, 8, 1)", "channels must be neighbours",
         "contiguous(memory_format=torch.channels_last)", "transpose(0, 3, 1, 2)", "convert=True")),
    "weight is KCRS": (
        "fprop", {"weight": np.ascontiguousarray(WEIGHT)}, ValueError,
        ("weight is (10, 3, 3, 2)", "taps packed", "convert=True")),
    "out is NCHW": (
        "fprop", {"out": np.ascontiguousarray(OUTPUT)}, ValueError,
        ("channels must be neighbours",
         "Pass one with channels last in memory (torch.channels_last), and copy the result from it")),
    "a slice of rows": (
        "fprop", {"input": nhwc(2, 6, 12, 8)[:, :, :9]}, ValueError, ("equally far apart",)),
    "a slice of columns": (
        "fprop", {"input": nhwc(2, 6, 9, 16)[:, :, :, :8]}, ValueError, ("image by image",)),
    "backwards": ("fprop", {"input": INPUT[:, :, ::-1]}, ValueError, ("equally far apart",)),
    "one channel for all": (
        "fprop", {"input": np.broadcast_to(nhwc(2, 1, 9, 8), INPUT.shape)}, ValueError,
        ("channels must be neighbours",)),
    "one pixel for all": (
        "fprop", {"input": np.broadcast_to(nhwc(1, 6, 1, 1), INPUT.shape)}, ValueError,
        ("a.stride_row is 0", "a is input")),
    "convert is a number": ("fprop", {"convert": 1}, TypeError, ("convert must be True or False",)),
    # memory
    "out is input": (
        "wgrad", {"out": np.moveaxis(np.moveaxis(OUTPUT, 1, -1).ravel()[:180].reshape(10, 3, 2, 3),
                                     -1, 1)}, ValueError, ("d overlaps a", "(a is grad_output, d is out)")),
    "out is read-only": (
        "fprop", {"out": np.broadcast_to(OUTPUT, OUTPUT.shape)}, ValueError, ("out is read-only",)),
    # options
    "beta without c": ("fprop", {"beta": 2}, ValueError, ("beta is 2", "pass c")),
    "swiglu": ("fprop", {"activation": "swiglu"}, ValueError, ("no swiglu",)),
    "unknown activation": ("fprop", {"activation": "rellu"}, ValueError, ('"relu"?',)),
    "unknown division": ("dgrad", {"division": "fats"}, ValueError, ('Did you mean "fast"?',)),
    "kernel on the CPU": ("fprop", {"kernel": "sm90"}, ValueError, ("kernel is sm90", "CPU")),
    "accumulate without out": (
        "wgrad", {"accumulate": True}, ValueError, ("accumulate is True", "pass out")),
    "accumulate with c": (
        "wgrad", {"accumulate": True, "out": WEIGHT.copy("K"), "c": WEIGHT}, ValueError,
        ("accumulate is True", "no c")),
    "accumulate is a number": ("wgrad", {"accumulate": 1}, TypeError, ("accumulate", "int")),
    "activation backwards": ("wgrad", {"activation": "relu"}, TypeError, ("'activation'",)),
    "workspace is small": (
        "wgrad", {"split_k_mode": "parallel", "split_k_slices": 4, "workspace": line(1)},
        ValueError, ("workspace has 4 bytes",)),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD.values(), ids=BAD)
def test_refusals(case: Case) -> None:
    kind, wrong, exception, words = case
    function, good = CALLS[kind]
    out = wrong.get("out")
    before = None if out is None else out.copy()
    with pytest.raises(exception) as raised:
        function(**good | GEOMETRY | wrong)
    for word in words:
        assert word in str(raised.value)
    remedies.check(str(raised.value), function)
    if out is not None:
        np.testing.assert_array_equal(out, before)


@pytest.mark.parametrize("kind", CALLS)
def test_what_is_changed_above_is_good(kind: str) -> None:
    function, good = CALLS[kind]
    function(**good | GEOMETRY)


@pytest.mark.parametrize(
    ("arguments", "exception", "words"),
    [
        (("forward", INPUT, WEIGHT), ValueError, 'kind is "forward"; it must be one of fprop, dgrad, wgrad'),
        (("none", INPUT, WEIGHT), ValueError, 'kind is "none"; it must be one of fprop, dgrad, wgrad'),
        ((None, INPUT, WEIGHT), TypeError, "kind must be a string"),
        (("dgrad", OUTPUT, WEIGHT), TypeError, "size must be a shape, got NoneType"),
    ],
)  # fmt: skip
def test_plans(arguments: tuple[Any, ...], exception: type[Exception], words: str) -> None:
    with pytest.raises(exception) as raised:
        cleave.plan_conv2d(*arguments, **GEOMETRY)
    assert words in str(raised.value)


def test_outputs_say_their_own_size() -> None:
    with pytest.raises(ValueError, match="size is given"):
        cleave.plan_conv2d("fprop", INPUT, WEIGHT, size=OUTPUT.shape, **GEOMETRY)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"groups": 4}, "channels is 6 and groups is 4"),
        ({"size": ()}, "size has 0 numbers"),
        ({"size": (1, 2, 3, 4)}, "size has 4 numbers"),
        ({"filter_size": (1, 2, 3)}, "filter_size has 3 values"),
        ({"bias": "column"}, "bias is a column"),
        ({"device": "gpu"}, 'device is "gpu"'),
    ],
)
def test_plans_without_arrays(changes: dict[str, Any], words: str) -> None:
    sizes = {"images": 2, "size": (9, 8), "channels": 6, "filters": 10, "filter_size": 3}
    with pytest.raises(ValueError) as raised:
        cleave.plan_conv_problem(**sizes | {"device": "cpu"} | changes)
    assert words in str(raised.value)


def test_gradients_are_refused() -> None:
    torch = pytest.importorskip("torch")
    x, w = torch.from_numpy(INPUT).requires_grad_(), torch.from_numpy(WEIGHT)
    with pytest.raises(ValueError, match="input requires grad"):
        cleave.conv2d(x, w, groups=2)
    with torch.no_grad():
        cleave.conv2d(x, w, groups=2)
