"""Operands for the sizes that the operation was planned for and others, and their convolution."""

from __future__ import annotations

import torch
from expected_operation import ACTIVATIONS, Case, fixed, values
from torch import Tensor

LARGER = [size + 2 * stride for size, stride in zip(fixed.PLANNED[1:], fixed.STRIDE, strict=True)]
SIZES = [fixed.PLANNED, (3, *LARGER)]  # images, then the axes
INNER = 1  # channels, which are fixed
GRADIENT_ROUNDING = 4e-3  # by PyTorch's convolutions, which round float32 to tf32


def tensor(*shape: int, dtype: torch.dtype = fixed.DTYPE) -> Tensor:
    return values(*shape, dtype=dtype).contiguous(memory_format=fixed.ORDER)


def convolve(x: Tensor, w: Tensor) -> Tensor:
    """As PyTorch has it."""
    ends = [end for padding in reversed(fixed.PADDING) for end in padding]
    function = {2: torch.nn.functional.conv2d, 3: torch.nn.functional.conv3d}[len(fixed.TAPS)]
    options = {"stride": fixed.STRIDE, "dilation": fixed.DILATION, "groups": fixed.GROUPS}
    return function(torch.nn.functional.pad(x, ends), w, **options)


def make(images: int, *size: int, requires_grad: bool = False) -> Case:
    x = tensor(images, fixed.CHANNELS, *size).requires_grad_(requires_grad)
    w = tensor(fixed.FILTERS, fixed.CHANNELS // fixed.GROUPS, *fixed.TAPS).requires_grad_(requires_grad)
    real_x, real_w = x.double().requires_grad_(), w.double().requires_grad_()
    outputs = convolve(real_x, real_w)
    y = tensor(*outputs.shape).requires_grad_(requires_grad)
    real_y = y.double().requires_grad_()
    # The result is the gradient of that sum by itself.
    operands, made = {"fprop": ([x, w], real_y), "dgrad": ([w, y], real_x), "wgrad": ([x, y], real_w)}[fixed.KIND]
    (result,) = torch.autograd.grad((real_y * outputs).sum(), made, create_graph=requires_grad)
    arguments = [tuple(x.shape), *operands] if fixed.KIND == "dgrad" else operands
    if fixed.HAS_BIAS:
        bias = values(result.shape[1], dtype=fixed.BIAS_DTYPE).requires_grad_(requires_grad)
        arguments.append(bias)
        result = result + bias.double().view(-1, *[1] * len(size))
    if fixed.HAS_C:
        c = tensor(*result.shape, dtype=fixed.C_DTYPE).requires_grad_(requires_grad)
        arguments.append(c)
        result = result + c.double()
    return Case(arguments, ACTIVATIONS[fixed.ACTIVATION](result))
