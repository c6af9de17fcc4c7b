"""A checkpoint's `quantization_config`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Config = Mapping[str, Any]


def refusal(text: str) -> ValueError:
    return ValueError(f"quantization_config: {text}. transformers can load such a checkpoint, dequantised")
