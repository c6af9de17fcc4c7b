"""Matrices of any dtype and layout, drawn by hypothesis."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

DTYPES = {"int8": np.int8, "float16": np.float16, "float32": np.float32}
try:
    import ml_dtypes
except ImportError:
    pass
else:
    names = ("bfloat16", "float8_e4m3fn", "float8_e5m2")
    DTYPES |= {name: getattr(ml_dtypes, name) for name in names}
FLOATS = [name for name in ("float16", "float32", "bfloat16") if name in DTYPES]

CANARY = 96.0  # exact in every dtype; lies where nothing may be written


def random_matrix(draw, rng, dtype: str, *shape: int | None) -> tuple[np.ndarray, np.ndarray]:
    """A view, transposed or not, into a buffer with longer lines; and the buffer."""
    *lead, rows, cols = (size for size in shape if size is not None)
    column_major, padding = draw(st.booleans()), draw(st.sampled_from([0, 0, 1, 16]))
    lines, length = (cols, rows) if column_major else (rows, cols)
    shape = (*lead, lines, length + padding)
    if dtype == "int8":
        buffer = rng.integers(-128, 128, shape, dtype=np.int8)
    else:
        buffer = rng.standard_normal(shape).astype(DTYPES[dtype])
    view = buffer[..., :length]
    return (view.swapaxes(-1, -2) if column_major else view), buffer
