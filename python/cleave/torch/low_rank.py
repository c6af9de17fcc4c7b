"""Low-rank adapters: each row of a batch goes through its own adapter, by one kernel or two grouped products."""

from __future__ import annotations

import torch
from torch import Tensor

from ._batch_invariant import is_batch_invariant

_grouped_gemm = torch.ops.cleave.grouped_gemm
_lora = torch.ops.cleave.lora
_MOST_RANK = 64  # of the kernel


def _has_kernel(x: Tensor, a: Tensor, *others: Tensor | None) -> bool:
    """Whether one kernel computes both products: for 16-bit floats on a GPU. The order of its sums follows from the
    number of rows."""
    adapters, rank = a.shape[:2]
    fits = x.is_cuda and not is_batch_invariant() and rank <= _MOST_RANK and x.dtype in (torch.float16, torch.bfloat16)
    # Two products' tiles are larger, which adapters of hundreds of rows and many ranks are worth.
    fits = fits and (rank <= 32 or x.shape[0] < max(2048, 256 * adapters))
    return fits and all(each is None or each.dtype == x.dtype for each in (a, *others))


def lora(
    x: Tensor,
    a: Tensor,
    b: Tensor,
    offs: Tensor,
    scale: float = 1.0,
    residual: Tensor | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """residual + scale * (x @ a[g].T) @ b[g].T, for the rows of x that belong to adapter g.

    Without gradients, on a GPU, with all tensors in bfloat16 or all in float16, and a rank of at most 64, it is one
    launch (for at least 2048 rows, and 256 per adapter, the rank must be at most 32; never in
    `cleave.batch_invariant`). Otherwise it is two, whatever the adapters' numbers of rows, 0 and 1 included. Nothing
    waits for the GPU. Repeatable bit for bit, and legal in CUDA graphs once it has run with as many rows, whatever offs
    holds when they are replayed.

    If x, a, b or residual require grad, they get gradients, and the result of the second product is rounded to x's
    dtype before the residual is added; otherwise that product computes the sum, and rounds it once.

    Args:
        x: [rows, in_features], sorted by adapter (`cleave.moe.permute` sorts).
        a: [adapters, rank, in_features]: peft's lora_A.weight of each adapter.
        b: [adapters, out_features, rank]: its lora_B.weight. x, a and b have one dtype.
        offs: where each adapter's rows end, int32 or int64 [adapters] on x's device.
        scale: one for all adapters, such as lora_alpha / rank; multiply b by factors that differ between adapters.
        residual: [rows, out_features], such as the layer's own output; defaults to zeros.
        out: where to write, without gradients; pass residual itself to add in place. A view of x, a or b is written
            last, by a copy.

    Returns:
        [rows, out_features], in the residual's dtype or x's; a new tensor unless out is given. Rows past offs[-1],
        which belong to no adapter, are the residual's, or zero.

    Raises:
        ValueError, TypeError: shapes or dtypes do not fit; out is given where gradients are wanted.
        RuntimeError: what torch.ops.cleave.grouped_gemm or lora.out refuses.
    """
    if a.dim() != 3 or b.dim() != 3 or a.shape[:2] != (b.shape[0], b.shape[2]):
        raise ValueError(
            f"a is {list(a.shape)} and b is {list(b.shape)}; they must be [adapters, rank, in_features] and "
            "[adapters, out_features, rank]: pass a stack of lora_A.weight and one of lora_B.weight"
        )
    _check(x, a, b, offs, residual, out)
    given = [each for each in (x, a, b, residual) if each is not None]
    differentiable = torch.is_grad_enabled() and any(each.requires_grad for each in given)
    if differentiable and out is not None:
        raise ValueError("out is given where gradients are wanted; leave it out, or use torch.no_grad()")
    if out is not None and _shares_memory(out, x, a, b):
        return out.copy_(lora(x, a, b, offs, scale, residual))  # which is read while out is written
    if not differentiable and _has_kernel(x, a, b, residual, out):
        if out is None:
            out = x.new_empty(x.shape[0], b.shape[1])
        if residual is None:
            out.zero_()
        elif out is not residual:
            out.copy_(residual)
        _lora.out(x, a, b, offs, scale, out=out)
        return out
    hidden = _grouped_gemm.default(x, a.mT, offs)
    if out is None and (residual is None or differentiable):
        delta = _grouped_gemm.full(hidden, b.mT, offs, alpha=scale)
        return delta if residual is None else (residual + delta).to(residual.dtype)
    if residual is None:
        _grouped_gemm.out(hidden, b.mT, offs, alpha=scale, out=out, zero_rest=True)
        return out
    if out is not residual:
        out = residual.clone() if out is None else out.copy_(residual)
    _grouped_gemm.out(hidden, b.mT, offs, c=out, alpha=scale, out=out)
    return out


def _shares_memory(out: Tensor, *others: Tensor) -> bool:
    """Whether they may: views of one memory do."""
    if torch.compiler.is_compiling():
        return False
    return any(each.untyped_storage().data_ptr() == out.untyped_storage().data_ptr() for each in others)


def _check(x: Tensor, a: Tensor, b: Tensor, offs: Tensor, residual: Tensor | None, out: Tensor | None) -> None:
    """What two products would refuse in their operands' names."""
    adapters, _, features = a.shape
    if x.dim() != 2 or x.shape[1] != features:
        raise ValueError(f"x is {list(x.shape)}; it must be [rows, {features}], beside an a of {list(a.shape)}")
    if offs.shape != (adapters,):
        raise ValueError(f"offs is {list(offs.shape)}; it must be [{adapters}], where each adapter's rows end")
    for name, each in (("residual", residual), ("out", out)):
        if each is not None and each.shape != (x.shape[0], b.shape[1]):
            raise ValueError(f"{name} is {list(each.shape)}; it must be {[x.shape[0], b.shape[1]]}")
    if out is x:
        raise ValueError("out is x, which is read while out is written; pass an out of its own, or a copy of x")
    if not x.dtype == a.dtype == b.dtype and not torch.is_autocast_enabled(x.device.type):
        raise TypeError(f"x is {x.dtype}, a {a.dtype} and b {b.dtype}; convert them to one of these")
