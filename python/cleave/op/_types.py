"""CUTLASS's names of element types and layouts."""

from __future__ import annotations

import enum
from typing import Any

from .. import _core


class DataType(enum.Enum):
    """Element types, under CUTLASS's names."""

    f16 = "float16"
    bf16 = "bfloat16"
    f32 = "float32"
    e4m3 = "float8_e4m3fn"
    e5m2 = "float8_e5m2"
    s8 = "int8"
    s32 = "int32"


class LayoutType(enum.Enum):
    """Which elements of a stored matrix are neighbours: those of a row, or those of a column."""

    RowMajor = "row"
    ColumnMajor = "column"


def element_of(value: Any) -> DataType | None:
    if value is None or isinstance(value, DataType):
        return value
    return DataType(_core.dtype_name(value))


def layout_of(value: Any) -> LayoutType | None:
    if value is None or isinstance(value, LayoutType):
        return value
    try:
        return LayoutType[getattr(value, "name", value)]  # CUTLASS's own enum has the same names
    except (KeyError, TypeError):
        raise ValueError(f"layout is {value!r}; it must be RowMajor or ColumnMajor") from None
