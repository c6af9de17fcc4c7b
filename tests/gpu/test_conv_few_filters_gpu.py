"""Convolutions of few filters on the GPU, and both gradients, by the direct kernels."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from conv_cases import Case, split  # noqa: E402
from conv_reference import Axis, Convolution  # noqa: E402

FEW_FILTERS = {
    "3x3": Convolution(3, 128, 3, (Axis(70, 3, 1, 1, 1), Axis(51, 3, 1, 1, 1))),
    "four filters": Convolution(2, 320, 4, (Axis(64, 3, 1, 1, 1), Axis(63, 3, 1, 1, 1))),
    "part of a line of memory": Convolution(5, 72, 3, (Axis(33, 3, 1, 1, 1), Axis(19, 3, 1, 1, 1))),
    "one filter": Convolution(2, 64, 1, (Axis(40, 7, 1, 3, 3), Axis(75, 7, 1, 3, 3))),
    "seven filters, stride 2": Convolution(4, 96, 7, (Axis(41, 3, 2, 1, 1), Axis(64, 3, 2, 0, 1))),
    "eleven filters, dilated": Convolution(2, 64, 11, (Axis(30, 3, 1, 2, 2, 2), Axis(31, 5, 3, 3, 2, 2))),
    "many columns": Convolution(2, 40, 13, (Axis(20, 5, 1, 2, 2), Axis(35, 7, 1, 3, 3))),
    "1x1": Convolution(7, 256, 2, (Axis(28), Axis(28))),
    "1x1, pixels between": Convolution(2, 64, 3, (Axis(21, 1, 3), Axis(20, 1, 2))),
    "along a line": Convolution(4, 64, 1, (Axis(4000, 9, 2, 4, 4),)),
    "three axes": Convolution(2, 96, 3, (Axis(5, 3, 1, 1, 1), Axis(30, 3, 1, 1, 1), Axis(37, 3, 1, 1, 1))),
    "three axes, strides": Convolution(2, 64, 2, (Axis(6, 2, 2, 1, 0), Axis(19, 3, 2, 1, 1), Axis(23, 3, 1, 0, 0))),
    "padding above filter": Convolution(2, 64, 3, (Axis(5, 2, 2, 3, 4), Axis(7, 3, 1, 4, 4))),
}


@pytest.mark.parametrize("mode", [{}, {"split_k_mode": "none"}, split("parallel", 2), split("parallel", 40)], ids=str)
@pytest.mark.parametrize("name", FEW_FILTERS)
def test_weight_gradients_of_few_filters(name: str, mode: dict[str, Any]) -> None:
    for dtype in ("float16", "bfloat16"):
        for more in ({}, {"has_c": True}, {"out_dtype": "float32"}):
            Case("wgrad", FEW_FILTERS[name], dtype, options={"kernel": "direct"} | mode, **more).check_repeats()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("at", [(0, 0), (1, 5), (-1, -1), (20, 18)], ids=str)
@pytest.mark.parametrize("name", ["3x3", "seven filters, stride 2", "three axes", "1x1, pixels between"])
def test_infinite_pixels_that_few_filters_meet(name: str, at: tuple[int, int], dtype: str) -> None:
    """They reach the taps that meet them, and no other."""
    case = Case("wgrad", FEW_FILTERS[name], dtype, options={"kernel": "direct"})
    case.check_infinity("input", (0, 5, ..., *at), reaches=False)


OF_STRIDE_1 = {
    "3x3": Convolution(3, 128, 3, (Axis(70, 3, 1, 1, 1), Axis(52, 3, 1, 1, 1))),
    "3x3, many lines": Convolution(2, 64, 3, (Axis(700, 3, 1, 1, 1), Axis(70, 3, 1, 1, 1))),
    "four filters": Convolution(2, 320, 4, (Axis(64, 3, 1, 1, 1), Axis(63, 3, 1, 1, 1))),
    "one filter": Convolution(2, 64, 1, (Axis(40, 7, 1, 3, 3), Axis(76, 7, 1, 3, 3))),
    "seven filters, 5x4": Convolution(4, 72, 7, (Axis(41, 5, 1, 2, 2), Axis(63, 4, 1, 2, 2))),
    "eight filters": Convolution(5, 512, 8, (Axis(31, 3, 1, 1, 1), Axis(33, 3, 1, 1, 1))),
    "twelve filters": Convolution(2, 136, 12, (Axis(65, 3, 1, 1, 1), Axis(129, 3, 1, 1, 1))),
    "sixteen filters": Convolution(2, 96, 16, (Axis(20, 3, 1, 1, 1), Axis(35, 3, 1, 1, 1))),
    "dilated, padding of one side": Convolution(2, 64, 6, (Axis(30, 3, 1, 4, 0, 2), Axis(31, 5, 1, 0, 3))),
    "padding above filter": Convolution(2, 80, 3, (Axis(5, 2, 1, 3, 4), Axis(8, 3, 1, 4, 4))),
    "along a line": Convolution(4, 64, 2, (Axis(4000, 9, 1, 4, 4),)),
    "along three axes": Convolution(2, 96, 3, (Axis(5, 3, 1, 1, 1), Axis(30, 3, 1, 1, 1), Axis(38, 3, 1, 1, 1))),
    "causal, dilated": Convolution(3, 40, 4, (Axis(6, 3, 1, 4, 0, 2), Axis(19, 2, 1, 1, 0), Axis(22, 3, 1, 0, 1))),
}


@pytest.mark.parametrize("name", OF_STRIDE_1)
@pytest.mark.parametrize("kind", ["fprop", "dgrad"])
def test_few_filters_of_stride_1(kind: str, name: str) -> None:
    for dtype in ("float16", "bfloat16"):
        for epilogue in ({}, {"has_c": True, "has_bias": True, "activation": "relu"}, {"out_dtype": "float32"}):
            Case(kind, OF_STRIDE_1[name], dtype, options={"kernel": "direct"}, **epilogue).check()


@pytest.mark.parametrize("name", ["3x3", "one filter", "eight filters", "twelve filters"])
@pytest.mark.parametrize("kind", ["fprop", "dgrad"])
def test_infinity_beside_few_filters(kind: str, name: str) -> None:
    """It reaches what meets it, and nothing else, though that is read together."""
    case = Case(kind, OF_STRIDE_1[name], options={"kernel": "direct"})
    case.check_infinity("input" if kind == "fprop" else "output", (slice(None), 0, 11, 13))


BY_LINES = {
    name: {**FEW_FILTERS, **OF_STRIDE_1}[name]
    for name in (
        "3x3",
        "four filters",
        "eight filters",
        "twelve filters",
        "sixteen filters",
        "seven filters, stride 2",
        "1x1, pixels between",
        "padding above filter",
        "along three axes",
        "causal, dilated",
        "three axes, strides",
    )
} | {
    "ten filters, stride 3": Convolution(3, 200, 10, (Axis(44, 3, 3, 1, 0), Axis(67, 2, 3, 0, 1))),
    "along a line": Convolution(4, 64, 2, (Axis(4000, 6, 1, 3, 2),)),
    "a line alone, pixels behind it": Convolution(2, 64, 8, (Axis(23, 3, 3, 1, 0, 2), Axis(47, 3, 2, 1, 0))),
}
# Outputs of a tile and channels of a CTA, each with a type and options of its own.
CUTS: dict[str, tuple[str, dict[str, Any]]] = {
    "128x32": ("float16", {}),
    "128x64": ("bfloat16", {"has_c": True}),
    "256x32": ("float16", {"out_dtype": "float32"}),
    "256x64": ("bfloat16", {}),
}


def by_lines(case: Case, cut: str, slices: int) -> bool:
    """Whether this cut of the kernel by lines serves the case; it then ran."""
    try:
        case.run_kernel(f"direct {cut}" + (f" parallel {slices}" if slices > 1 else ""))
    except ValueError as error:
        assert "cannot serve" in str(error)
        return False
    return True


@pytest.mark.parametrize("slices", [1, 4])
@pytest.mark.parametrize("name", BY_LINES)
def test_weight_gradients_by_lines(name: str, slices: int) -> None:
    served = 0
    for cut, (dtype, more) in CUTS.items():
        case = Case("wgrad", BY_LINES[name], dtype, **more)
        if not by_lines(case, cut, slices):
            continue
        case.out.fill_(float("nan"))
        by_lines(case, cut, slices)  # meets the counters that the first one left
        case.compare()
        served += 1
    assert served > 0


@pytest.mark.parametrize("at", [(0, 0), (1, 5), (-1, -1), (20, 18)], ids=str)
@pytest.mark.parametrize(
    "name",
    ["3x3", "twelve filters", "seven filters, stride 2", "along three axes", "a line alone, pixels behind it"],
)
def test_infinite_pixels_that_lines_have(name: str, at: tuple[int, int]) -> None:
    """They reach the taps that meet them, and no other."""
    case = Case("wgrad", BY_LINES[name])
    at = tuple(min(place, axis.size - 1) for place, axis in zip(at, case.convolution.axes[-2:], strict=True))
    assert by_lines(case, "128x32", 2)
    finite = case.out.clone()
    case.tensors["input"][0, 5, ..., at[0], at[1]] = float("inf")
    by_lines(case, "128x32", 2)
    marked = Case("wgrad", case.convolution)
    marked.tensors = {
        key: (tensor == float("inf") if key == "input" else torch.ones_like(tensor)).half()
        for key, tensor in case.tensors.items()
    }
    reached = marked.want() > 0
    assert reached.sum() < reached.numel()
    assert not torch.isfinite(case.out[reached]).any()
    assert torch.equal(case.out[~reached], finite[~reached])
