"""The types of 8 bits that layers quantise to, as their callers name them."""

from __future__ import annotations

import torch

_DTYPES = {"int8": torch.int8, "float8_e4m3fn": torch.float8_e4m3fn}

Dtype = str | torch.dtype


def parse_dtype(dtype: Dtype, argument: str = "dtype") -> torch.dtype:
    for name, known in _DTYPES.items():
        if dtype in (name, known):
            return known
    names = " or ".join(f'"{name}"' for name in _DTYPES)
    raise ValueError(
        f"{argument} is {dtype!r}; it must be {names}, by name or as torch's dtype; replace_linears has weights of "
        '"int4", "mxfp4" and "nvfp4" besides'
    )
