"""cuDNN, as PyTorch calls it, with the kernel that its own trials find to be the fastest."""

from __future__ import annotations

from collections.abc import Callable

import torch

from cleave.testing.conv_case import ConvCase
from cleave.testing.conv_operands import ConvOperands
from cleave.testing.dtypes import FLOATS


def serves(case: ConvCase) -> ConvCase | None:
    floats = case.dtype in FLOATS and case.result_dtype == case.dtype
    symmetric = all(before == after for before, after in case.padding)
    # torch has no channels_last of lines.
    fits = case.plain and floats and symmetric and len(case.size) > 1
    return case if fits else None


def calls(case: ConvCase, operands: ConvOperands) -> dict[str, Callable[[], object]]:
    # The first call of a form tries kernels: that is before a graph is captured.
    torch.backends.cudnn.benchmark = True
    # The gradients look at the shape alone of the tensor that is computed.
    tensors = operands.inputs | {case.made: operands.out}
    x, w, dy = tensors["input"], tensors["weight"], tensors["output"]
    padding = [before for before, _ in case.padding]
    geometry = (case.stride, padding, case.dilation)

    def forward() -> None:
        convolve = torch.nn.functional.conv2d if len(padding) == 2 else torch.nn.functional.conv3d
        operands.out = convolve(x, w, None, *geometry, case.groups)

    def backward() -> None:
        wanted = [case.kind == "dgrad", case.kind == "wgrad", False]
        made = torch.ops.aten.convolution_backward(
            dy, x, w, None, *geometry, False, [0] * len(padding), case.groups, wanted
        )
        operands.out = made[wanted.index(True)]

    if case.kind == "fprop":
        return {"torch.nn.functional.conv2d": forward}
    return {"torch.ops.aten.convolution_backward": backward}
