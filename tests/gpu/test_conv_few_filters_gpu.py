"""Weight gradients of few filters on the GPU, by the direct kernel."""

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
            case = Case("wgrad", FEW_FILTERS[name], dtype, options={"kernel": "direct"} | mode, **more)
            case.check()
            first = case.out.clone()
            case.run()
            assert torch.equal(case.out, first)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("at", [(0, 0), (1, 5), (-1, -1), (20, 18)], ids=str)
@pytest.mark.parametrize("name", ["3x3", "seven filters, stride 2", "three axes", "1x1, pixels between"])
def test_infinite_pixels_that_few_filters_meet(name: str, at: tuple[int, int], dtype: str) -> None:
    """They reach the taps that meet them, and no other."""
    case = Case("wgrad", FEW_FILTERS[name], dtype, options={"kernel": "direct"})
    case.run()
    finite = case.out.clone()
    case.tensors["input"][0, 5, ..., at[0], at[1]] = float("inf")
    case.run()
    marked = Case("wgrad", case.convolution)
    marked.tensors = {
        key: (tensor == float("inf") if key == "input" else torch.ones_like(tensor)).half()
        for key, tensor in case.tensors.items()
    }
    reached = marked.want() > 0
    assert reached.sum() < reached.numel()
    assert not torch.isfinite(case.out[reached]).any()
    assert torch.equal(case.out[~reached], finite[~reached])
