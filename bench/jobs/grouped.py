"""Jobs of grouped products, as jobs has those of dense ones: layers of mixtures of experts, in three parts."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from cleave.testing import grouped
from cleave.testing.group_sizes import SPREADS
from cleave.testing.grouped_case import GroupedCase

from .. import shapes

Shape = tuple[int, int, int, int]  # groups, tokens, n, k


@dataclass(frozen=True)
class GroupedJob:
    """`fields`: of its cases, beside sizes."""

    name: str
    fields: dict[str, Any] = field(default_factory=dict)

    testing = grouped
    peers = ("torch_grouped", "torch_grouped_rowwise", "deepgemm_grouped")

    def case(self, shape: Shape) -> GroupedCase:
        """Tokens are spread over the groups in a way that follows from the shape."""
        return GroupedCase(*shape, sizes=random.Random(str(shape)).choice(SPREADS), **self.fields)

    def shapes(self, part: shapes.Part, count: int, seed: int = 0) -> list[Shape]:
        return shapes.experts(self.name, part, count, seed)

    @staticmethod
    def weights(shape: Shape) -> tuple[int, ...]:
        return shape[2:]


_FP8 = {"dtype": "float8_e4m3fn", "out_dtype": "bfloat16"}
_BLOCKS = _FP8 | {"scaling": "block_128x128"}

GROUPED_JOBS = {
    job.name: job
    for job in (
        *(GroupedJob(f"grouped bf16 {form}", {"form": form}) for form in ("forward", "dgrad", "wgrad")),
        *(GroupedJob(f"grouped fp8 {form}", _BLOCKS | {"form": form}) for form in ("forward", "dgrad")),
        GroupedJob("grouped fp8 wgrad", _FP8 | {"form": "wgrad", "scaling": "block_1x128"}),
        GroupedJob("grouped fp8 rows forward", _FP8 | {"form": "forward", "scaling": "row", "use_fast_accum": True}),
        GroupedJob("grouped int8 forward", {"dtype": "int8", "form": "forward", "scaling": "row"}),
    )
}
