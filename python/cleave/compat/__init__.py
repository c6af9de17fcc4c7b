"""Functions of other libraries, under their names and with their arguments, made of Cleave's.

    from cleave.compat.torch import _scaled_mm        # instead of torch._scaled_mm
    import cleave.compat.vllm as ops                  # instead of vllm._custom_ops
    import cleave.compat.sgl_kernel as sgl_kernel
    import cleave.compat.deep_gemm as deep_gemm
    import cleave.compat.flashinfer as flashinfer

They return or fill what the originals do, for every input that the originals take on a Hopper GPU
and for more: any M, N, K, strides and alignment, any sizes of groups, other dtypes, the CPU. What
they cannot serve is refused as `cleave.scaled_gemm` refuses it, with TypeError, ValueError or
`cleave.CudaError`. Outputs that are passed must have the right shape; they are never resized.
"""

from . import _wrong_operands, deep_gemm, flashinfer, sgl_kernel, torch, vllm

__all__ = ["deep_gemm", "flashinfer", "sgl_kernel", "torch", "vllm"]

_wrong_operands.explain(deep_gemm, flashinfer, sgl_kernel, torch, vllm)
