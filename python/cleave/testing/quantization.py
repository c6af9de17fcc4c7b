"""Quantisation by plain array operations: the measure of the library's, and no part of it.

A block is (rows, columns), None for the matrix's whole extent; at its edges blocks are smaller.
Leading dimensions are batches.
"""

from __future__ import annotations

from typing import Any

from .arrays import Arrays
from .case import Block
from .dtypes import DTYPES


def quantize(arrays: Arrays, x: Any, dtype: str, block: Block) -> tuple[Any, Any]:
    """The values, of x's shape, and the float32 scale of each block: x is about scale * value."""
    blocks = _blocks(arrays, arrays.cast(x, "float32"), block)
    largest = _largest(arrays, blocks)
    scale = largest / DTYPES[dtype].largest
    values = blocks / arrays.xp.where(scale > 0, scale, arrays.xp.ones_like(scale))
    if dtype == "int8":
        values = arrays.xp.round(values)
    return arrays.cast(_matrix(values, x.shape), dtype), scale[..., :, 0, :, 0]


def dequantize(arrays: Arrays, values: Any, scale: Any, block: Block) -> Any:
    """float64 scale * value."""
    blocks = _blocks(arrays, arrays.float64(values), block)
    return _matrix(blocks * arrays.float64(scale)[..., :, None, :, None], values.shape)


def largest_magnitudes(arrays: Arrays, x: Any, block: Block) -> Any:
    """That of each block."""
    return _largest(arrays, _blocks(arrays, x, block))[..., :, 0, :, 0]


def _largest(arrays: Arrays, blocks: Any) -> Any:
    return arrays.xp.amax(abs(blocks), axis=(-3, -1), keepdims=True)


def _blocks(arrays: Arrays, x: Any, block: Block) -> Any:
    """[..., block of rows, row in it, block of columns, column in it]; zeros past the edges."""
    *lead, rows, columns = x.shape
    height, width = block[0] or max(rows, 1), block[1] or max(columns, 1)
    down, across = -(-rows // height), -(-columns // width)
    if (down * height, across * width) != (rows, columns):
        x = arrays.pad(x, down * height - rows, across * width - columns)
    return x.reshape(*lead, down, height, across, width)


def _matrix(blocks: Any, shape: tuple[int, ...]) -> Any:
    *lead, down, height, across, width = blocks.shape
    rows, columns = shape[-2:]
    return blocks.reshape(*lead, down * height, across * width)[..., :rows, :columns]
