"""Mixtures of experts: from the experts that tokens choose to rows sorted by expert, and back.

    rows, offs, indices = cleave.moe.permute(x, expert_ids, num_experts)
    rows = cleave.grouped_gemm(rows, weights, offs)
    y = cleave.moe.unpermute(rows, indices, router_weights)

A token chooses top_k experts; each choice is a slot, number token * top_k + choice. Sorting gives
every slot a row: the slots of expert 0 first, in their order, then those of expert 1, and so on,
and last those that are dropped, whose id is negative or num_experts and more.

Arrays are torch tensors, NumPy, CuPy or JAX arrays, or anything else with DLPack or
``__cuda_array_interface__``, all on one device. Results are new arrays of the first argument's
framework, the same in every run. CUDA arrays run on the GPU: a call enqueues some kernels and never
waits for it, nor reads what the arrays hold. Safe in CUDA graphs once the same call has run on that
stream, and right for whatever ids a graph finds when it is replayed. `stream` is as in
`cleave.gemm`. There are no gradients: those have torch.ops.cleave.moe_permute and its siblings.

Errors are TypeError for what is no array or of another dtype, ValueError for shapes, strides and
devices that do not fit, cleave.CudaError where the driver or the compiler failed.
"""

from __future__ import annotations

from typing import Any

from . import _core

__all__ = ["expert_offsets", "gather", "permute", "sort_tokens", "unpermute"]


def expert_offsets(expert_ids: Any, num_experts: int, *, stream: Any = None) -> Any:
    """Where each expert's rows end: the `offs` of `cleave.grouped_gemm`, in one kernel launch.

    Args:
        expert_ids: of any shape, int32 or int64, contiguous. Ids that name no expert count nowhere.
        num_experts: from 1 to 1024.

    Returns:
        int32 [num_experts]: how many ids are at most 0, 1, and so on.
    """
    return _core.moe_expert_offsets(expert_ids, num_experts, stream)


def sort_tokens(expert_ids: Any, num_experts: int, *, stream: Any = None) -> tuple[Any, Any]:
    """`permute` without rows: for products that gather them, or for `gather`.

    Args: as `expert_offsets`.

    Returns:
        offs, int32 [num_experts], and indices, int32 [tokens * top_k]: of every row its slot, or
        ~slot, which is negative, of one that is dropped.
    """
    return _core.moe_sort_tokens(expert_ids, num_experts, stream)


def permute(x: Any, expert_ids: Any, num_experts: int, *, stream: Any = None) -> tuple[Any, Any, Any]:
    """The tokens' rows sorted by expert.

    Args:
        x: [tokens, features], of any dtype, rows contiguous. Read once, whatever top_k is.
        expert_ids: [tokens, top_k] or [tokens], int32 or int64, contiguous.
        num_experts: from 1 to 1024.

    Returns:
        rows, [tokens * top_k, features], zeros where dropped; offs and indices as `sort_tokens`.
    """
    return _core.moe_permute(x, expert_ids, num_experts, stream)


def gather(x: Any, indices: Any, *, stream: Any = None) -> Any:
    """The rows of other tokens, by `indices` that are known: scales, say, or gradients.

    Args:
        x: [tokens, features], of any dtype, rows contiguous.
        indices: int32 [tokens * top_k], as `permute` gives them. What is no such permutation gives
            rows with any contents.

    Returns:
        rows, [tokens * top_k, features], zeros where dropped.
    """
    return _core.moe_gather(x, indices, stream)


def unpermute(y: Any, indices: Any, weights: Any = None, *, top_k: int | None = None, stream: Any = None) -> Any:
    """Every token's sum of its slots' rows, times their weights.

    Args:
        y: [tokens * top_k, features], float16, bfloat16 or float32, rows contiguous.
        indices: int32 [tokens * top_k], as `permute` gives them.
        weights: [tokens, top_k], float16, bfloat16 or float32, contiguous; None for ones.
        top_k: of a token, where there are no weights to tell; by default 1.

    Returns:
        [tokens, features], of y's dtype: sums in float32, in the order of the slots. Dropped slots
        add nothing.
    """
    return _core.moe_unpermute(y, indices, weights, top_k, stream)
