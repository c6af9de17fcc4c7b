"""Products whose operands, or experts, are dealt to the ranks of a process group.

    import cleave.distributed
    y = cleave.distributed.gemm_all_reduce(x, w.t(), group, bias=bias)           # K is dealt; y on all ranks
    y = cleave.distributed.gemm_reduce_scatter(x, w.t(), group, bias=bias)       # K is dealt; y's rows are
    y = cleave.distributed.all_gather_gemm(x, w.t(), group)                      # x's rows are dealt, and N
    y = cleave.distributed.scaled_gemm_reduce_scatter(q, w, scale, w_scale, group)
    sent = cleave.distributed.moe_dispatch(x, expert_ids, num_experts, group)    # tokens go to their experts' ranks

Each is an operator, torch.ops.cleave.gemm_all_reduce(a, b, group_name, bias, c, ...) and so on: with shapes for
torch.compile(fullgraph=True), those of 16 and 32 bits with gradients.

Sums are those of split-K whose outer slices are the ranks: each multiplies what it has and rounds the result to
`partial_dtype`, its own too; what moves the results adds nothing, memory that GPUs of one host all see, NCCL or gloo;
and a kernel of ours adds them up in the order of the ranks and in float32, adds c and bias, activates, scales and
rounds, once. So all ranks have the same bits, whatever moved them and whenever it came. They are repeatable as the
product of one GPU is: for a given plan, at a given number of ranks.

Rows are dealt as torch.chunk deals them, so as DTensor does: all ranks have as many but the last ones, which have fewer
or none.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor

from .. import _mistakes
from . import _explained, _operators
from ._direct import call, known_gather, known_sum
from ._errors import PeerError
from ._finished import finished_sum, is_more
from ._moe import AllGather, AllToAll, Dispatched, Route, moe_combine, moe_dispatch
from ._peer_memory import PeerMemory
from ._peers import name_of, peers_of

__all__ = [
    "AllGather",
    "AllToAll",
    "Dispatched",
    "PeerError",
    "Route",
    "all_gather_gemm",
    "all_gather_scaled_gemm",
    "explain",
    "gemm_all_reduce",
    "gemm_reduce_scatter",
    "moe_combine",
    "moe_dispatch",
    "reset",
    "scaled_gemm_all_reduce",
    "scaled_gemm_reduce_scatter",
]


def gemm_all_reduce(
    a: Tensor, b: Tensor, group: Any = None, *, bias: Tensor | None = None, c: Tensor | None = None, **options: Any
) -> Tensor | tuple[Tensor, Tensor]:
    """activation(the sum over ranks of a @ b, + c + bias), on every rank.

    Where the result is the same on all ranks, so must its gradient be: those of a and b are products without
    communication.

    Args:
        a, b: [M, K of this rank], [K of this rank, N], of float16, bfloat16 or float32; K may differ between ranks.
        group: a ProcessGroup, its name, a DeviceMesh of one dimension; None is the default group.
        bias: [N], added once to the sum; the same on all ranks.
        c: [M, N], added once to the sum; the same on all ranks.
        activation: of the sum, as in `cleave.gemm`: those that join columns, "swiglu", too, of b's columns, without c.
        out_dtype: of the result; a's otherwise.
        partial_dtype: float16, bfloat16 or float32: what each rank's product is rounded to before it is sent and
            added; a's otherwise.
        out_scale, scale_major, use_ue8m0: "row" or "block_1x128", as in `cleave.gemm`, with an out_dtype of 8 bits: the
            float32 sum is quantised once, by scales that are found. Without gradients.
        split_k_mode, split_k_slices: of each rank's product, as in `cleave.gemm`; large sums are not split by "auto".
        order: "rank"; "k", the bits of one GPU, is for the exact sums of `scaled_gemm_all_reduce`.
        transport: what moves: "peer", memory that all ranks see, of GPUs of one host or of the host; "nccl"; "gloo",
            which takes CUDA tensors by way of the host; "auto": CLEAVE_TRANSPORT, or what serves best of these.

    Returns:
        A new [M, N], or it and its scales: the same bits on every rank and by every transport. Safe in CUDA graphs but
        by gloo, after a call of that size that was not captured; all ranks capture, and replay as often.

    Raises:
        RuntimeError: there is no process group, or this process is not in it.
        PeerError: under CLEAVE_PEER_CHECK=1, ranks call with different arguments. Without it, that is undefined by
            NCCL. By gloo also where sizes or the order of calls differ, a rank has died, or has not come before the
            timeout; the same by "peer", where the call after the one that went wrong raises it.
        ValueError, TypeError: other arguments, before anything is enqueued on this rank.
    """
    if not options and (made := known_sum("gemm_all_reduce", group, a, b, bias=bias, c=c)) is not None:
        return made
    if is_more(options):
        return finished_sum("gemm_all_reduce", group, a, (b,), bias, c, **options)
    return call("gemm_all_reduce", a, b, name_of(group, "gemm_all_reduce"), bias, c, **options)


def gemm_reduce_scatter(
    a: Tensor, b: Tensor, group: Any = None, *, bias: Tensor | None = None, c: Tensor | None = None, **options: Any
) -> Tensor | tuple[Tensor, Tensor]:
    """This rank's rows of activation(the sum over ranks of a @ b, + c + bias).

    Its backward gathers the gradient's rows once, for a, b and bias: an `all_gather_gemm`. bias's gradient is that of
    all rows, on each rank.

    Args:
        a, b, group, bias: as in `gemm_all_reduce`, and so are all options.
        c: this rank's rows of what is added once.

    Returns:
        A new [M of this rank, N], the rows that torch.chunk deals to it. Determinism and graphs: as in
        `gemm_all_reduce`, whose rows have the same bits.

    Raises:
        RuntimeError, ValueError, TypeError: as `gemm_all_reduce`.
    """
    if not options and (made := known_sum("gemm_reduce_scatter", group, a, b, bias=bias, c=c)) is not None:
        return made
    if is_more(options):
        return finished_sum("gemm_reduce_scatter", group, a, (b,), bias, c, **options)
    return call("gemm_reduce_scatter", a, b, name_of(group, "gemm_reduce_scatter"), bias, c, **options)


def all_gather_gemm(
    a: Tensor, b: Tensor, group: Any = None, *, bias: Tensor | None = None, gathered: bool = False, **options: Any
) -> Tensor | tuple[Tensor, Tensor]:
    """activation(all ranks' a, one below the other, @ b + bias).

    Its backward is a `gemm_reduce_scatter` for a, and a local product of the gathered a for b.

    Args:
        a: this rank's rows, [M of this rank, K], of float16, bfloat16 or float32.
        b: [K, N of this rank]. bias: [N of this rank].
        group, transport: as in `gemm_all_reduce`.
        gathered: also returns all ranks' a, which has no gradient.
        rows: M, where ranks have different numbers of rows: those that torch.chunk deals. None: as many on all ranks.
        activation: of this rank's columns, as in `cleave.gemm`. out_dtype: as in `gemm_all_reduce`.
        save_gathered: whether the gathered a is kept for the backward pass, or gathered again there.

    Returns:
        A new [M, N of this rank], or it and the gathered a; bit by bit `cleave.torch.gemm` of the gathered a.

    Raises:
        RuntimeError, ValueError, TypeError: as `gemm_all_reduce`.
    """
    name = "all_gather_gemm"
    if not (options or gathered) and (made := known_gather(name, group, a, b, bias=bias)) is not None:
        return made[0]
    made = call(name, a, b, name_of(group, name), bias, only={"kept": gathered}, **options)
    return made if gathered else made[0]


def scaled_gemm_all_reduce(
    a: Tensor, b: Tensor, scale_a: Tensor | None, scale_b: Tensor | None, group: Any = None, **options: Any
) -> Tensor | tuple[Tensor, Tensor]:
    """`gemm_all_reduce` of 8-bit operands, int8 or floats. It has no gradient.

    Args:
        a, b, scale_a, scale_b, use_fast_accum: this rank's, as in `cleave.scaled_gemm`; scales are of each rank's K.
        group, bias, c, activation, transport, out_scale and what goes with it, split_k_mode, split_k_slices: as in
            `gemm_all_reduce`.
        order: "rank"; or "k", the bits of one GPU's `scaled_gemm` over all of K, of int8 with one scale for all or one
            for each row (column): these are then of all of K, the same on all ranks, and int32 sums are sent.
        partial_dtype, out_dtype: as there; bfloat16 otherwise.
        scale_d: one float32, the same on all ranks, with an out_dtype of 8 bits: the sum is divided by it, once.

    Returns:
        A new [M, N], as `gemm_all_reduce` does.

    Raises:
        RuntimeError, ValueError, TypeError: as `gemm_all_reduce`.
    """
    name = "scaled_gemm_all_reduce"
    if not options and (made := known_sum(name, group, a, b, scale_a, scale_b)) is not None:
        return made
    if is_more(options):
        return finished_sum(name, group, a, (b, scale_a, scale_b), **{"bias": None, "c": None} | options)
    return call(name, a, b, scale_a, scale_b, name_of(group, name), **options)


def scaled_gemm_reduce_scatter(
    a: Tensor, b: Tensor, scale_a: Tensor | None, scale_b: Tensor | None, group: Any = None, **options: Any
) -> Tensor | tuple[Tensor, Tensor]:
    """`gemm_reduce_scatter` of 8-bit operands: arguments, result and errors as in `scaled_gemm_all_reduce`, c's and the
    result's rows as in `gemm_reduce_scatter`."""
    name = "scaled_gemm_reduce_scatter"
    if not options and (made := known_sum(name, group, a, b, scale_a, scale_b)) is not None:
        return made
    if is_more(options):
        return finished_sum(name, group, a, (b, scale_a, scale_b), **{"bias": None, "c": None} | options)
    return call(name, a, b, scale_a, scale_b, name_of(group, name), **options)


def all_gather_scaled_gemm(
    a: Tensor, b: Tensor, scale_a: Tensor | None, scale_b: Tensor | None, group: Any = None, **options: Any
) -> Tensor:
    """`all_gather_gemm` of 8-bit operands, whose scales travel with them. It has no gradient.

    Args:
        a, scale_a: this rank's rows, and their scales: [M of this rank, 1], in blocks [M of this rank, K / 128], or one
            element for all of this rank's rows.
        b, scale_b, use_fast_accum: as in `cleave.scaled_gemm`.
        group, bias, rows, activation, transport: as in `all_gather_gemm`. out_dtype: as in `cleave.scaled_gemm`.

    Returns:
        A new [M, N of this rank].

    Raises:
        RuntimeError, ValueError, TypeError: as `gemm_all_reduce`.
    """
    name = "all_gather_scaled_gemm"
    if not options and (made := known_gather(name, group, a, b, scale_a, scale_b)) is not None:
        return made[0]
    return call(name, a, b, scale_a, scale_b, name_of(group, name), **options)


def explain(
    operation: str, m: int, n: int, group: Any = None, *, partial_dtype: Any = torch.bfloat16, device: Any = None
) -> str:
    """What an operation over ranks does: which transport, in which steps, how many bytes a rank sends.

    Args:
        operation: the name of one of the functions here.
        m, n: of the result, all ranks' rows; of an all-gather, of the gathered a.
        group: as in `gemm_all_reduce`.
        partial_dtype: of what is sent.
        device: of the tensors; None: the GPU where torch has one, else the CPU.

    Raises:
        ValueError: there is no such operation; sizes that are negative.
        RuntimeError: there is no process group.
    """
    if operation not in __all__ or "gemm" not in operation:
        named = ", ".join(name for name in __all__ if "gemm" in name)
        raise ValueError(f"operation is {operation!r}; it must be one of {named}")
    if min(m, n) < 0:
        raise ValueError(f"m is {m} and n is {n}; they must be 0 or more")
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    peers = peers_of(name_of(group, operation))
    return f"{operation} over {peers.size} ranks by " + _explained.explained(
        operation, m, n, partial_dtype.itemsize, peers, torch.device(device)
    )


def reset(group: Any = None) -> None:
    """Makes the memory of a group whole again after a PeerError, while all of its ranks live.

    Every rank calls it, whatever it had called before, when it captures no graph and no other thread calls products
    of the group; it returns where all have. It waits for the device, and for other ranks twice CLEAVE_PEER_TIMEOUT, as
    they may be as long in their last call. Captured graphs may be replayed again. A group that has made no such memory
    has nothing to reset: its backend's collectives, gloo's or NCCL's, are not repaired.

    Raises:
        PeerError: a rank does not come: it has died, is late, or makes another call. The group stays broken; make
            another of the ranks that are left, or call it again on all.
        RuntimeError: as `gemm_all_reduce`.
    """
    for memory in peers_of(name_of(group, "reset")).memories.values():
        if isinstance(memory, PeerMemory):
            memory.reset()


_operators.register()
_mistakes.explain(sys.modules[__name__])
