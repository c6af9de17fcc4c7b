"""How tokens get to their experts and back: what `cleave.torch.MoE` and `W8A8Experts` ask of a dispatcher.

`OneRank` sorts the tokens of a process that has all experts. `cleave.distributed.AllToAll` and `AllGather` send them to
the ranks that have theirs. Others are classes of your own with the same members, around DeepEP's buffers, say, whose
layouts `Arrived` can describe.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from ._batch_invariant import is_batch_invariant

__all__ = ["Arrived", "Dispatcher", "OneRank"]

# Rows of an expert, on average (docs/notes/2026-11-mixtures.md).
MOST_GATHERED_ROWS = 64


class Arrived(NamedTuple):
    """Rows at their experts, and where each of this rank's experts has its own.

    rows: [rows, features], or with counts [experts of this rank, room, features]; copies of tokens, differentiable.
        With gather, which has no gradients, the tokens themselves.
    offs, alignment, counts: as in `cleave.grouped_gemm`. offs alone: expert after expert. offs and alignment=128:
        each begins at a multiple, DeepEP's expanded layout. counts: each has room, DeepEP's low-latency layout.
    gather, top_k: which token each row is, as in `cleave.grouped_gemm`.
    scale: [rows, n], what went with rows of 8 bits; with gather, with the tokens.
    context: the dispatcher's own, for `combine`.
    """

    rows: Tensor
    offs: Tensor | None = None
    alignment: int | None = None
    counts: Tensor | None = None
    gather: Tensor | None = None
    top_k: int = 1
    scale: Tensor | None = None
    context: Any = None


class Dispatcher(Protocol):
    """ranks: among how many the experts are dealt, as many to each, in their order."""

    ranks: int

    def dispatch(
        self, x: Tensor, expert_ids: Tensor, weights: Tensor, num_experts: int, scale: Tensor | None = None
    ) -> Arrived:
        """The rows of this rank's experts, of all ranks' x.

        Args:
            x: [tokens, features], of this rank.
            expert_ids, weights: [tokens, top_k], integers of all experts, num_experts of them, and float32.
            scale: [tokens, n], which goes with x of 8 bits; `cleave.torch.MoE` has none.
        """

    def combine(self, rows: Tensor, arrived: Arrived) -> Tensor:
        """[tokens, features] of this rank: the sum of each token's rows, which its experts made of what arrived, times
        their weights."""


def check_dealt(num_experts: int, dispatcher: Dispatcher) -> int:
    """Among how many ranks; ValueError where they would not have as many experts."""
    ranks = dispatcher.ranks
    if num_experts % ranks != 0:
        raise ValueError(
            f"num_experts is {num_experts} over {ranks} ranks; it must be a multiple: add experts, or use a group of "
            "fewer ranks"
        )
    return ranks


def pays_to_gather(expert_ids: Tensor, num_experts: int) -> bool:
    """Whether a product that waits for its weights gathers rows in less time than a kernel copies them. Its sums may
    have another order: where one is promised, no number of rows decides."""
    return not is_batch_invariant() and expert_ids.numel() <= MOST_GATHERED_ROWS * num_experts


def permuted(x: Tensor, expert_ids: Tensor, weights: Tensor, num_experts: int, scale: Tensor | None) -> Arrived:
    """Copies of x's rows, sorted by expert, and of their scales. context: indices, as moe_unpermute takes them, and
    weights."""
    ops = torch.ops.cleave
    if scale is None:
        rows, offs, indices = ops.moe_permute(x, expert_ids, num_experts)
    else:
        offs, indices = ops.moe_sort_tokens(expert_ids, num_experts)
        rows, scale = ops.moe_gather(x, indices), ops.moe_gather(scale, indices)
    return Arrived(rows, offs, scale=scale, context=(indices, weights))


def permuted_in_8_bits(x: Tensor, expert_ids: Tensor, weights: Tensor, num_experts: int, dtype: torch.dtype) -> Arrived:
    """`permuted` of what x is in 8 bits, with a scale for each 128 columns, in one launch after the sort."""
    rows, scale, offs, indices = torch.ops.cleave.moe_permute_quantized(x, expert_ids, num_experts, dtype)
    return Arrived(rows, offs, scale=scale, context=(indices, weights))


class OneRank:
    """All experts are here.

    gathers: without gradients, where experts have few rows, none is copied, and the experts' first product gathers
        them. `cleave.torch.MoE`'s own does; a class that does something with rows must not.
    """

    ranks = 1
    gathers = False

    def __init__(self, gathers: bool = False) -> None:
        self.gathers = gathers

    def copies(self, expert_ids: Tensor, num_experts: int) -> bool:
        """Whether `dispatch` copies rows that have no gradients."""
        return not self.gathers or not pays_to_gather(expert_ids, num_experts)

    def dispatch(
        self, x: Tensor, expert_ids: Tensor, weights: Tensor, num_experts: int, scale: Tensor | None = None
    ) -> Arrived:
        differentiable = torch.is_grad_enabled() and x.itemsize > 1
        if differentiable or self.copies(expert_ids, num_experts):
            return permuted(x, expert_ids, weights, num_experts, scale)
        offs, indices = torch.ops.cleave.moe_sort_tokens(expert_ids, num_experts)
        return Arrived(x, offs, None, None, indices, expert_ids.shape[1], scale, context=(indices, weights))

    def combine(self, rows: Tensor, arrived: Arrived) -> Tensor:
        return torch.ops.cleave.moe_unpermute(rows, *arrived.context)
