"""Weight gradients that convolve directly, by each kernel: in one piece, in slices, in clusters of them."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from conv_cases import DTYPES, Case  # noqa: E402
from conv_reference import Axis, Convolution  # noqa: E402


def depthwise(images: int, channels: int, height: Axis, width: Axis) -> Convolution:
    return Convolution(images, channels, channels, (height, width), groups=channels)


LAYERS = {
    "3x3": depthwise(5, 72, Axis(14, 3, 1, 1, 1), Axis(30, 3, 1, 1, 1)),
    "5x5, stride 2": depthwise(3, 48, Axis(27, 5, 2, 2, 2), Axis(29, 5, 2, 2, 2)),
    "7x7, few images": depthwise(2, 96, Axis(7, 7, 1, 3, 3), Axis(7, 7, 1, 3, 3)),
    "lines that no slice has": depthwise(1, 32, Axis(9, 7, 1, 3, 3), Axis(16, 7, 1, 3, 3)),
}
KERNELS = {
    "pixels": (("direct 7x8", "direct 4x16", "direct 8x24"), LAYERS),
    "lines": (("direct 7x8 ahead 2", "direct 14x16 ahead 1"), ("3x3", "7x7, few images", "lines that no slice has")),
    "columns": (("direct 4x16 columns 2", "direct 3x32 columns 1"), ("3x3", "5x5, stride 2")),
}
SERVED = [(kernel, name) for kernel, (_, names) in KERNELS.items() for name in names]  # registers suffice
ALONE = ("", " parallel 3")
CLUSTERS = (" parallel 2 clusters 2", " parallel 6 clusters 3", " parallel 8 clusters 4", " parallel 8 clusters 8")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("kernel", "name"), SERVED)
def test_slices_of_depthwise_gradients(kernel: str, name: str, dtype: str) -> None:
    case = Case("wgrad", LAYERS[name], dtype, options={"kernel": "direct"})
    served = set()
    for cut in KERNELS[kernel][0]:
        for slices in ALONE + CLUSTERS:
            try:
                case.check_kernel(cut + slices)
            except ValueError:  # fewer lines than slices, or more sums than registers
                continue
            served.add(slices)
    assert "" in served
    assert (CLUSTERS[0] in served) == (torch.cuda.get_device_capability() >= (9, 0))


@pytest.mark.parametrize("name", LAYERS)
def test_clusters_with_c(name: str) -> None:
    """As they are chosen, twice, with the same bits."""
    Case("wgrad", LAYERS[name], "bfloat16", options={"kernel": "direct"}, has_c=True).check_repeats()


FIRST_AND_LAST = {
    "few channels": (
        Convolution(3, 3, 24, (Axis(64, 3, 2, 1, 1), Axis(70, 3, 2, 1, 1))),
        ("direct 256x32",),
    ),
    "few channels, 7x7": (
        Convolution(2, 3, 64, (Axis(96, 7, 2, 3, 3), Axis(80, 7, 2, 3, 3))),
        ("direct 256x64",),
    ),
    "few filters": (
        Convolution(2, 72, 3, (Axis(48, 3, 1, 1, 1), Axis(64, 3, 1, 1, 1))),
        ("direct 256x32", "direct 128x64", "direct 512x3", "direct 256x3"),
    ),
}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", FIRST_AND_LAST)
def test_slices_of_first_and_last_layers(name: str, dtype: str) -> None:
    convolution, cuts = FIRST_AND_LAST[name]
    case = Case("wgrad", convolution, dtype, options={"kernel": "direct"})
    for cut in cuts:
        served = set()
        for slices in ALONE + CLUSTERS:
            try:
                case.check_kernel(cut + slices)
            except ValueError:  # clusters, which are Hopper's
                continue
            served.add(slices)
        assert served >= set(ALONE)
        assert (CLUSTERS[-1] in served) == (torch.cuda.get_device_capability() >= (9, 0))
    case.check_repeats()
