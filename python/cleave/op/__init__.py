"""Products in the vocabulary of CUTLASS's Python interface, with split-K added.

plan = cleave.op.Gemm(element=torch.float16, layout=cleave.LayoutType.RowMajor)
plan.activation = "relu"
plan.run(A, B, C, D, alpha=1.0, beta=0.5, split_k_mode="parallel", split_k_slices=16)
"""

from __future__ import annotations

from ._conv import Conv2dDgrad, Conv2dFprop, Conv2dWgrad
from ._gemm import Gemm, GemmRun, GroupedGemm, ScaledGemm
from ._types import DataType, LayoutType

__all__ = [
    "Conv2dDgrad",
    "Conv2dFprop",
    "Conv2dWgrad",
    "DataType",
    "Gemm",
    "GemmRun",
    "GroupedGemm",
    "LayoutType",
    "ScaledGemm",
]
