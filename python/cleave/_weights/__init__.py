"""Weights of 4 bits: how they are quantised, packed and read back."""

from .packed import PackedWeights
from .packing import dequantize_weights, pack_weights, unpack_weights
from .product import mixed_gemm, plan_mixed_gemm

__all__ = ["PackedWeights", "dequantize_weights", "mixed_gemm", "pack_weights", "plan_mixed_gemm", "unpack_weights"]
