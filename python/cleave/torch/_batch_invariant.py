"""torch's own products, made by Cleave, with rows that do not depend on the batch."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from .. import _batch_invariant, _core

_gemm = torch.ops.cleave.gemm
_DTYPES = (torch.float16, torch.bfloat16, torch.float32)


def is_batch_invariant() -> bool:
    """Whether a row's bits may depend on no other rows, nor their number: what then has one way, whichever is faster
    for so many."""
    return _core.batch_invariant()


# What torch.compiler.assume_constant_result does, which would import the compiler here: two seconds.
is_batch_invariant._dynamo_marked_constant = True


@contextmanager
def batch_invariant(promised: bool = True, *, aten: bool = True, sum_order: str | None = None) -> Iterator[None]:
    """`cleave.batch_invariant`, and torch's products are made by Cleave's: torch.mm, addmm, bmm, baddbmm and what leads
    there, as matmul, nn.Linear and nn.functional.linear, on the CPU and on GPUs, forward and backward.

    A row of such a product has the same bits in every batch if its first operand is contiguous along K: of float16,
    bfloat16, and float32, which rounds to TF32 on a GPU only where torch's switch allows it. Other types, and vectors,
    are left to torch. Under torch.compile it holds for the products that inductor leaves to aten. Attention, norms,
    reductions and convolutions are not covered.

    Args:
        promised: False for a stretch within that is free again.
        aten: False to leave torch's own functions alone: torch.ops.cleave and the layers of cleave.torch only.
        sum_order: as in `cleave.batch_invariant`.

    Graphs keep what they were captured with. Process-wide; may be nested.
    """
    with _batch_invariant.batch_invariant(promised, sum_order=sum_order):
        if not (promised and aten):
            yield
            return
        library = torch.library.Library("aten", "IMPL")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # that kernels are replaced, as is meant
                for key in ("CPU", "CUDA"):
                    for name, product in _PRODUCTS.items():
                        if torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}.out", key):
                            _route(library, name, key, product)
            yield
        finally:
            library._destroy()


def _route(library: torch.library.Library, name: str, key: str, product: Callable[..., Tensor]) -> None:
    """aten::name, and its form with `out`."""
    torchs = torch.library.get_kernel(f"aten::{name}", key)
    torchs_out = torch.library.get_kernel(f"aten::{name}.out", key)

    def run(keys: Any, *args: Any, **kwargs: Any) -> Tensor:
        if not _serves(args):
            return torchs.call_boxed(keys, *args, **kwargs)
        return product(*args, **kwargs)

    def run_out(keys: Any, *args: Any, out: Tensor, **kwargs: Any) -> Tensor:
        if not _serves((*args, out)):
            return torchs_out.call_boxed(keys, *args, out=out, **kwargs)
        d = product(*args, **kwargs)
        return out.resize_(d.shape).copy_(d)

    library.impl(name, run, key, with_keyset=True, allow_override=True)
    library.impl(f"{name}.out", run_out, key, with_keyset=True, allow_override=True)


def _serves(tensors: tuple[Tensor, ...]) -> bool:
    first = tensors[0]
    return first.dtype in _DTYPES and all(
        type(each) in (Tensor, torch.nn.Parameter) and each.dtype == first.dtype and not each.is_complex()
        for each in tensors
    )


def _loadable(matrix: Tensor) -> Tensor:
    """One of the last two strides has to be 1."""
    return matrix if 1 in matrix.stride()[-2:] else matrix.contiguous()


def _product(a: Tensor, b: Tensor) -> Tensor:
    return _gemm(_loadable(a), _loadable(b))


def _sum(c: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    shape = (*a.shape[:-1], b.shape[-1])
    if beta == 0:
        return _gemm(_loadable(a), _loadable(b), alpha=alpha)
    if beta == 1 and c.shape == shape[-1:] and c.is_contiguous():
        return _gemm(_loadable(a), _loadable(b), c, alpha=alpha)
    return _gemm(_loadable(a), _loadable(b), None, c.expand(shape).contiguous(), alpha=alpha, beta=beta)


_PRODUCTS = {"mm": _product, "bmm": _product, "addmm": _sum, "baddbmm": _sum}
