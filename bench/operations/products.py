"""The operations that are products: "gemm", of scaled 8-bit operands too, "grouped", "conv"."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

from cleave.testing import conv as testing_conv
from cleave.testing import dense as testing_dense
from cleave.testing import grouped as testing_grouped
from cleave.testing.accuracy import Errors
from cleave.testing.arrays import Arrays, TorchArrays
from cleave.testing.operands import Operands


@dataclass(frozen=True)
class Products:
    """What suites ask of an operation, by a module of cleave.testing. fields: those that a row has beside the case's
    title, which says all of a convolution's geometry."""

    testing: ModuleType
    Case: type
    fields: str

    def make_operands(self, arrays: Arrays, case: Any, seed: int = 0) -> Any:
        return self.testing.make_operands(arrays, case, seed)

    def errors(self, arrays: Arrays, case: Any, operands: Any) -> Errors:
        return self.testing.errors(arrays, case, operands)

    def describe(self, case: Any) -> dict[str, Any]:
        return {field: getattr(case, field) for field in self.fields.split()} | {"out_dtype": case.result_dtype}

    def ours(
        self, arrays: TorchArrays, case: Any, sets: Sequence[Operands]
    ) -> tuple[list[Callable[[], None]], dict[str, Any]]:
        """One call per operand set, and what there is to say about the plan."""
        plan = self.testing.plan_for(case, sets[0])

        def bind(operands: Operands) -> Callable[[], None]:
            own = replace(operands)  # a peer may leave its result in another array
            return lambda: self.testing.run(plan, own, arrays.stream)

        facts = {
            "floor_us": plan.roofline_us,
            "kernel": plan.kernel_name,
            "mode": plan.split_k_mode,
            "slices": plan.split_k_slices,
            "workspace_bytes": plan.workspace_size,
        }
        return [bind(operands) for operands in sets], facts

    @staticmethod
    def poison(arrays: Arrays, operands: Operands) -> None:
        arrays.poison(operands.out)


gemm = Products(testing_dense, testing_dense.GemmCase, "m n k dtype layout scaling use_fast_accum")
grouped = Products(
    testing_grouped,
    testing_grouped.GroupedCase,
    "form groups tokens n k sizes alignment dtype scaling use_fast_accum",
)
conv = Products(testing_conv, testing_conv.ConvCase, "kind dtype")
