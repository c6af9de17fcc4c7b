"""Weight gradients read the other way, with filters as columns: every tile and split, against float64."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from conv_cases import Case  # noqa: E402
from conv_reference import Axis, Convolution  # noqa: E402

CASES = {
    "taps side by side": Convolution(2, 128, 160, (Axis(13, 3, 1, 1, 1), Axis(17, 3, 1, 1, 1))),
    "a batch of taps": Convolution(2, 72, 88, (Axis(13, 3, 1, 1, 1), Axis(10, 3, 1, 1, 1))),
    "3-D": Convolution(2, 64, 96, (Axis(4, 3, 1, 1, 1), Axis(9, 3, 1, 1, 1), Axis(14, 3, 1, 1, 1))),
    "strides and dilation": Convolution(3, 192, 320, (Axis(15, 3, 2, 2, 2, 2), Axis(18, 5, 3, 2, 1))),
    "one tap": Convolution(2, 320, 64, (Axis(21, 1, 1), Axis(12, 1, 1))),
}
TILES = (
    *("64x64", "64x128", "128x80", "128x96", "128x96 multicast 1x2", "128x128 multicast 2x1"),
    *("128x128 pingpong", "128x160", "128x256", "192x80", "192x96", "192x160", "192x160 multicast 2x1"),
    *("256x80", "256x96", "256x128", "256x160", "256x160 multicast 2x1"),
)
SPLITS = ("", " parallel 5", " serial 3", " cluster 4", " stream_k 1")


def kernel(tile: str, split: str = "") -> str:
    size, *variants = tile.split(" ", 1)
    return " ".join([f"sm90 {size} transposed", *variants]) + split


@pytest.mark.parametrize("tile", TILES)
def test_every_tile_and_split(tile: str) -> None:
    alone = "pingpong" in tile or "multicast" in tile
    served = 0
    for convolution in CASES.values():
        for split in SPLITS[::4] if "multicast" in tile else SPLITS[:1] if alone else SPLITS:
            try:
                Case("wgrad", convolution).check_kernel(kernel(tile, split))
            except ValueError as error:
                assert "cannot serve" in str(error)
            else:
                served += 1
    assert served >= len(CASES)


@pytest.mark.parametrize(
    "tile", ["128x96", "128x160"]
)  # tests/cpp/conv_turned_test.cpp: which have no registers for it
def test_beside_c(tile: str) -> None:
    Case("wgrad", CASES["taps side by side"], "bfloat16", has_c=True).check_kernel(kernel(tile))
