"""Matrix products for NVIDIA GPUs, with split-K, compiled at run time.

    d = cleave.gemm(a, b)                                        # torch, NumPy, CuPy, JAX
    d = cleave.gemm(a, b, split_k_mode="parallel", split_k_slices=16)
    plan = cleave.plan_gemm(a, b); plan.run(a, b, out=d)         # planned once, run often
    d = cleave.scaled_gemm(a, b, scale_a, scale_b, bias=bias)    # 8-bit operands
    d = cleave.grouped_gemm(tokens, weights, offs)               # a mixture of experts
    q, scale = cleave.quantize(x, "int8", "row")                 # makes them

`cleave.op` has the same in CUTLASS's vocabulary, `cleave.compat` in those of torch, vLLM and
DeepGEMM.
"""

from . import _library_paths, compat, moe, op
from ._core import (
    CudaError,
    GemmPlan,
    QuantizePlan,
    __version__,
    cache_clear,
    cache_info,
    compile_all,
    device_count,
    device_info,
    gemm,
    grouped_gemm,
    grouped_gemm_wgrad,
    plan_gemm,
    plan_grouped_gemm,
    plan_problem,
    plan_quantize,
    plan_scaled_gemm,
    quantize,
    release_workspaces,
    scaled_gemm,
)
from .op import DataType, LayoutType
from .smoothing import smooth

__all__ = [
    "CudaError",
    "DataType",
    "GemmPlan",
    "LayoutType",
    "QuantizePlan",
    "__version__",
    "cache_clear",
    "cache_info",
    "compat",
    "compile_all",
    "device_count",
    "device_info",
    "gemm",
    "grouped_gemm",
    "grouped_gemm_wgrad",
    "moe",
    "op",
    "plan_gemm",
    "plan_grouped_gemm",
    "plan_problem",
    "plan_quantize",
    "plan_scaled_gemm",
    "quantize",
    "release_workspaces",
    "scaled_gemm",
    "smooth",
]

_library_paths.register()
