"""Arrays [..., K] as matrices."""

from __future__ import annotations

from typing import Any


def rows_of(x: Any) -> Any:
    return x if len(x.shape) == 2 else x.reshape(-1, x.shape[-1])


def written_rows(x: Any) -> Any:
    """Never of a copy."""
    return x if len(x.shape) == 2 else x.view(-1, x.shape[-1])
