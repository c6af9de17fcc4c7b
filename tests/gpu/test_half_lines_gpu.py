"""Pixels in lines of 64 bytes, every direction, tile and split, against float64."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from conv_cases import KINDS, Case  # noqa: E402
from conv_reference import Axis, Convolution  # noqa: E402

CASES = {
    "three lines a tap": Convolution(2, 96, 96, (Axis(13, 3, 1, 1, 1), Axis(17, 3, 1, 1, 1))),
    "3-D": Convolution(2, 96, 96, (Axis(4, 3, 1, 1, 1), Axis(9, 3, 1, 1, 1), Axis(14, 3, 1, 1, 1))),
    "one line a tap": Convolution(3, 32, 32, (Axis(21, 3, 1, 1, 1), Axis(12, 3, 1, 1, 1))),
    "classes": Convolution(2, 160, 224, (Axis(15, 3, 2, 2, 2, 2), Axis(18, 5, 3, 2, 1))),
    "classes without taps": Convolution(2, 96, 96, (Axis(17, 2, 5), Axis(11, 1, 3, 1, 1))),
    "lines that are not full": Convolution(2, 80, 88, (Axis(13, 3, 1, 1, 1), Axis(10, 3, 1, 1, 1))),
}
TILES = (
    *("64x64", "128x96", "128x96 multicast 1x2", "128x128 multicast 2x1", "128x128 pingpong", "128x192"),
    *("128x192 multicast 2x1", "128x256", "256x96", "256x96 multicast 2x1", "256x128"),
)
SPLITS = ("", " parallel 5", " stream_k 1")


def serves(case: Case, kernel: str) -> bool:
    """Checks it, where it does."""
    try:
        case.check_kernel(kernel)
    except ValueError as error:
        assert "cannot serve" in str(error)
        return False
    return True


@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize("kind", KINDS)
def test_every_tile_and_split(kind: str, tile: str) -> None:
    splits = SPLITS[:1] if "pingpong" in tile else SPLITS
    served = [
        serves(case, f"sm90 {tile} half_lines{split}")
        for case in (Case(kind, convolution) for convolution in CASES.values())
        for split in splits
    ]
    # Three strips of pixels are not shared.
    assert any(served) == ((kind, tile) != ("wgrad", "256x96 multicast 2x1"))


HALF_STRIPS = {
    "whole lines": Convolution(2, 32, 128, (Axis(13, 3, 1, 1, 1), Axis(17, 3, 1, 1, 1))),
    "half lines, 3-D": Convolution(2, 32, 96, (Axis(4, 3, 1, 1, 1), Axis(9, 3, 1, 1, 1), Axis(14, 3, 1, 1, 1))),
    "part of them": Convolution(3, 24, 136, (Axis(21, 3, 1, 1, 1), Axis(12, 3, 1, 1, 1))),
    "classes": Convolution(2, 56, 224, (Axis(15, 3, 2, 2, 2, 2), Axis(18, 5, 3, 2, 1))),
}


@pytest.mark.parametrize("lines", ["", " half_lines"])
@pytest.mark.parametrize("tile", ["64x32", "128x32", "128x32 multicast 1x2"])
def test_filters_in_half_strips(tile: str, lines: str) -> None:
    for split in SPLITS if "multicast" in tile else (*SPLITS, " cluster 2"):
        served = [
            serves(Case("dgrad", convolution, dtype, **more), f"sm90 {tile}{lines}{split}")
            for convolution in HALF_STRIPS.values()
            for dtype, more in (("float16", {}), ("bfloat16", {"has_c": True, "out_dtype": "float32"}))
        ]
        assert any(served)


@pytest.mark.parametrize("kind", KINDS)
def test_beside_c_and_a_bias(kind: str) -> None:
    other = {} if kind == "wgrad" else {"has_bias": True, "activation": "relu"}
    for tile in ("128x96", "128x128", "128x192"):
        Case(kind, CASES["three lines a tap"], "bfloat16", has_c=True, **other).check_kernel(f"sm90 {tile} half_lines")
