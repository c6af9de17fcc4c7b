"""Scaled products on the GPU: their kinds, and how to make them and their operands."""

from __future__ import annotations

import torch
from products import DTYPES_8BIT, Product, scale_shape
from test_gemm_gpu import split

E4M3, E5M2 = "float8_e4m3fn", "float8_e5m2"
PAIRS = (("int8", "int8"), (E4M3, E4M3), (E4M3, E5M2), (E5M2, E4M3), (E5M2, E5M2))
VECTOR_SCALINGS = (("tensor", "tensor"), ("row", "row"), ("tensor", "row"), ("row", "tensor"))
BLOCK_SCALINGS = (
    ("1x128", "128x128"),
    ("1x128", "1x128"),
    ("128x128", "1x128"),
    ("128x128", "128x128"),
)
SCALINGS = (None, *VECTOR_SCALINGS, *BLOCK_SCALINGS)
# One of each kind of kernel.
KINDS = (
    {"dtype": "int8", "scaling": ("row", "row"), "azp": "row"},
    {"dtype": E4M3, "scaling": ("row", "row")},
    {"dtype": E4M3, "scaling": ("row", "row"), "options": {"use_fast_accum": True}},
    {"dtype": E4M3, "scaling": ("1x128", "128x128")},
    {"dtype": E5M2, "b_dtype": E4M3, "scaling": ("1x128", "1x128")},
)


def make(m: int, n: int, k: int, kernel: str = "auto", mode: str = "none", **given) -> Product:
    """D in bfloat16 and lines of 16 bytes, where nothing else is said."""
    options = {"kernel": kernel, **split(mode), **given.pop("options", {})}
    return Product(m, n, k, **{"out_dtype": "bfloat16", "padding": 16} | given, options=options)


def random_operands(m: int, n: int, k: int, dtype: str) -> tuple[torch.Tensor, torch.Tensor]:
    def values(rows: int) -> torch.Tensor:
        if dtype == "int8":
            return torch.randint(-127, 128, (rows, k), dtype=torch.int8, device="cuda")
        return torch.randn(rows, k, device="cuda").to(DTYPES_8BIT[dtype])

    return values(m), values(n).mT


def random_scales(scaling: tuple[str, str], m: int, n: int, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    def values(kind: str, rows: int) -> torch.Tensor:
        return torch.rand(scale_shape(kind, rows, k), device="cuda") + 0.5

    return values(scaling[0], m), values(scaling[1], n).mT
