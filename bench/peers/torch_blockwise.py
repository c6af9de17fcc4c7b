"""torch._scaled_mm with a scale per block: cuBLASLt from 12.9, on Hopper alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from torch import Tensor
from torch.nn.functional import pad

from bench import scaled_mm
from cleave.testing.case import GemmCase
from cleave.testing.operands import Operands


def serves(case: GemmCase) -> GemmCase | None:
    return case if scaled_mm.takes(case) and case.scaling.startswith("block") else None


def calls(case: GemmCase, operands: Operands) -> dict[str, Callable[[], object]]:
    scales = operands.scales | {"scale_b": _in_rows_of_four(operands.scales["scale_b"])}
    return scaled_mm.calls(case, replace(operands, scales=scales))


def _in_rows_of_four(scale_b: Tensor) -> Tensor:
    """cuBLASLt reads the scales of a column's blocks of K, [k blocks, n blocks], from rows of a multiple of four, and
    takes for granted that they are: made here once, outside of what is timed."""
    blocks = scale_b.shape[0]
    return pad(scale_b.t(), (0, -blocks % 4))[:, :blocks].t()
