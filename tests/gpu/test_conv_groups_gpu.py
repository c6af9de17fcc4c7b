"""Convolutions in groups on the GPU: narrow ones, those of powers of two, and wide ones of others."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")

from conv_cases import CASES, DTYPES, KINDS, Case, channels_last, split  # noqa: E402
from conv_reference import Axis, Convolution  # noqa: E402
from served import skip_unless_served  # noqa: E402

import cleave  # noqa: E402


@pytest.mark.parametrize("name", ["depthwise", *(n for n in CASES if n.startswith(("depthwise,", "narrow")))])
@pytest.mark.parametrize("kind", KINDS)
def test_narrow_groups_by_the_direct_kernel(name: str, kind: str) -> None:
    other = {} if kind == "wgrad" else {"has_bias": True, "activation": "relu"}
    for dtype in DTYPES:
        for epilogue in ({}, {"has_c": True} | other):
            case = Case(kind, CASES[name], dtype, options={"kernel": "direct"}, **epilogue)
            case.check()
    Case(kind, CASES[name], "bfloat16", out_dtype="float32", options={"kernel": "direct"}).check()


@pytest.mark.parametrize("slices", [1, 2, 5, 16, 44])
@pytest.mark.parametrize("name", ["depthwise", "depthwise, strided", "narrow groups"])
def test_slices_of_the_direct_kernel(name: str, slices: int) -> None:
    """They are lines of the images, added up in teams: the same bits each time."""
    case = Case("wgrad", CASES[name], options={"kernel": "direct"} | split("parallel", slices))
    case.check()
    first = case.out.clone()
    for _ in range(5):
        case.run()
        assert torch.equal(case.out, first)


def test_pixels_that_no_output_meets() -> None:
    """Infinite ones, beyond the last output of a line and an image, leave weight gradients as they are."""
    x, dy = (channels_last(2, 16, size, size, dtype="float16") for size in (12, 5))
    options = {"stride": 2, "groups": 16, "kernel": "direct"}
    expected = cleave.conv2d_wgrad(x, (16, 1, 3, 3), dy, **options)
    x[..., 11], x[..., 11, :] = float("inf"), float("nan")
    assert torch.equal(cleave.conv2d_wgrad(x, (16, 1, 3, 3), dy, **options), expected)


GROUPS_OF_CHANNELS = {
    "8 channels": Convolution(3, 64, 64, (Axis(29, 3, 1, 1, 1), Axis(31, 3, 1, 1, 1)), groups=8),
    "8 channels, stride 2": Convolution(3, 96, 96, (Axis(29, 3, 2, 1, 1), Axis(56, 3, 2, 1, 1)), groups=12),
    "16 channels": Convolution(5, 128, 128, (Axis(14, 3, 1, 1, 1), Axis(14, 3, 1, 1, 1)), groups=8),
    "16 channels, stride 3": Convolution(2, 80, 80, (Axis(29, 5, 3, 2, 1), Axis(17, 2, 3, 0, 1)), groups=5),
    "32 channels, small images": Convolution(9, 128, 128, (Axis(7, 3, 1, 1, 1), Axis(7, 3, 1, 1, 1)), groups=4),
    "32 channels, stride 2": Convolution(4, 96, 96, (Axis(14, 3, 2, 1, 1), Axis(14, 3, 2, 1, 1)), groups=3),
    "32 channels, dilated": Convolution(2, 64, 64, (Axis(19, 3, 2, 2, 2, 2), Axis(23, 3, 3, 3, 3, 2)), groups=2),
    "64 channels": Convolution(2, 128, 128, (Axis(9, 3, 1, 1, 1), Axis(11, 3, 1, 1, 1)), groups=2),
    "16 to 8": Convolution(2, 96, 48, (Axis(20, 3, 1, 1, 1), Axis(21, 4, 2, 1, 1)), groups=6),
    "8 to 32": Convolution(2, 24, 96, (Axis(20, 3, 2, 1, 1), Axis(21, 3, 1, 1, 1)), groups=3),
    "one tap": Convolution(2, 48, 48, (Axis(20), Axis(21)), groups=3),
    "stride above filter": Convolution(2, 32, 32, (Axis(17, 2, 4), Axis(11, 1, 3, 1, 1)), groups=2),
    "no tap lands": Convolution(2, 32, 32, (Axis(1, 1, 2, 1, 0), Axis(9, 1, 3, 1, 1)), groups=2),
    "padding above filter": Convolution(2, 32, 32, (Axis(5, 2, 2, 3, 4), Axis(7, 3, 1, 4, 4)), groups=2),
    "along a line": Convolution(4, 64, 64, (Axis(1000, 9, 4, 4, 4),), groups=4),
    "one group": Convolution(2, 32, 32, (Axis(65, 3, 1, 1, 1), Axis(70, 3, 1, 1, 1))),
    "one group, 64 to 16": Convolution(2, 64, 16, (Axis(40, 3, 1, 1, 1), Axis(41, 3, 2, 1, 1))),
}
# Warps hold the sums of nine taps, and of so many channels by channels.
MOST_SUMS = 64 * 32
GRADIENTS_OF_GROUPS = [
    name
    for name, of in GROUPS_OF_CHANNELS.items()
    if math.prod(of.shapes["weight"][2:]) <= 9 and of.channels * of.filters <= MOST_SUMS * of.groups**2
]
TILES_OF_SHIFT = [f"direct {m}x{n}" for n in (8, 16, 32, 64, 128, 256) for m in (16, 32, 64, 128, 256, 512)]


def served_by_shift(kind: str, of: Convolution) -> bool:
    """Made channels of a group are a power of two; data gradients to few channels have another method."""
    made = (of.filters if kind == "fprop" else of.channels) // of.groups
    return made.bit_count() == 1 and (of.groups > 1 or made >= 16)


@pytest.mark.parametrize("name", GROUPS_OF_CHANNELS)
@pytest.mark.parametrize("kind", ["fprop", "dgrad"])
def test_groups_of_channels(name: str, kind: str) -> None:
    """By the tile that is chosen, and by every other one that there is."""
    of = GROUPS_OF_CHANNELS[name]
    if not served_by_shift(kind, of):
        pytest.skip("another method's")
    for dtype in ("float16", "bfloat16"):
        for epilogue in ({"out_dtype": "float32"}, {"has_c": True, "has_bias": True, "activation": "relu"}):
            Case(kind, of, dtype, options={"kernel": "direct"}, **epilogue).check()
    case = Case(kind, of, options={"kernel": "direct"})
    case.check()
    served = 0
    for kernel in TILES_OF_SHIFT:
        try:
            case.check_kernel(kernel)
            served += 1
        except ValueError:
            continue
    assert served > 1


@pytest.mark.parametrize("name", GRADIENTS_OF_GROUPS)
def test_gradients_of_groups_filters(name: str) -> None:
    """The same, with slices of several numbers of tiles."""
    for dtype in ("float16", "bfloat16"):
        for more in ({}, {"has_c": True}, {"out_dtype": "float32"}):
            Case("wgrad", GROUPS_OF_CHANNELS[name], dtype, options={"kernel": "direct"}, **more).check()
    case = Case("wgrad", GROUPS_OF_CHANNELS[name], options={"kernel": "direct"})
    served = 0
    for tile in ("128x16", "256x32", "128x32", "128x64", "256x64"):
        for slices in ("", " parallel 2", " parallel 5", " parallel 2 clusters 2", " parallel 6 clusters 3"):
            try:
                case.check_kernel(f"direct {tile}{slices}")
                served += 1
            except ValueError:
                continue
    assert served > 1


def test_infinite_pixels_that_no_output_of_groups_meets() -> None:
    x, dy = channels_last(2, 32, 12, 12, dtype="float16"), channels_last(2, 32, 5, 5, dtype="float16")
    settings = {"stride": 2, "groups": 2, "kernel": "direct"}
    expected = cleave.conv2d_wgrad(x, (32, 16, 3, 3), dy, **settings)
    x[..., 11], x[..., 11, :] = float("inf"), float("nan")
    assert torch.equal(cleave.conv2d_wgrad(x, (32, 16, 3, 3), dy, **settings), expected)


WIDE_GROUPS = {
    "two": Convolution(3, 224, 224, (Axis(14, 3, 1, 1, 1), Axis(13, 3, 1, 1, 1)), groups=2),
    "three, stride 2": Convolution(2, 240, 216, (Axis(28, 3, 2, 1, 1), Axis(27, 3, 2, 1, 1)), groups=3),
    "one tap": Convolution(2, 160, 208, (Axis(20), Axis(21)), groups=2),
    "along three axes": Convolution(2, 144, 160, (Axis(5, 3, 1, 1, 1), Axis(8, 3, 2, 1, 0), Axis(9, 1, 2)), groups=2),
}


@pytest.mark.parametrize("name", WIDE_GROUPS)
@pytest.mark.parametrize("kind", KINDS)
def test_wide_groups(kind: str, name: str) -> None:
    """Groups of other than whole k blocks, each a launch of the Hopper kernel."""
    of, options = WIDE_GROUPS[name], {"kernel": "sm90"}
    skip_unless_served("sm90")
    whole = {"has_c": True} if kind == "wgrad" else {"has_c": True, "has_bias": True, "activation": "relu"}
    for dtype in ("float16", "bfloat16"):
        for epilogue in ({}, whole):
            Case(kind, of, dtype, options=options, **epilogue).check()
    case = Case(kind, of)
    for kernel in ("sm90 128x128 by_group", "sm90 128x64 by_group parallel 3", "sm90 64x128 by_group stream_k 1"):
        case.check_kernel(kernel)


@pytest.mark.parametrize("kind", KINDS)
def test_infinity_stays_in_its_group(kind: str) -> None:
    skip_unless_served("sm90")
    case = Case(kind, WIDE_GROUPS["two"], options={"kernel": "sm90"})
    case.check()
    finite = case.out.clone()
    for name, tensor in case.tensors.items():
        if name != case.made:
            half = tensor.shape[0] // 2 if name == "weight" else tensor.shape[1] // 2
            (tensor[half:] if name == "weight" else tensor[:, half:]).fill_(float("inf"))
    case.run()
    by_group = [x.chunk(2, 0 if kind == "wgrad" else 1) for x in (case.out, finite)]
    assert torch.equal(by_group[0][0], by_group[1][0])
    assert not torch.isfinite(by_group[0][1]).all()
