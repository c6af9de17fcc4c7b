"""Libraries whose arrays the `cleave` command's tests use."""

from __future__ import annotations

import pytest

from cleave.testing import arrays


def library_for(*dtypes: str) -> arrays.Arrays:
    """NumPy, or torch where NumPy has not the types."""
    if arrays.TORCH_ONLY & set(dtypes):
        pytest.importorskip("torch")
    return arrays.select("cpu", set(dtypes))
