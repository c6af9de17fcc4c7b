"""Jobs of grouped products, as jobs has those of dense ones: layers of mixtures of experts, in three parts."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from cleave.testing import grouped
from cleave.testing.group_sizes import SPREADS, spread_over
from cleave.testing.grouped_case import GroupedCase

from .. import shapes

Shape = tuple[int, int, int, int]  # groups, tokens, n, k


@dataclass(frozen=True)
class GroupedJob:
    """`fields`: of its cases, beside sizes. padded: groups have multiples of so many tokens, as training frameworks pad
    them. fitted_as: the job whose parts it has, since its choices are fitted to that one's."""

    name: str
    fields: dict[str, Any] = field(default_factory=dict)
    padded: int = 1
    fitted_as: str = ""

    testing = grouped
    peers = ("torch_grouped", "torch_grouped_rowwise", "deepgemm_grouped", "deepgemm_k_grouped")

    def case(self, shape: Shape) -> GroupedCase:
        """Tokens are spread over the groups in a way that follows from the shape."""
        spread = random.Random(str(shape)).choice(SPREADS)
        if self.padded == 1:
            return GroupedCase(*shape, sizes=spread, **self.fields)
        groups, tokens, *layer = shape
        sizes = tuple(-(-size // self.padded) * self.padded for size in spread_over(groups, tokens, spread))
        return GroupedCase(groups, sum(sizes), *layer, sizes=sizes, alignment=self.padded, **self.fields)

    def shapes(self, part: shapes.Part, count: int, seed: int = 0) -> list[Shape]:
        return shapes.experts(self.fitted_as or self.name, part, count, seed)

    @staticmethod
    def weights(shape: Shape) -> tuple[int, ...]:
        return shape[2:]


_FP8 = {"dtype": "float8_e4m3fn", "out_dtype": "bfloat16"}
_BLOCKS = _FP8 | {"scaling": "block_128x128"}
_ROWS = _FP8 | {"scaling": "row", "use_fast_accum": True}
_MAIN_GRAD = {"form": "wgrad", "out_dtype": "float32", "accumulate": True}

GROUPED_JOBS = {
    job.name: job
    for job in (
        *(GroupedJob(f"grouped bf16 {form}", {"form": form}) for form in ("forward", "dgrad", "wgrad")),
        *(GroupedJob(f"grouped fp8 {form}", _BLOCKS | {"form": form}) for form in ("forward", "dgrad")),
        GroupedJob("grouped fp8 wgrad", _FP8 | {"form": "wgrad", "scaling": "block_1x128"}),
        GroupedJob("grouped bf16 main grad", _MAIN_GRAD, fitted_as="grouped bf16 wgrad"),
        GroupedJob(
            "grouped fp8 main grad",
            _FP8 | _MAIN_GRAD | {"scaling": "block_1x128"},
            padded=128,
            fitted_as="grouped fp8 wgrad",
        ),
        *(GroupedJob(f"grouped fp8 rows {form}", _ROWS | {"form": form}) for form in ("forward", "dgrad")),
        GroupedJob("grouped fp8 rows wgrad", _ROWS | {"form": "wgrad"}, padded=128, fitted_as="grouped fp8 wgrad"),
        GroupedJob("grouped int8 forward", {"dtype": "int8", "form": "forward", "scaling": "row"}),
    )
}
