"""Convolutions read the other way: weight gradients with filters as columns, the others with pixels as columns."""

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


THREE = Axis(17, 3, 1, 1, 1)
WITH_PIXELS_AS_COLUMNS = {
    "3x3": Convolution(3, 64, 64, (Axis(13, 3, 1, 1, 1), THREE)),
    "3x3x3": Convolution(2, 64, 64, (Axis(5, 3, 1, 1, 1), Axis(9, 3, 1, 1, 1), THREE)),
    "128 filters": Convolution(2, 128, 128, (Axis(13, 3, 1, 1, 1), THREE)),
    "few of a strip": Convolution(2, 72, 40, (Axis(13, 3, 1, 1, 1), THREE)),
    "5x5, one side": Convolution(2, 64, 96, (Axis(14, 5, 1, 2, 2), Axis(20, 5, 1, 3, 1))),
    "stride 2": Convolution(3, 64, 64, (Axis(15, 3, 2, 1, 1), Axis(18, 3, 2, 1, 1))),
}
PIXEL_TILES = (
    *("64x128", "64x192", "64x256", "64x256 pingpong", "64x128 multicast 2x1"),
    *("128x128", "128x144", "128x128 pingpong", "128x256", "128x128 multicast 2x1", "128x128 multicast 1x2"),
)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("kind", ["fprop", "dgrad"])
@pytest.mark.parametrize("tile", PIXEL_TILES)
def test_pixels_as_columns(tile: str, kind: str, dtype: str) -> None:
    served = 0
    for convolution in WITH_PIXELS_AS_COLUMNS.values():
        for split in ("",) if "multicast" in tile or "pingpong" in tile else ("", " cluster 2", " stream_k 1"):
            try:
                Case(kind, convolution, dtype).check_kernel(kernel(tile, split))
            except ValueError as error:
                assert "cannot serve" in str(error)
            else:
                served += 1
    assert served > 0


@pytest.mark.parametrize(
    "more", [{"has_c": True, "has_bias": True, "activation": "relu"}, {"out_dtype": "float32"}], ids=str
)
@pytest.mark.parametrize("kind", ["fprop", "dgrad"])
def test_what_columns_of_pixels_make_is_finished(kind: str, more: dict) -> None:
    Case(kind, WITH_PIXELS_AS_COLUMNS["3x3"], "bfloat16", **more).check_kernel(kernel("64x128"))
