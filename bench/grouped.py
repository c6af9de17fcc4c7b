"""The operation "grouped": the products of a mixture of experts."""

from __future__ import annotations

from functools import partial
from typing import Any

from cleave.testing import grouped
from cleave.testing.grouped import errors, make_operands
from cleave.testing.grouped_case import GroupedCase as Case

from . import products
from .products import poison

__all__ = ["Case", "describe", "errors", "make_operands", "ours", "poison"]

ours = partial(products.ours, grouped)


def describe(case: Case) -> dict[str, Any]:
    fields = (
        "form", "groups", "tokens", "n", "k", "sizes", "alignment", "dtype", "scaling",
        "use_fast_accum",
    )  # fmt: skip
    return {field: getattr(case, field) for field in fields} | {"out_dtype": case.result_dtype}
