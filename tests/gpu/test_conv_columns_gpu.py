"""Depthwise convolutions, and those of narrow groups, down the images: each cut by name."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from conv_cases import DTYPES, Case  # noqa: E402
from conv_reference import Axis, Convolution  # noqa: E402


def depthwise(images: int, channels: int, height: Axis, width: Axis, group: int = 1) -> Convolution:
    return Convolution(images, channels, channels, (height, width), groups=channels // group)


LAYERS = {
    "3x3": depthwise(3, 64, Axis(21, 3, 1, 1, 1), Axis(47, 3, 1, 1, 1)),
    "3x3, stride 2": depthwise(2, 96, Axis(23, 3, 2, 1, 1), Axis(56, 3, 2, 1, 1)),
    "5x5": depthwise(5, 24, Axis(9, 5, 1, 2, 2), Axis(34, 5, 1, 2, 2)),
    "5x5, stride 2": depthwise(2, 40, Axis(31, 5, 2, 2, 1), Axis(40, 5, 2, 1, 2)),
    "7x7": depthwise(2, 32, Axis(20, 7, 1, 3, 3), Axis(37, 7, 1, 3, 3)),
    "one tap down, stride 3": depthwise(2, 16, Axis(10, 1, 3), Axis(35, 5, 3, 2, 2)),
    "dilated": depthwise(1, 32, Axis(19, 3, 1, 2, 2, 2), Axis(33, 3, 1, 2, 2, 2)),
    "more padding than filter": depthwise(2, 16, Axis(5, 2, 2, 3, 4), Axis(36, 3, 1, 4, 4)),
    "one line": depthwise(3, 16, Axis(1, 3, 1, 1, 1), Axis(64, 3, 1, 1, 1)),
    "odd channels": depthwise(2, 35, Axis(12, 3, 1, 1, 1), Axis(33, 3, 1, 1, 1)),
    "groups of 2": depthwise(2, 32, Axis(11, 3, 2, 1, 1), Axis(40, 3, 1, 1, 1), group=2),
    "groups of 4": depthwise(2, 48, Axis(11, 3, 1, 1, 1), Axis(40, 3, 2, 1, 1), group=4),
}
CUTS = [
    "direct 1x64 columns 8",
    "direct 2x32 columns 4",
    "direct 3x32 columns 4",
    "direct 4x32 columns 4",
    "direct 6x48 columns 2",
    "direct 4x48 columns 2",
    "direct 8x16 columns 2",
    "direct 6x8 columns 1",
    "direct 3x5 columns 1",
]
CUTS += [
    f"direct {cut} ahead {lines}"
    for cut, lines in (
        ("5x32 columns 4", 1),
        ("4x64 columns 4", 2),
        ("3x32 columns 4", 8),
        ("2x16 columns 4", 3),
        ("6x48 columns 2", 2),
        ("4x10 columns 2", 5),
        ("1x64 columns 8", 2),
        ("6x5 columns 1", 2),
    )
]
CUTS_AT_ONCE = [
    f"direct {strip}x{channels} at_once columns {vector}"
    for strip, channels, vector in ((1, 64, 4), (2, 32, 2), (3, 48, 2), (4, 64, 2), (5, 128, 4), (6, 8, 1), (7, 64, 2))
]
CUTS_OF_GRADIENTS = [
    f"direct {strip}x{channels} columns {vector}{split}"
    for strip, channels, vector in ((8, 32, 2), (4, 48, 2), (3, 32, 4), (4, 24, 1), (2, 5, 1))
    for split in ("", " parallel 3")
]
FINISHED = ["3x3", "5x5, stride 2", "7x7", "groups of 4"]


def served(case: Case, cuts: list[str]) -> int:
    """How many cuts serve the case, each of which is right."""
    count = 0
    for cut in cuts:
        try:
            case.check_kernel(cut)
        except ValueError:
            continue
        count += 1
    return count


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("kind", ["fprop", "dgrad"])
def test_cuts_of_columns(name: str, kind: str) -> None:
    case = Case(kind, LAYERS[name], options={"kernel": "direct"})
    assert served(case, CUTS) > 1


NOT_AT_ONCE = ("groups of 4", "odd channels")  # too many registers; filters that are no whole pieces of 16 bytes


@pytest.mark.parametrize("name", [name for name in LAYERS if name not in NOT_AT_ONCE])
@pytest.mark.parametrize("kind", ["fprop", "dgrad"])
def test_cuts_at_once(name: str, kind: str) -> None:
    case = Case(kind, LAYERS[name], options={"kernel": "direct"})
    assert served(case, CUTS_AT_ONCE) > 1


@pytest.mark.parametrize("kind", ["fprop", "dgrad"])
def test_all_at_once_finish_what_they_make(kind: str) -> None:
    """All types, with C, bias and an activation; float32 has fewer channels a thread."""
    of = depthwise(3, 96, Axis(7, 3, 1, 1, 1), Axis(7, 3, 1, 1, 1))
    for dtype in DTYPES:
        case = Case(kind, of, dtype, options={"kernel": "direct"}, has_c=True, has_bias=True, activation="relu")
        assert served(case, CUTS_AT_ONCE) > 1


@pytest.mark.parametrize("name", [name for name in LAYERS if name != "groups of 4"])  # more sums than registers
def test_cuts_of_gradients(name: str) -> None:
    case = Case("wgrad", LAYERS[name], options={"kernel": "direct"})
    assert served(case, CUTS_OF_GRADIENTS) > 1


@pytest.mark.parametrize("name", FINISHED)
@pytest.mark.parametrize("kind", ["fprop", "dgrad"])
def test_columns_finish_what_they_make(name: str, kind: str) -> None:
    """All types, with C, bias and an activation, by the cut that is chosen."""
    whole = {"has_c": True, "has_bias": True, "activation": "relu"}
    for dtype in DTYPES:
        Case(kind, LAYERS[name], dtype, options={"kernel": "direct"}, **whole).check()
    Case(kind, LAYERS[name], "bfloat16", out_dtype="float32", options={"kernel": "direct"}).check()
