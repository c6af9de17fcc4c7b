"""What a GPU serves of what is tested."""

from __future__ import annotations

import pytest
from products import DTYPES_8BIT

import cleave


def is_hopper() -> bool:
    return cleave.device_info(0)["compute_capability"] // 10 == 9


def skip_unless_served(kernel: str, mode: str = "none", dtype: str = "bfloat16", layout: str = "tn") -> None:
    if (kernel == "sm90" or mode == "cluster") and not is_hopper():
        pytest.skip("needs a Hopper GPU")
    if kernel == "sm90" and dtype in ("float32", *DTYPES_8BIT) and layout != "tn":
        pytest.skip(f"WGMMA multiplies {dtype} only where K is contiguous")
    if dtype.startswith("float8") and cleave.device_info(0)["compute_capability"] < 89:
        pytest.skip("needs a GPU with 8-bit floats: compute capability 8.9 or later")
