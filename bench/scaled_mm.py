"""torch._scaled_mm, behind which there are several libraries: one for each form of the scales."""

from __future__ import annotations

from collections.abc import Callable

import torch

from cleave.testing.case import GemmCase
from cleave.testing.dtypes import FLOATS
from cleave.testing.operands import Operands


def takes(case: GemmCase) -> bool:
    """As far as anything but the scales is concerned."""
    floats = case.dtype.startswith("float8") and case.result_dtype in FLOATS
    return case.plain and case.layout == "tn" and floats


def calls(case: GemmCase, operands: Operands) -> dict[str, Callable[[], object]]:
    a, b, out = operands.a, operands.b, operands.out
    options = operands.scales | {"out_dtype": out.dtype, "use_fast_accum": case.use_fast_accum}
    multiply = torch._scaled_mm
    return {
        "torch._scaled_mm(out=)": lambda: multiply(a, b, out=out, **options),
        "torch._scaled_mm": lambda: multiply(a, b, **options),
    }
