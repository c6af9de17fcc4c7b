"""Weight gradients of depthwise convolutions, and of narrow groups, from lines in shared memory: each cut by name."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from conv_cases import DTYPES, Case  # noqa: E402
from conv_reference import Axis, Convolution  # noqa: E402


def depthwise(images: int, channels: int, height: Axis, width: Axis, group: int = 1) -> Convolution:
    return Convolution(images, channels, channels, (height, width), groups=channels // group)


LAYERS = {
    "7x7": depthwise(5, 64, Axis(14, 7, 1, 3, 3), Axis(14, 7, 1, 3, 3)),
    "several strips": depthwise(2, 40, Axis(9, 7, 1, 3, 3), Axis(45, 7, 1, 3, 3)),
    "many small images": depthwise(23, 32, Axis(3, 7, 1, 3, 3), Axis(4, 7, 1, 3, 3)),
    "one line": depthwise(3, 32, Axis(1, 7, 1, 3, 3), Axis(29, 7, 1, 3, 3)),
    "stride 2": depthwise(3, 48, Axis(27, 7, 2, 3, 2), Axis(30, 7, 2, 2, 3)),
    "lines between those that are met": depthwise(2, 32, Axis(31, 2, 4, 1, 1), Axis(20, 7, 1, 3, 3)),
    "dilated": depthwise(2, 32, Axis(23, 6, 1, 4, 5, 2), Axis(25, 6, 1, 5, 5, 2)),
    "more padding than filter": depthwise(2, 32, Axis(3, 2, 1, 4, 5), Axis(7, 6, 1, 9, 8)),
    "11x11": depthwise(2, 24, Axis(20, 11, 1, 5, 5), Axis(21, 11, 1, 5, 5)),
    "3x3": depthwise(4, 72, Axis(13, 3, 1, 1, 1), Axis(30, 3, 1, 1, 1)),
    "groups of 2": depthwise(2, 32, Axis(11, 3, 1, 1, 1), Axis(40, 3, 1, 1, 1), group=2),
}
CUTS = [
    f"direct {strip}x{channels} ahead {lines}{split}"
    for strip, channels, lines in ((14, 32, 2), (16, 32, 1), (7, 32, 3), (5, 16, 2), (2, 64, 1), (1, 24, 8))
    for split in ("", " parallel 3")
]
DIRECT = {"kernel": "direct"}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", LAYERS)
def test_cuts_of_staged_gradients(name: str, dtype: str) -> None:
    case = Case("wgrad", LAYERS[name], dtype, options=DIRECT)
    count = 0
    for cut in CUTS:
        try:
            case.check_kernel(cut)
        except ValueError:
            continue
        count += 1
    assert count > 1


@pytest.mark.parametrize("more", [{}, {"has_c": True}, {"out_dtype": "float32"}], ids=str)
@pytest.mark.parametrize("name", ["7x7", "several strips", "11x11"])
def test_staged_gradients_as_chosen(name: str, more: dict[str, Any]) -> None:
    Case("wgrad", LAYERS[name], "bfloat16", options=DIRECT, **more).check_repeats()


@pytest.mark.parametrize("at", [(0, 0), (4, 44), (8, 13)], ids=str)
def test_infinite_pixels_that_staged_gradients_meet(at: tuple[int, int]) -> None:
    """They reach the taps that meet them, and no other."""
    Case("wgrad", LAYERS["several strips"], options=DIRECT).check_infinity("input", (0, 5, *at), reaches=False)
