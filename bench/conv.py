"""The operation "conv": convolutions and both of their gradients."""

from __future__ import annotations

from functools import partial
from typing import Any

from cleave.testing import conv
from cleave.testing.conv import errors, make_operands
from cleave.testing.conv_case import ConvCase as Case

from . import products
from .products import poison

__all__ = ["Case", "describe", "errors", "make_operands", "ours", "poison"]

ours = partial(products.ours, conv)


def describe(case: Case) -> dict[str, Any]:
    fields = (
        "kind", "images", "size", "channels", "filters", "filter_size", "stride", "padding",
        "dilation", "groups", "dtype",
    )  # fmt: skip
    return {field: getattr(case, field) for field in fields} | {"out_dtype": case.result_dtype}
