"""A convolution and its gradients in float64: a product for each tap, where the operands live."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from . import accuracy
from .arrays import Arrays
from .conv_case import ConvCase
from .conv_operands import ConvOperands

Index = tuple[Any, ...]


def reference(arrays: Arrays, case: ConvCase, operands: ConvOperands) -> accuracy.Reference:
    """What `matrices` of the output should have."""
    parts = {name: split_channels(arrays, case, name, real) for name, real in _real_inputs(arrays, operands)}
    values = convolve(arrays, case, parts)
    squares = {name: part * part for name, part in parts.items()}
    # The mean of all columns stands for what a row of the output does not go with.
    averaged = "input" if case.kind == "wgrad" else "weight"
    axis = 1 if case.kind == "fprop" else -1
    squares[averaged] = _mean(squares[averaged], axis)
    row_squares = _mean(_rows(case, convolve(arrays, case, squares)), -1)[..., 0]
    values = _rows(case, values)
    bias = operands.bias
    if bias is not None:
        ones = (1,) * (values.ndim - 2)
        bias = arrays.float64(bias).reshape(case.groups, *ones, values.shape[-1])
    return accuracy.of_sums(arrays, case.product, values, row_squares, bias, operands.scales.get("scale_d"))


def _real_inputs(arrays: Arrays, operands: ConvOperands) -> Iterator[tuple[str, Any]]:
    """What the inputs stand for, in float64, by their names."""
    for (name, array), of_it in zip(operands.inputs.items(), ("scale_a", "scale_b"), strict=True):
        real, scale = arrays.float64(array), operands.scales.get(of_it)
        yield name, real if scale is None else real * arrays.float64(scale).reshape(-1, *[1] * (real.ndim - 1))


def matrices(arrays: Arrays, case: ConvCase, out: Any) -> Any:
    """The output, with the columns of the products that make it last: channels, or taps too."""
    return _rows(case, split_channels(arrays, case, case.made, out))


def split_channels(arrays: Arrays, case: ConvCase, name: str, array: Any) -> Any:
    """[groups, images, *size, channels of a group], or [groups, filters, *size, channels]."""
    groups, shape = case.groups, case.shapes[name]
    last = arrays.xp.moveaxis(array, 1, -1)
    if name == "weight":
        return last.reshape(groups, shape[0] // groups, *shape[2:], shape[1])
    parts = last.reshape(shape[0], *shape[2:], groups, shape[1] // groups)
    return arrays.xp.moveaxis(parts, -2, 0)


def _rows(case: ConvCase, part: Any) -> Any:
    """Filters as a matrix: the taps are columns, as the channels are."""
    return part.reshape(*part.shape[:2], -1) if case.kind == "wgrad" else part


def convolve(arrays: Arrays, case: ConvCase, parts: dict[str, Any]) -> Any:
    """The part that is missing, from split_channels of the other two."""
    made = arrays.full(_shape(case, parts), 0, "float64")
    x, w, y = ({**parts, case.made: made}[name] for name in ("input", "weight", "output"))
    for tap, outputs, pixels in _meetings(case):
        if case.kind == "fprop":
            met = x[pixels]
            y[outputs] += _unflat(_flat(met) @ w[tap].swapaxes(1, 2), met)
        elif case.kind == "dgrad":
            met = y[outputs]
            x[pixels] += _unflat(_flat(met) @ w[tap], met)
        else:
            w[tap] = _flat(y[outputs]).swapaxes(1, 2) @ _flat(x[pixels])
    return made


def _shape(case: ConvCase, parts: dict[str, Any]) -> tuple[int, ...]:
    if case.kind == "fprop":
        return (case.groups, case.images, *case.outputs, parts["weight"].shape[1])
    if case.kind == "dgrad":
        return (case.groups, case.images, *case.size, parts["weight"].shape[-1])
    filters, channels = parts["output"].shape[-1], parts["input"].shape[-1]
    return (case.groups, filters, *case.filter_size, channels)


def _flat(part: Any) -> Any:
    """[groups, pixels, channels]"""
    return part.reshape(part.shape[0], -1, part.shape[-1])


def _unflat(product: Any, met: Any) -> Any:
    return product.reshape(*met.shape[:-1], product.shape[-1])


def _meetings(case: ConvCase) -> Iterator[tuple[Index, Index, Index]]:
    """For each tap that meets the image: where it, its outputs and its pixels are."""
    for met in itertools.product(*(axis.meetings() for axis in case.axes)):
        taps, outputs, pixels = zip(*met, strict=True)
        if all(outputs):
            yield (..., *taps, slice(None)), _slices(outputs), _slices(pixels)


def _slices(ranges: Sequence[range]) -> Index:
    return (..., *(slice(r.start, r.stop, r.step) for r in ranges), slice(None))


def _mean(part: Any, axis: int) -> Any:
    """0 of nothing."""
    return part.sum(axis, keepdims=True) / max(part.shape[axis], 1)
