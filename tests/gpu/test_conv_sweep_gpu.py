"""Convolutions of 16 to 192 channels line by line down the images by WGMMA: each cut by name, and as chosen."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from conv_cases import Case  # noqa: E402
from conv_reference import Axis, Convolution  # noqa: E402

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0), reason="WGMMA is Hopper's"
)


def layer(images: int, channels: int, filters: int, *axes: Axis) -> Convolution:
    return Convolution(images, channels, filters, axes)


THREE = Axis(56, 3, 1, 1, 1)
LAYERS = {
    "56 pixels": layer(3, 64, 64, Axis(19, 3, 1, 1, 1), THREE),
    "several strips": layer(2, 64, 64, Axis(9, 3, 1, 1, 1), Axis(150, 3, 1, 1, 1)),
    "two images beside each other": layer(5, 64, 64, Axis(28, 3, 1, 1, 1), Axis(28, 3, 1, 1, 1)),
    "seven images": layer(23, 64, 32, Axis(7, 3, 1, 1, 1), Axis(7, 3, 1, 1, 1)),
    "128 channels": layer(3, 128, 128, Axis(17, 3, 1, 1, 1), Axis(30, 3, 1, 1, 1)),
    "192 channels": layer(2, 192, 192, Axis(9, 3, 1, 1, 1), Axis(30, 3, 1, 1, 1)),
    "96 channels": layer(3, 96, 96, Axis(17, 3, 1, 1, 1), THREE),
    "48 channels": layer(3, 48, 48, Axis(17, 3, 1, 1, 1), THREE),
    "not whole instructions": layer(3, 40, 24, Axis(11, 3, 1, 1, 1), Axis(28, 3, 1, 1, 1)),
    "7 parts": layer(2, 112, 16, Axis(11, 3, 1, 1, 1), Axis(70, 3, 1, 1, 1)),
    "planes of 96": layer(1, 96, 24, Axis(5, 3, 1, 1, 1), Axis(9, 3, 1, 1, 1), Axis(48, 3, 1, 1, 1)),
    "32 channels": layer(3, 32, 32, Axis(17, 3, 1, 1, 1), Axis(61, 3, 1, 1, 1)),
    "filters of part of a block": layer(2, 64, 72, Axis(12, 3, 1, 1, 1), THREE),
    "no padding": layer(2, 64, 64, Axis(20, 3), Axis(66, 3)),
    "one side": layer(2, 64, 64, Axis(11, 3, 1, 2, 0), Axis(33, 3, 1, 0, 2)),
    "more padding than filter": layer(2, 32, 64, Axis(6, 2, 1, 3, 4), Axis(9, 3, 1, 5, 4)),
    "5x5": layer(2, 64, 64, Axis(14, 5, 1, 2, 2), Axis(40, 5, 1, 2, 2)),
    "taps down": layer(2, 64, 64, Axis(9, 4, 1, 1, 2), Axis(64, 1)),
    "planes": layer(2, 64, 64, Axis(5, 3, 1, 1, 1), Axis(9, 3, 1, 1, 1), Axis(64, 3, 1, 1, 1)),
    "planes by themselves": layer(2, 32, 32, Axis(4, 1), Axis(9, 3, 1, 1, 1), Axis(20, 3, 1, 1, 1)),
    "two planes deep": layer(1, 32, 64, Axis(4, 2, 1, 1, 0), Axis(9, 3, 1, 1, 1), Axis(70, 3, 1, 1, 1)),
}
CUTS = [f"direct 64x{n} ahead {lines}" for n in (64, 32) for lines in (1, 2)]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("kind", ["fprop", "dgrad"])
@pytest.mark.parametrize("name", LAYERS)
def test_cuts(name: str, kind: str, dtype: str) -> None:
    case = Case(kind, LAYERS[name], dtype)
    served = 0
    for cut in CUTS:
        try:
            case.check_kernel(cut)
        except ValueError:  # shared memory, or the columns of an instruction
            continue
        served += 1
    assert served > 0


@pytest.mark.parametrize(
    "more", [{"has_c": True, "has_bias": True, "activation": "relu"}, {"out_dtype": "float32"}], ids=str
)
@pytest.mark.parametrize("kind", ["fprop", "dgrad"])
@pytest.mark.parametrize("name", ["56 pixels", "two images beside each other", "planes"])
def test_what_is_made_is_finished(name: str, kind: str, more: dict[str, Any]) -> None:
    case = Case(kind, LAYERS[name], "bfloat16", **more)
    case.check_kernel("direct 64x32 ahead 2")
