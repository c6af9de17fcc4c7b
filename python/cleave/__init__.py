"""Matrix products and convolutions for NVIDIA GPUs, with split-K, compiled at run time.

    d = cleave.gemm(a, b)                                        # torch, NumPy, CuPy, JAX
    d = cleave.gemm(a, b, split_k_mode="parallel", split_k_slices=16)
    plan = cleave.plan_gemm(a, b); plan.run(a, b, out=d)         # planned once, run often
    d = cleave.scaled_gemm(a, b, scale_a, scale_b, bias=bias)    # 8-bit operands
    d = cleave.mixed_gemm(a, cleave.pack_weights(w))             # weights of 4 bits
    d = cleave.grouped_gemm(tokens, weights, offs)               # a mixture of experts
    y = cleave.conv2d(x, w, bias, stride=2, padding=1)           # channels_last
    q, scale = cleave.quantize(x, "int8", "row")                 # 8-bit operands from floats

`cleave.op` offers the same under CUTLASS's names, `cleave.compat` under those of torch, vLLM and
DeepGEMM. `cleave.emit` writes an operation as a standalone project.
"""

import importlib
import sys
from typing import TYPE_CHECKING, Any

from . import _core, _library_paths, _mistakes, moe, op
from ._batch_invariant import batch_invariant
from ._core import (
    CudaError,
    EpilogueFunction,
    GemmPlan,
    QuantizePlan,
    __version__,
    cache_clear,
    cache_info,
    compile_all,
    conv1d,
    conv1d_dgrad,
    conv1d_wgrad,
    conv2d,
    conv2d_dgrad,
    conv2d_wgrad,
    conv3d,
    conv3d_dgrad,
    conv3d_wgrad,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
    device_count,
    device_info,
    gemm,
    grouped_gemm,
    grouped_gemm_wgrad,
    plan_conv1d,
    plan_conv2d,
    plan_conv3d,
    plan_conv_problem,
    plan_gemm,
    plan_grouped_gemm,
    plan_problem,
    plan_quantize,
    plan_scaled_gemm,
    quantize,
    release_workspaces,
    scaled_conv1d,
    scaled_conv2d,
    scaled_conv3d,
    scaled_gemm,
)
from ._epilogue import (
    BoundEpilogue,
    Epilogue,
    EpilogueError,
    absmax,
    clamp,
    column,
    epilogue,
    erf,
    exp,
    gelu,
    log,
    matrix,
    maximum,
    minimum,
    outputs,
    relu,
    relu2,
    row,
    rsqrt,
    scalar,
    sigmoid,
    silu,
    sqrt,
    sum,
    sum_of_squares,
    tanh,
    where,
)
from ._norm import Norm, layer_norm, rms_norm
from ._pack import Pack, build_pack
from ._prepare import Prepared, prepare
from ._weights import (
    PackedWeights,
    dequantize_weights,
    mixed_gemm,
    pack_weights,
    plan_mixed_gemm,
    unpack_weights,
)
from .op import DataType, LayoutType
from .smoothing import smooth

if TYPE_CHECKING:
    from . import compat, emit

__all__ = [
    "BoundEpilogue",
    "CudaError",
    "DataType",
    "Epilogue",
    "EpilogueError",
    "EpilogueFunction",
    "GemmPlan",
    "LayoutType",
    "Norm",
    "Pack",
    "PackedWeights",
    "Prepared",
    "QuantizePlan",
    "__version__",
    "absmax",
    "batch_invariant",
    "build_pack",
    "cache_clear",
    "cache_info",
    "clamp",
    "column",
    "compat",
    "compile_all",
    "conv1d",
    "conv1d_dgrad",
    "conv1d_wgrad",
    "conv2d",
    "conv2d_dgrad",
    "conv2d_wgrad",
    "conv3d",
    "conv3d_dgrad",
    "conv3d_wgrad",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "dequantize_weights",
    "device_count",
    "device_info",
    "emit",
    "epilogue",
    "erf",
    "exp",
    "gelu",
    "gemm",
    "grouped_gemm",
    "grouped_gemm_wgrad",
    "layer_norm",
    "log",
    "matrix",
    "maximum",
    "minimum",
    "mixed_gemm",
    "moe",
    "op",
    "outputs",
    "pack_weights",
    "plan_conv1d",
    "plan_conv2d",
    "plan_conv3d",
    "plan_conv_problem",
    "plan_gemm",
    "plan_grouped_gemm",
    "plan_mixed_gemm",
    "plan_problem",
    "plan_quantize",
    "plan_scaled_gemm",
    "prepare",
    "quantize",
    "release_workspaces",
    "relu",
    "relu2",
    "rms_norm",
    "row",
    "rsqrt",
    "scalar",
    "scaled_conv1d",
    "scaled_conv2d",
    "scaled_conv3d",
    "scaled_gemm",
    "sigmoid",
    "silu",
    "smooth",
    "sqrt",
    "sum",
    "sum_of_squares",
    "tanh",
    "unpack_weights",
    "where",
]


# Modules that are imported on first use: programs that need neither should not wait for them.
_ON_DEMAND = ("compat", "emit")
# Modules that need what `import cleave` must not.
_OF_THEIR_OWN = ("distributed", "jax", "torch", "torchao", "transformers")


def __getattr__(name: str) -> Any:
    if name in _ON_DEMAND:
        return importlib.import_module(f".{name}", __name__)
    message = f"module {__name__!r} has no attribute {name!r}"
    if name in _OF_THEIR_OWN:
        message += f" before it is imported: import {__name__}.{name}"
    raise AttributeError(message, name=name, obj=sys.modules[__name__])


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


_library_paths.register()
_mistakes.explain(sys.modules[__name__], moe, op)
for _function in (_core.mixed_gemm, _core.plan_mixed_gemm):  # get what those of cleave do not know
    _mistakes.explain_function(_function)
