"""One matrix product to plan, run or time: sizes and options, no data."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

ELEMENT_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4}


@dataclass(frozen=True)
class GemmCase:
    """D = activation(A @ B + bias), contiguous operands.

    layout: a letter for A, then one for B, as in BLAS: 't' is row-major, 'n' column-major. So 'tn'
    is the product whose operands both have K as their unit stride.
    """

    m: int
    n: int
    k: int
    batch: int = 1
    dtype: str = "bfloat16"
    layout: str = "tn"
    out_dtype: str | None = None
    activation: str = "none"
    bias: str = "none"
    split_k_mode: str = "auto"
    split_k_slices: int | None = None

    @property
    def result_dtype(self) -> str:
        return self.out_dtype or self.dtype

    @property
    def flops(self) -> int:
        return 2 * self.batch * self.m * self.n * self.k

    @property
    def bytes(self) -> int:
        """Each input read once, the output written once."""
        inputs = self.batch * (self.m * self.k + self.k * self.n)
        bias = {"none": 0, "row": self.n, "column": self.m}[self.bias]
        output = self.batch * self.m * self.n
        return (inputs + bias) * ELEMENT_BYTES[self.dtype] + output * ELEMENT_BYTES[
            self.result_dtype
        ]

    @property
    def title(self) -> str:
        """For people: sizes and whatever is not plain. The split is no part of it."""
        parts = [f"{self.m}x{self.n}x{self.k}", self.dtype, self.layout]
        if self.batch != 1:
            parts.insert(0, f"{self.batch} of")
        if self.result_dtype != self.dtype:
            parts.append(f"to {self.result_dtype}")
        if self.bias != "none":
            parts.append(f"{self.bias} bias")
        if self.activation != "none":
            parts.append(self.activation)
        return " ".join(parts)

    def plan(self, device: str) -> Any:
        """The library's plan for `device` ('cpu', 'cuda:0', or 'h100' to plan without a GPU)."""
        import cleave

        return cleave.plan_problem(**asdict(self), device=device)


def product(options: Mapping[str, Sequence[Any]]) -> Iterator[GemmCase]:
    """Every combination of the options' values, the last option varying fastest; each case once."""
    seen = set()
    for values in itertools.product(*options.values()):
        chosen = dict(zip(options, values, strict=True))
        if chosen.get("split_k_mode") == "none":
            chosen["split_k_slices"] = None  # an unsplit product has no slice count to vary
        case = GemmCase(**chosen)
        if case not in seen:
            seen.add(case)
            yield case
