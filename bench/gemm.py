"""The operation "gemm": products, of scaled 8-bit operands too."""

from __future__ import annotations

from functools import partial
from typing import Any

from cleave.testing import dense
from cleave.testing.case import GemmCase as Case
from cleave.testing.dense import errors, make_operands

from . import products
from .products import poison

__all__ = ["Case", "describe", "errors", "make_operands", "ours", "poison"]

ours = partial(products.ours, dense)


def describe(case: Case) -> dict[str, Any]:
    fields = ("m", "n", "k", "dtype", "layout", "scaling", "use_fast_accum")
    return {field: getattr(case, field) for field in fields} | {"out_dtype": case.result_dtype}
