"""Operands for the sizes that the operation was planned for and others, and their convolution."""

from __future__ import annotations

from collections.abc import Callable

import torch
from expected_operation import TOLERANCE, Case, fixed, values
from finish_operation import SUMS, finish
from torch import Tensor

LARGER = [size + 2 * stride for size, stride in zip(fixed.PLANNED[1:], fixed.STRIDE, strict=True)]
SIZES = [fixed.PLANNED, (3, *LARGER)]  # images, then the axes
INNER, INNER_STEP = 1, 1  # channels, which are fixed
# By PyTorch's convolutions, which round float32 to tf32, and the sums that a gradient needs to the operands' type.
GRADIENT_ROUNDING = max(4e-3, TOLERANCE[fixed.DTYPE])


def tensor(*shape: int, dtype: torch.dtype = fixed.DTYPE) -> Tensor:
    return values(*shape, dtype=dtype).contiguous(memory_format=fixed.ORDER)


def convolve(x: Tensor, w: Tensor) -> Tensor:
    """As PyTorch has it."""
    ends = [end for padding in reversed(fixed.PADDING) for end in padding]
    function = {2: torch.nn.functional.conv2d, 3: torch.nn.functional.conv3d}[len(fixed.TAPS)]
    options = {"stride": fixed.STRIDE, "dilation": fixed.DILATION, "groups": fixed.GROUPS}
    return function(torch.nn.functional.pad(x, ends), w, **options)


def make(images: int, *size: int, requires_grad: bool = False) -> Case:
    x = tensor(images, fixed.CHANNELS, *size)
    w = tensor(fixed.FILTERS, fixed.CHANNELS // fixed.GROUPS, *fixed.TAPS, dtype=fixed.WEIGHT_DTYPE)
    with torch.no_grad():
        outputs = convolve(x.double(), w.double())
    y = tensor(*outputs.shape)
    depth = {"fprop": w[0].numel(), "dgrad": w[:, 0].numel(), "wgrad": y[:, 0].numel()}[fixed.KIND]
    if SUMS is not None and x.itemsize > 1:
        (x if fixed.KIND == "fprop" else y).mul_(SUMS * depth**-0.5)
    for operand in (x, w, y):
        operand.requires_grad_(requires_grad)
    real_x, real_w, real_y = (operand.double().requires_grad_() for operand in (x, w, y))
    outputs = convolve(real_x, real_w)
    # The result is the gradient of that sum by itself.
    operands, made = {"fprop": ([x, w], real_y), "dgrad": ([w, y], real_x), "wgrad": ([x, y], real_w)}[fixed.KIND]
    (result,) = torch.autograd.grad((real_y * outputs).sum(), made, create_graph=requires_grad)
    arguments = [tuple(x.shape), *operands] if fixed.KIND == "dgrad" else operands
    if fixed.SCALED:
        scale_a, scale_b = (torch.rand(count, device="cuda") + 0.5 for count in (1, fixed.FILTERS))
        arguments += [scale_a, scale_b]
        result = result * scale_a * scale_b.view(-1, *[1] * len(size))
    if fixed.HAS_BIAS:
        bias = values(result.shape[1], dtype=fixed.BIAS_DTYPE).requires_grad_(requires_grad)
        arguments.append(bias)
        result = result + bias.double().view(-1, *[1] * len(size))
    if fixed.HAS_C:
        c = tensor(*result.shape, dtype=fixed.C_DTYPE).requires_grad_(requires_grad)
        arguments.append(c)
        result = result + c.double()
    finished = finish(result, shapes=shapes_of_inputs(result.shape), new=tensor, reduce=reduce)
    d = finished.results[0]
    amax = d.abs().max() if fixed.HAS_AMAX else None
    if fixed.HAS_SCALE_D:
        scale_d = d.abs().max().float() / 100
        arguments.append(scale_d)
        finished.results[0] = d / scale_d
        finished.slack[0] = finished.slack[0] / scale_d
    return Case([*arguments, *finished.inputs], finished, amax=amax)


def reduce(x: Tensor, shape: str, join: Callable[..., Tensor]) -> Tensor:
    """To a line along the channels, or the filters; to a plane of what the lines lie on; or to a scalar."""
    line = 0 if fixed.KIND == "wgrad" else 1
    if shape == ("column" if line == 0 else "row"):
        return join(x, [i for i in range(x.dim()) if i != line]).flatten()
    return join(x, list(range(x.dim()))).squeeze() if shape == "scalar" else join(x, [line])


def shapes_of_inputs(result: torch.Size) -> dict[str, tuple[int, ...]]:
    """Those of the epilogue function's inputs."""
    outer, channels, *rest = result
    if fixed.KIND == "wgrad":
        return {"scalar": (), "row": (1, channels, *rest), "column": (outer,), "matrix": tuple(result)}
    return {"scalar": (), "row": (channels,), "column": (outer, 1, *rest), "matrix": tuple(result)}
