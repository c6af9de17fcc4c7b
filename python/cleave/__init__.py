"""Matrix products for NVIDIA GPUs, with split-K, compiled at run time.

    d = cleave.gemm(a, b)                                        # torch, NumPy, CuPy, JAX
    d = cleave.gemm(a, b, split_k_mode="parallel", split_k_slices=16)
    plan = cleave.plan_gemm(a, b); plan.run(a, b, out=d)         # planned once, run often

`cleave.op` has the same in CUTLASS's vocabulary.
"""

from . import _library_paths, op
from ._core import (
    CudaError,
    GemmPlan,
    __version__,
    cache_clear,
    cache_info,
    compile_all,
    device_count,
    device_info,
    gemm,
    plan_gemm,
    plan_problem,
    release_workspaces,
)
from .op import DataType, LayoutType

__all__ = [
    "CudaError",
    "DataType",
    "GemmPlan",
    "LayoutType",
    "__version__",
    "cache_clear",
    "cache_info",
    "compile_all",
    "device_count",
    "device_info",
    "gemm",
    "op",
    "plan_gemm",
    "plan_problem",
    "release_workspaces",
]

_library_paths.register()
