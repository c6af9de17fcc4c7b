"""cleave.conv1d to conv3d, and scaled ones, for torch's autograd and torch.compile."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from .._epilogue import BoundEpilogue, Epilogue
from ._operators import conv_autograd
from ._operators.epilogue import arguments, results
from ._product_options import quantised_pixels

_conv = torch.ops.cleave.conv
_scaled_conv = torch.ops.cleave.scaled_conv


def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    *,
    epilogue: BoundEpilogue | Epilogue | None = None,
    **options: Any,
) -> Tensor | tuple[Tensor, ...]:
    """`cleave.conv2d` as a torch operator: with gradients, and under torch.compile(fullgraph=True).

    With an epilogue function, input, weight, bias, c and the function's tensors have gradients, as in
    `cleave.torch.gemm`: if the derivative reads the sum, backward runs the convolution again with the derivative as its
    epilogue; sums over pixels are computed by torch.

    Args:
        input, weight, bias: as in torch.nn.functional.conv2d; input and weight have their channels adjacent
            (memory_format=torch.channels_last), and so do matrices of the function.
        stride, padding, dilation, groups: as there, padding as numbers. Two numbers per axis are first those before all
            axes, then those after.
        epilogue: as in `cleave.conv2d`.
        options: c, alpha, beta, activation, out_dtype, split_k_mode, split_k_slices: as in torch.ops.cleave.conv.
            out_scale, use_ue8m0: as in `cleave.conv2d`, without gradients.

    Returns:
        A new D, channels last, or a tuple of the function's outputs. As repeatable, and as safe in CUDA graphs, as
        `cleave.conv2d`.

    Raises:
        RuntimeError: what `cleave.conv2d` raises as ValueError or TypeError.
    """
    return _convolve(2, input, weight, bias, (stride, padding, dilation, groups), epilogue, options)


def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    *,
    epilogue: BoundEpilogue | Epilogue | None = None,
    **options: Any,
) -> Tensor | tuple[Tensor, ...]:
    """`cleave.torch.conv2d` with one axis; x.mT.contiguous().mT has adjacent channels."""
    return _convolve(1, input, weight, bias, (stride, padding, dilation, groups), epilogue, options)


def conv3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    *,
    epilogue: BoundEpilogue | Epilogue | None = None,
    **options: Any,
) -> Tensor | tuple[Tensor, ...]:
    """`cleave.torch.conv2d` with three axes; memory_format=torch.channels_last_3d."""
    return _convolve(3, input, weight, bias, (stride, padding, dilation, groups), epilogue, options)


def scaled_conv2d(
    input: Tensor,
    weight: Tensor,
    scale_a: Tensor | None = None,
    scale_b: Tensor | None = None,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    *,
    epilogue: BoundEpilogue | Epilogue | None = None,
    **options: Any,
) -> Tensor | tuple[Tensor, ...]:
    """`cleave.scaled_conv2d` as a torch operator, under torch.compile(fullgraph=True). With an epilogue function, bias,
    c and the function's tensors have gradients; else none has.

    Args:
        input, weight, scale_a, scale_b: as in `cleave.scaled_conv2d`. Others, results and errors: as in `conv2d` here.
        options: out_dtype, use_fast_accum, c, alpha, beta, activation, scale_d, split_k_mode, split_k_slices,
            out_scale, use_ue8m0.
    """
    return _convolve(2, input, weight, bias, (stride, padding, dilation, groups), epilogue, options, (scale_a, scale_b))


def scaled_conv1d(
    input: Tensor,
    weight: Tensor,
    scale_a: Tensor | None = None,
    scale_b: Tensor | None = None,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    *,
    epilogue: BoundEpilogue | Epilogue | None = None,
    **options: Any,
) -> Tensor | tuple[Tensor, ...]:
    """`cleave.torch.scaled_conv2d` with one axis."""
    return _convolve(1, input, weight, bias, (stride, padding, dilation, groups), epilogue, options, (scale_a, scale_b))


def scaled_conv3d(
    input: Tensor,
    weight: Tensor,
    scale_a: Tensor | None = None,
    scale_b: Tensor | None = None,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    *,
    epilogue: BoundEpilogue | Epilogue | None = None,
    **options: Any,
) -> Tensor | tuple[Tensor, ...]:
    """`cleave.torch.scaled_conv2d` with three axes."""
    return _convolve(3, input, weight, bias, (stride, padding, dilation, groups), epilogue, options, (scale_a, scale_b))


def _convolve(
    axes: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    geometry: tuple[Any, ...],
    epilogue: BoundEpilogue | Epilogue | None,
    options: dict[str, Any],
    scales: tuple[Tensor | None, ...] = (),
) -> Tensor | tuple[Tensor, ...]:
    if input.dim() != axes + 2:
        raise ValueError(f"input is {tuple(input.shape)}; conv{axes}d takes {axes + 2} dimensions")
    *steps, groups = geometry
    given = (*([x] if isinstance(x, int) else x for x in steps), groups)
    operator = _scaled_conv if scales else _conv
    operands = input, weight, *scales
    if options.get("out_scale") is not None:
        convolve = partial(_convolve, axes, input, weight, bias, geometry, epilogue)
        return quantised_pixels(lambda **rest: convolve(rest, scales), options)
    options.pop("out_scale", None)
    if epilogue is not None:
        return results(operator.epilogue(*operands, *arguments(epilogue, options), bias, *given, **options))
    if options or scales:
        return operator.full(*operands, bias, *given, **options)
    return conv_autograd.conv(input, weight, bias, *given)
