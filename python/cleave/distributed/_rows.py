"""Views of rows, without the time that one of all of them takes the host."""

from __future__ import annotations

from torch import Tensor


def first_rows(x: Tensor, rows: int) -> Tensor:
    """x[:rows]."""
    return x if x.shape[0] == rows else x[:rows]
