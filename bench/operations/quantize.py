"""The operation "quantize": a matrix of floats to 8-bit values and their scales."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from cleave.testing.accuracy import Errors, Reference, compare, rounding
from cleave.testing.arrays import Arrays, TorchArrays
from cleave.testing.case import SCALINGS, Block
from cleave.testing.dtypes import DTYPES
from cleave.testing.quantization import dequantize
from cleave.testing.quantization import quantize as quantize_plainly


@dataclass(frozen=True)
class Case:
    """A row-major matrix of random normal values.

    granularity: what one scale serves, as `cleave.quantize` names it.
    """

    rows: int
    columns: int
    dtype: str = "bfloat16"
    to: str = "int8"
    granularity: str = "row"

    @property
    def title(self) -> str:
        return f"{self.rows}x{self.columns} {self.dtype} to {self.to} {self.granularity}"

    @property
    def block(self) -> Block:
        """[rows, columns] that share a scale; None: as far as the matrix goes."""
        _, block = SCALINGS[self.granularity]
        return block

    @property
    def scales(self) -> int:
        height, width = self.block[0] or self.rows, self.block[1] or self.columns
        return -(-self.rows // height) * -(-self.columns // width)

    @property
    def bytes(self) -> int:
        """The input read once, values and scales written once."""
        element = DTYPES[self.dtype].bytes + DTYPES[self.to].bytes
        return self.rows * self.columns * element + self.scales * DTYPES["float32"].bytes


@dataclass
class Operands:
    """`values` and `scales` are the results: a peer may put other arrays there."""

    x: Any
    values: Any
    scales: Any


def make_operands(arrays: Arrays, case: Case, seed: int) -> Operands:
    import cleave

    x = arrays.normal((case.rows, case.columns), case.dtype, seed)
    values, scales = cleave.quantize(x, case.to, case.granularity)
    return Operands(x, values, scales)


def ours(arrays: TorchArrays, case: Case, sets: Sequence[Operands]) -> tuple[list[Callable[[], None]], dict[str, Any]]:
    """One call per operand set, and how fast the memory could be."""
    import cleave

    def bind(x: Any, values: Any, scales: Any) -> Callable[[], None]:
        return lambda: cleave.quantize(x, case.to, case.granularity, out=values, scale_out=scales, stream=arrays.stream)

    bandwidth = cleave.device_info(arrays.device.index)["memory_gb_per_s"]
    return [bind(o.x, o.values, o.scales) for o in sets], {"floor_us": case.bytes / bandwidth * 1e-3}


def describe(case: Case) -> dict[str, Any]:
    return {
        "rows": case.rows,
        "columns": case.columns,
        "dtype": case.dtype,
        "to": case.to,
        "granularity": case.granularity,
    }


def poison(arrays: Arrays, operands: Operands) -> None:
    arrays.poison(operands.values)
    arrays.poison(operands.scales)


def errors(arrays: Arrays, case: Case, operands: Operands) -> Errors:
    """Errors of scale * value."""
    height, width = case.block[0] or case.rows, case.block[1] or case.columns
    scales = operands.scales.reshape(-(-case.rows // height), -(-case.columns // width))
    real = dequantize(arrays, operands.values, scales, case.block)
    return compare(arrays, real, _reference(arrays, case, operands))


def _reference(arrays: Arrays, case: Case, operands: Operands) -> Reference:
    """x itself, which values are within half a step of; a row's magnitude is its largest."""
    x = arrays.float64(operands.x)
    _, scales = quantize_plainly(arrays, operands.x, case.to, case.block)
    scale = dequantize(arrays, arrays.xp.ones_like(x), scales, case.block)
    tolerance = 1.001 * scale * rounding(x / scale, case.to)
    return Reference(x, arrays.xp.amax(abs(x), axis=-1), tolerance)
