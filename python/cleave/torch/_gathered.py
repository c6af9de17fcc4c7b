"""Weights that FSDP gathers in 8 bits: each rank quantises its part, and what travels is a byte a value, and scales.

By FSDP2's own protocol, fsdp_pre_all_gather and fsdp_post_all_gather of a parameter's part. Only recipes whose weight
is read along both dimensions by the same 8 bits: the others quantise a transposed copy anew, of values that no rank has
any more.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ._float8 import E4M3, Rows
from ._scales import BLOCK

_ops = torch.ops.cleave
_aten = torch.ops.aten


class Gathered(Tensor):
    """All of a weight, in 8 bits: a parameter while it is gathered, of the dtype in which it has gradients.

    Only layers that multiply in 8 bits take it. q, scale: as `quantize` of all of it makes them, bit by bit.
    """

    q: Tensor
    scale: Tensor

    @staticmethod
    def __new__(cls, q: Tensor, scale: Tensor, dtype: torch.dtype) -> Gathered:
        made = Tensor._make_wrapper_subclass(cls, q.shape, dtype=dtype, device=q.device)
        made.q, made.scale = q, scale
        return made

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"{type(self).__name__}({list(self.shape)} in {self.q.dtype} for {self.dtype})"

    def rows(self) -> Rows:
        return Rows(self.q, self.scale)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        own = args[0]
        if func in (_aten.detach.default, _aten.as_strided.default):  # FSDP's, of all of it
            return cls(own.q, own.scale, own.dtype)
        raise NotImplementedError(
            f"{func} of a weight that FSDP gathered in 8 bits, which Float8Linear alone takes; shard this layer "
            "without gather_in_8_bits"
        )


class Part(Tensor):
    """A rank's part of a weight that is gathered in 8 bits. What is made of it is a plain tensor."""

    recipe: str
    __torch_function__ = torch._C._disabled_torch_function_impl

    def fsdp_pre_all_gather(
        self, mesh: Any, outer_size: torch.Size, outer_stride: tuple[int, ...], module: Any, mp_policy: Any
    ) -> tuple[tuple[Tensor, ...], Tensor | None]:
        own = self.detach()
        if self.recipe == "blockwise":
            q, scale = _ops.quantize(own, E4M3, "block_128x128")
            if mesh.size() == 1:  # where FSDP hands on the first tensor alone
                return (q.view(torch.uint8),), scale
            return (q.view(torch.uint8), scale), None
        scale = _ops.quantize(own, E4M3, "tensor")[1]
        dist.all_reduce(scale, dist.ReduceOp.MAX, group=mesh.get_group())  # that of the largest value of all
        return (_ops.quantize_static(own, scale, E4M3).view(torch.uint8),), scale

    def fsdp_post_all_gather(
        self, outputs: tuple[Tensor, ...], scale: Tensor | None, dtype: torch.dtype, *, out: Gathered | None = None
    ) -> tuple[Gathered, tuple[Tensor, ...]] | None:
        q, *scales = outputs
        if scales:
            scale = scales[0]
        elif scale.is_cuda:  # it is memory of the stream that gathers, which would take it back before it is read here
            scale.record_stream(torch.cuda.current_stream(scale.device))
        if out is not None:  # whose memory these are
            out.scale = scale
            return None
        return Gathered(q.view(E4M3), scale, dtype), outputs


def refusal(weight: Tensor, recipe: str) -> str:
    """Why this DTensor cannot be gathered in 8 bits; empty if it can."""
    if recipe not in ("blockwise", "tensorwise"):
        return f"recipe is {recipe!r}, whose weight is quantised twice, along rows and along columns"
    *outer, placement = weight.placements
    if not placement.is_shard(0) or not all(x.is_replicate() for x in outer):  # those of HSDP are
        return f"weight is dealt as {weight.placements}, which must be by rows, to ranks of FSDP alone"
    ranks = weight.device_mesh.size(len(outer))
    rows, multiple = weight.shape[0] // ranks, BLOCK if recipe == "blockwise" else 1
    if weight.to_local().shape[0] != rows or rows % multiple:
        given = f"weight has {weight.shape[0]} rows over {ranks} ranks"
        return f"{given}; they must be dealt in equal multiples of {multiple}"
    if weight.to_local().device.type != weight.device_mesh.device_type:
        return "the weight is offloaded to the CPU"
    return ""


def make_part(weight: Tensor, recipe: str) -> None:
    """Makes it of a DTensor's part, in place: FSDP looks at its part before the first forward pass once more."""
    part = weight._local_tensor.detach().as_subclass(Part)
    part.recipe = recipe
    weight._local_tensor = part
