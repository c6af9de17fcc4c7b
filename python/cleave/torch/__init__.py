"""Cleave's operators in PyTorch, and linear layers that multiply 8-bit numbers.

    import cleave.torch
    d = torch.ops.cleave.gemm(a, b, bias)                     # differentiable
    q, scale = torch.ops.cleave.quantize(x, torch.int8)
    d = torch.ops.cleave.scaled_gemm(q, weight.t(), scale, weight_scale)
    cleave.torch.replace_linears(model, "int8")

The operators, on CUDA tensors (on torch's current stream) and on CPU tensors:

    gemm(a, b, bias=None, c=None, *, alpha, beta, activation, out_dtype, split_k_mode,
        split_k_slices)
    scaled_gemm(a, b, scale_a, scale_b, bias=None, out_dtype=None, use_fast_accum=False, *, c,
        alpha, beta, activation, scale_d, azp, azp_adj, split_k_mode, split_k_slices)
    quantize(x, dtype, granularity="row", smooth=None, *, scale_major) -> q, scale
    quantize_asymmetric(x, granularity="row", smooth=None) -> q, scale, zero
    quantize_static(x, scale, dtype, granularity="tensor", smooth=None, zero=None) -> q

Arguments mean what they mean in `cleave.gemm`, `cleave.scaled_gemm` and `cleave.quantize`. Results
are new tensors. Each has an `out` form, torch.ops.cleave.gemm.out(..., out=d), which writes to
tensors that are given and returns nothing: `out`, of quantize and quantize_asymmetric also
`scale_out` and `zero_out`, of scaled_gemm also `amax`.

All work under torch.compile(fullgraph=True), in CUDA graphs too. What `cleave` raises as ValueError
or TypeError is a RuntimeError here, as it is for torch's own operators. Eager calls cost least host
time with positional arguments; where scaled_gemm takes keywords, as scaled_gemm.full, which torch
need not look for; and in torch.inference_mode(), where gemm leaves its gradients alone.
"""

from . import _library

_library.load()

from . import _autograd, _fake  # noqa: E402
from .linear import W8A8Linear, replace_linears  # noqa: E402

__all__ = ["W8A8Linear", "replace_linears"]

_fake.register()
_autograd.register()
