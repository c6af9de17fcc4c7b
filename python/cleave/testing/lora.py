"""The operation "lora": what adapters of low rank add to a layer's result."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from .accuracy import Errors
from .arrays import Arrays
from .dtypes import DTYPES
from .group_sizes import ranges_of, spread_over
from .kernel_plan import KernelPlan, OneKernel, errors_of

_SCALE = 0.5


@dataclass(frozen=True)
class LoraCase(OneKernel):
    """As `cleave.torch.lora` has them, by its one kernel. sizes: how the rows are spread over the adapters."""

    rows: int
    features: int
    outputs: int
    rank: int = 16
    adapters: int = 8
    sizes: str = "uniform"
    dtype: str = "bfloat16"

    @cached_property
    def ranges(self) -> list[tuple[int, int]]:
        """Where each adapter's rows begin and end."""
        return ranges_of(spread_over(self.adapters, self.rows, self.sizes))

    @property
    def dtypes(self) -> frozenset[str]:
        return frozenset((self.dtype, "int32"))

    @property
    def bytes(self) -> int:
        """Each input read once, no adapters without rows; the output read and written."""
        busy = sum(end > begin for begin, end in self.ranges)
        adapters = busy * self.rank * (self.features + self.outputs)
        return (self.rows * (self.features + 2 * self.outputs) + adapters) * DTYPES[self.dtype].bytes

    @property
    def flops(self) -> int:
        return 2 * self.rows * self.rank * (self.features + self.outputs)

    @property
    def title(self) -> str:
        sizes = f"{self.rows}x{self.features}x{self.outputs} rank {self.rank} {self.dtype}"
        return f"{sizes} of {self.adapters} adapters {self.sizes}"

    def plan(self, device: str) -> KernelPlan:
        from .. import _core

        sizes = self.rows, self.features, self.outputs, self.rank, self.adapters
        return KernelPlan(_core.plan_lora_problem(*sizes, self.dtype, device), self.bytes)


@dataclass
class LoraOperands:
    device: str
    x: Any
    a: Any
    b: Any
    offs: Any
    out: Any
    before: Any


def make_operands(arrays: Arrays, case: LoraCase, seed: int = 0) -> LoraOperands:
    import numpy

    def normal(i: int, *shape: int) -> Any:
        return arrays.normal(shape, case.dtype, seed + i)

    before = normal(3, case.rows, case.outputs)
    offs = arrays.from_numpy(numpy.array([end for _, end in case.ranges]), "int32")
    # The shrunk rows are near 1, as a layer's are.
    a = arrays.cast(normal(1, case.adapters, case.rank, case.features) / case.features**0.5, case.dtype)
    b = normal(2, case.adapters, case.outputs, case.rank)
    return LoraOperands(arrays.device_name, normal(0, case.rows, case.features), a, b, offs, before + 0, before)


def plan_for(case: LoraCase, operands: LoraOperands) -> KernelPlan:
    return case.plan(operands.device)


def run(plan: KernelPlan, operands: LoraOperands, stream: int | None) -> None:
    from .. import _core

    o = operands
    _core.lora(o.x, o.a, o.b, o.offs, o.out, _SCALE, stream)


def errors(arrays: Arrays, case: LoraCase, operands: LoraOperands) -> Errors:
    """After one run, which added to `before`."""
    expected = arrays.float64(operands.before) + 0
    for (begin, end), a, b in zip(case.ranges, operands.a, operands.b, strict=True):
        hidden = arrays.float64(operands.x[begin:end]) @ arrays.float64(a).T
        expected[begin:end] += _SCALE * hidden @ arrays.float64(b).T
    # The shrunk rows and the result are rounded to the operands' type; float32 sums are as nothing beside that.
    return errors_of(arrays, operands.out, expected, 16 * DTYPES[case.dtype].roundoff)
