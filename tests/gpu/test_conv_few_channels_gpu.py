"""Convolutions of few channels on the GPU, by the direct kernels."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from conv_cases import Case, channels_last, split  # noqa: E402
from conv_reference import Axis, Convolution  # noqa: E402

import cleave  # noqa: E402

FEW_CHANNELS = {
    "7x7 stride 2": Convolution(3, 3, 64, (Axis(62, 7, 2, 3, 3), Axis(224, 7, 2, 3, 3))),
    "3x3": Convolution(2, 3, 96, (Axis(33, 3, 1, 1, 1), Axis(34, 3, 1, 1, 1))),
    "3x3 stride 2": Convolution(70, 3, 32, (Axis(40, 3, 2, 1, 1), Axis(190, 3, 2, 0, 1))),
    "four channels": Convolution(5, 4, 320, (Axis(64, 3, 1, 1, 1), Axis(63, 3, 1, 1, 1))),
    "two channels": Convolution(2, 2, 7, (Axis(19, 5, 3, 2, 2, 2), Axis(25, 5, 3, 1, 2))),
    "one channel": Convolution(2, 1, 24, (Axis(50, 9, 2, 4, 3), Axis(46, 11, 1, 5, 5))),
    "patches": Convolution(2, 3, 130, (Axis(30, 4, 4), Axis(28, 4, 4))),
    "along a line": Convolution(4, 1, 16, (Axis(4000, 25, 5, 12, 12),)),
    "pixels beside a filter's": Convolution(2, 3, 48, (Axis(11, 2, 5, 1, 1), Axis(20, 2, 5, 1, 0))),
}
MORE_CHANNELS = {
    "along three axes": Convolution(2, 3, 96, (Axis(5, 3, 1, 1, 1), Axis(30, 3, 1, 1, 1), Axis(38, 3, 1, 1, 1))),
    "three axes, strides": Convolution(2, 2, 40, (Axis(6, 2, 2, 1, 0), Axis(19, 3, 2, 1, 1), Axis(23, 3, 1, 0, 0))),
    "16 channels": Convolution(2, 16, 320, (Axis(33, 3, 1, 1, 1), Axis(34, 3, 1, 1, 1))),
    "12 channels, stride 2": Convolution(2, 12, 96, (Axis(33, 3, 2, 1, 1), Axis(37, 3, 2, 1, 1))),
    "8 channels": Convolution(3, 8, 200, (Axis(20, 5, 1, 2, 2), Axis(65, 5, 1, 2, 2))),
    "5 channels": Convolution(2, 5, 72, (Axis(20, 3, 1, 1, 1), Axis(30, 3, 1, 1, 1))),
}


@pytest.mark.parametrize("mode", [{}, {"split_k_mode": "none"}, split("parallel", 3), split("parallel", 50)], ids=str)
@pytest.mark.parametrize("name", [name for name, of in FEW_CHANNELS.items() if of.filters % 8 == 0])
def test_gradients_of_few_channels_filters(name: str, mode: dict[str, Any]) -> None:
    for dtype in ("float16", "bfloat16"):
        for more in ({}, {"has_c": True}, {"out_dtype": "float32"}):
            Case("wgrad", FEW_CHANNELS[name], dtype, options={"kernel": "direct"} | mode, **more).check_repeats()


def test_infinite_pixels_that_no_output_of_few_channels_meets() -> None:
    x, dy = channels_last(2, 3, 12, 12, dtype="float16"), channels_last(2, 16, 5, 5, dtype="float16")
    expected = cleave.conv2d_wgrad(x, (16, 3, 3, 3), dy, stride=2, kernel="direct")
    x[..., 11], x[..., 11, :] = float("inf"), float("nan")
    assert torch.equal(cleave.conv2d_wgrad(x, (16, 3, 3, 3), dy, stride=2, kernel="direct"), expected)


@pytest.mark.parametrize("name", [*FEW_CHANNELS, *MORE_CHANNELS])
def test_few_channels_by_the_direct_kernel(name: str) -> None:
    of = (FEW_CHANNELS | MORE_CHANNELS)[name]
    for dtype in ("float16", "bfloat16"):
        for epilogue in ({}, {"has_c": True, "has_bias": True, "activation": "relu"}):
            Case("fprop", of, dtype, options={"kernel": "direct"}, **epilogue).check()
    Case("fprop", of, "bfloat16", out_dtype="float32", options={"kernel": "direct"}).check()


@pytest.mark.parametrize("name", ["7x7 stride 2", "3x3", "one channel"])
def test_infinite_pixels_of_few_channels(name: str) -> None:
    """They reach the outputs whose taps meet them, and no other, though those are read together."""
    case = Case("fprop", FEW_CHANNELS[name], options={"kernel": "direct"})
    case.check_infinity("input", (slice(None), 0, 11, 13))


GRADIENTS_OF_FEW_CHANNELS = {
    "7x7 stride 2": Convolution(3, 3, 64, (Axis(62, 7, 2, 3, 3), Axis(224, 7, 2, 3, 3))),
    "3x3": Convolution(2, 3, 128, (Axis(33, 3, 1, 1, 1), Axis(35, 3, 1, 1, 1))),
    "3x3, many lines": Convolution(2, 3, 64, (Axis(700, 3, 1, 1, 1), Axis(70, 3, 1, 1, 1))),
    "3x3 stride 2": Convolution(70, 3, 32, (Axis(40, 3, 2, 1, 1), Axis(190, 3, 2, 0, 1))),
    "4x4 stride 2": Convolution(8, 3, 64, (Axis(64, 4, 2, 1, 1), Axis(64, 4, 2, 1, 1))),
    "four channels": Convolution(5, 4, 320, (Axis(64, 3, 1, 1, 1), Axis(63, 3, 1, 1, 1))),
    "eight channels": Convolution(5, 8, 96, (Axis(64, 3, 1, 1, 1), Axis(63, 3, 1, 1, 1))),
    "seven channels": Convolution(2, 7, 72, (Axis(21, 3, 2, 1, 1), Axis(31, 3, 2, 1, 1))),
    "24 channels": Convolution(2, 24, 48, (Axis(21, 3, 1, 1, 1), Axis(31, 3, 1, 1, 1))),
    "two channels": Convolution(2, 2, 8, (Axis(19, 5, 3, 2, 2, 2), Axis(25, 5, 3, 1, 2, 2))),
    "one channel": Convolution(2, 1, 24, (Axis(50, 9, 2, 4, 3), Axis(46, 11, 1, 5, 5))),
    "patches": Convolution(2, 3, 136, (Axis(30, 4, 4), Axis(28, 4, 4))),
    "along a line": Convolution(4, 1, 16, (Axis(4000, 25, 4, 12, 12),)),
    "pixels beside a filter's": Convolution(2, 3, 48, (Axis(11, 2, 3, 1, 1), Axis(20, 2, 3, 1, 0))),
    "stride above filter": Convolution(2, 5, 48, (Axis(11, 1, 2), Axis(20, 1, 3))),
    "along three axes": Convolution(2, 3, 96, (Axis(5, 3, 1, 1, 1), Axis(30, 3, 2, 1, 1), Axis(38, 3, 1, 1, 1))),
}


@pytest.mark.parametrize("name", GRADIENTS_OF_FEW_CHANNELS)
def test_data_gradients_to_few_channels(name: str) -> None:
    for dtype in ("float16", "bfloat16"):
        for epilogue in ({}, {"has_c": True, "has_bias": True, "activation": "relu"}, {"out_dtype": "float32"}):
            Case("dgrad", GRADIENTS_OF_FEW_CHANNELS[name], dtype, options={"kernel": "direct"}, **epilogue).check()


@pytest.mark.parametrize("infinite", ["output", "weight"])
@pytest.mark.parametrize("name", ["7x7 stride 2", "3x3", "two channels"])
def test_infinite_gradients_to_few_channels(name: str, infinite: str) -> None:
    """They reach the pixels where they meet something, and no other: no filter meets what lies beside the outputs."""
    case = Case("dgrad", GRADIENTS_OF_FEW_CHANNELS[name], options={"kernel": "direct"})
    at = (slice(None), 0, 2, 3) if infinite == "output" else (slice(None), slice(None), 0)
    case.check_infinity(infinite, at)


ONE_TAP = {
    "24 and 144": Convolution(3, 24, 144, (Axis(19), Axis(23))),
    "16 and 8": Convolution(2, 16, 8, (Axis(112), Axis(111))),
    "40 and 168": Convolution(2, 40, 168, (Axis(28), Axis(28))),
    "64 and 192": Convolution(5, 64, 192, (Axis(56), Axis(56))),
    "72 and 136": Convolution(1, 72, 136, (Axis(7), Axis(5))),
    "8 and 192": Convolution(9, 8, 192, (Axis(40), Axis(40))),
    "one pixel": Convolution(1, 24, 40, (Axis(1), Axis(1))),
    "along a line": Convolution(3, 96, 24, (Axis(5000),)),
}


@pytest.mark.parametrize("name", ONE_TAP)
@pytest.mark.parametrize("kind", ["fprop", "dgrad"])
def test_one_tap_of_few_channels(name: str, kind: str) -> None:
    """By the tile that is chosen, and by every other one that there is."""
    of = ONE_TAP[name]
    for dtype in ("float16", "bfloat16"):
        for epilogue in ({"out_dtype": "float32"}, {"has_c": True, "has_bias": True, "activation": "relu"}):
            Case(kind, of, dtype, options={"kernel": "direct"}, **epilogue).check()
    case = Case(kind, of, options={"kernel": "direct"})
    case.check()
    columns = of.filters if kind == "fprop" else of.channels
    served = 0
    for rows in (128, 256, 512):
        try:
            case.check_kernel(f"direct {rows}x{columns}")
            served += 1
        except ValueError:
            continue
    assert served > 0
