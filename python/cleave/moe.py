"""Mixtures of experts: from a router to rows sorted by expert, and back.

    logits = cleave.moe.router_logits(x, router_weight)
    router_weights, expert_ids = cleave.moe.route(logits, top_k)
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

from ._core import expert_offsets, gather, permute, route, router_logits, sort_tokens, unpermute

__all__ = ["expert_offsets", "gather", "permute", "route", "router_logits", "sort_tokens", "unpermute"]
