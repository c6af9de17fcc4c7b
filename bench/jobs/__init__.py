"""Jobs: kinds of products that are measured, fitted and judged apart."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from cleave.testing import dense
from cleave.testing.case import GemmCase

from .. import shapes

Shape = tuple[int, int, int]


@dataclass(frozen=True)
class Job:
    """`fields`: of its cases, beside sizes. `multiples`: of N and K, as TMA and the peers want them."""

    name: str
    fields: dict[str, Any] = field(default_factory=dict)
    multiples: shapes.Layer = (8, 8)
    large_k: bool = False

    testing = dense
    peers = ("cublas", "deepgemm", "torch_rowwise", "torch_blockwise", "cublas_tensorwise", "cublas_int8", "quack")

    def case(self, shape: Shape) -> GemmCase:
        return GemmCase(*shape, **self.fields)

    def shapes(self, part: shapes.Part, count: int, seed: int = 0) -> list[Shape]:
        if self.large_k:
            return shapes.large_k(self.name, part, count, seed)
        found = shapes.dense(self.name, part, count, self.multiples, seed)
        if self.fields.get("layout", "tn")[0] == "n":  # rows of A are contiguous: M is what TMA strides over
            found = [(-(-m // 8) * 8, n, k) for m, n, k in found]
        return found

    @staticmethod
    def weights(shape: Shape) -> tuple[int, ...]:
        """What says which part the shape is of."""
        return shape[1:]


_ROWS = {"dtype": "float8_e4m3fn", "scaling": "row", "out_dtype": "bfloat16"}
_BLOCKS = {"dtype": "float8_e4m3fn", "scaling": "block_128x128", "out_dtype": "bfloat16"}

JOBS = {
    job.name: job
    for job in (
        Job("bf16 tn", {"dtype": "bfloat16", "layout": "tn"}, multiples=(1, 8)),
        Job("bf16 nn", {"dtype": "bfloat16", "layout": "nn"}),
        Job("bf16 tt", {"dtype": "bfloat16", "layout": "tt"}),
        Job("bf16 nt", {"dtype": "bfloat16", "layout": "nt"}),
        Job("fp8 rows", _ROWS | {"use_fast_accum": True}, multiples=(16, 16)),
        Job("fp8 rows promoted", _ROWS, multiples=(16, 16)),
        Job("fp8 blocks", _BLOCKS, multiples=(128, 128)),
        Job("int8 rows", _ROWS | {"dtype": "int8"}, multiples=(16, 16)),
        Job("bf16 large K", {"dtype": "bfloat16", "layout": "tn"}, large_k=True),
    )
}
