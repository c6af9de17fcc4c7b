"""The gradients of torch.ops.cleave.grouped_gemm, as products of the same operator.

Where d = a @ b in groups, a's gradient is d's @ b.mT and b's is a.mT @ d's, in the same groups: the
ranks of the operands say each time what is grouped. What belongs to no group gets a gradient of
zero, and so does the b of an empty group.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from ..._epilogue.activations import keeps_result
from . import activations, autograd, epilogue
from .sum_to import sum_to
from .untracked import register_autograd

# Arguments of grouped_gemm.full that say where groups lie, beside offs and alignment.
BOUNDS = ("indptr", "starts", "sizes", "counts")
_NO_BOUNDS = (None,) * len(BOUNDS)


def register() -> None:
    for overload in ("", ".full"):
        register_autograd(f"cleave::grouped_gemm{overload}", _backward, setup_context=_save)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor, keyword_only_inputs: dict[str, Any] | None = None) -> None:
    a, b, offs, bias, *_ = inputs
    c, *bounds, gather = inputs[8:] or (None, *_NO_BOUNDS, None)
    options = keyword_only_inputs or {}
    if a.itemsize == 1:
        raise RuntimeError(f"a and b are {a.dtype} and {b.dtype}; products of 8-bit operands have no gradient")
    if c is not None and c.requires_grad:
        raise RuntimeError("c requires grad, but has no gradient here; pass c.detach()")
    if gather is not None:
        raise RuntimeError("gather is given, and what it names has no gradient; pass the rows of moe_gather")
    ctx.alpha, ctx.beta = options.get("alpha", 1.0), options.get("beta")
    ctx.activation = options.get("activation", "none")
    ctx.alignment = options.get("alignment")
    kept = output if keeps_result(ctx.activation) else None
    ctx.save_for_backward(a, b, bias, c, kept, offs, *bounds)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    a, b, bias, c, output, offs, *bounds = ctx.saved_tensors
    groups = Groups(offs, dict(zip(BOUNDS, bounds, strict=True)), ctx.alignment)
    if ctx.activation != "none":

        def multiply(text: str, inputs: Iterable[Any], dtype: torch.dtype) -> list[Tensor]:
            return groups.finish(a, b, text, inputs, out_dtype=dtype, bias=bias, c=c, alpha=ctx.alpha, beta=ctx.beta)

        grad = activations.backward(ctx.activation, grad.contiguous(), output, multiply)
    # torch says nothing of trailing arguments that the caller left out, and wants nothing.
    needs_a, needs_b, _, needs_bias = (*ctx.needs_input_grad, False, False)[:4]
    of_a, of_b, of_bias = of_operands(grad, (a, b, bias), groups, (needs_a, needs_b, needs_bias), ctx.alpha)
    return of_a, of_b, None, of_bias, *(None for _ in ctx.needs_input_grad[4:])


def of_operands(
    grad: Tensor,
    operands: tuple[Tensor, Tensor, Tensor | None],
    groups: Groups,
    needed: tuple[bool, bool, bool],
    alpha: float,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The gradients of a, b and bias, of those that are needed, from that of alpha * a @ b + bias in groups."""
    a, b, bias = operands
    needs_a, needs_b, needs_bias = needed
    grad = (grad.to(a.dtype) if needs_a or needs_b else grad).contiguous()
    shape = a.shape
    if a.dim() == b.dim() == 3 and groups.counted:
        a, grad, groups = a.flatten(0, 1), grad.flatten(0, 1), groups.flattened(shape[1])
    return (
        groups.gradient(grad, b.mT, a, alpha).reshape(shape) if needs_a else None,
        groups.gradient(a.mT, grad, b, alpha) if needs_b else None,
        gradient_of_bias(bias, grad, groups, a, b) if needs_bias else None,
    )


class Groups:
    """Where they lie, for the products of one backward pass."""

    def __init__(
        self,
        offs: Tensor | None,
        bounds: Mapping[str, Tensor | None] = MappingProxyType({}),
        alignment: int | None = None,
    ) -> None:
        self._offs = offs
        self._bounds = {name: given for name, given in bounds.items() if given is not None}
        self._alignment = alignment
        self.counted = "counts" in self._bounds

    def flattened(self, rows: int) -> Groups:
        """Those of the matrix that a batch of matrices of `rows` rows becomes."""
        return Groups(None, self._bounds, rows)

    def multiply(self, x: Tensor, y: Tensor, bias: Tensor | None, dtype: torch.dtype, **options: Any) -> Tensor:
        return torch.ops.cleave.grouped_gemm.full(
            x, y, self._offs, bias, dtype, alignment=self._alignment, **self._bounds, **options
        )

    def finish(self, x: Tensor, y: Tensor, text: str, inputs: Iterable[Any], **options: Any) -> list[Tensor]:
        """The outputs of a function of the sums."""
        given = epilogue.named(text, inputs) | self._bounds | options
        return torch.ops.cleave.grouped_gemm.epilogue(x, y, self._offs, **given, alignment=self._alignment)

    def gradient(self, x: Tensor, y: Tensor, operand: Tensor, alpha: float) -> Tensor:
        """alpha * x @ y, in the operand's dtype and memory order."""
        if x.dim() == y.dim() == 3:
            return autograd.product(x, y, operand, alpha)
        if operand.stride(-1) != 1 and operand.stride(-2) == 1:
            return self.multiply(y.mT, x.mT, None, operand.dtype, alpha=alpha).mT
        return self.multiply(x, y, None, operand.dtype, alpha=alpha)


def gradient_of_bias(bias: Tensor, grad: Tensor, groups: Groups, a: Tensor, b: Tensor) -> Tensor:
    """Its sums, as products with ones: they leave out what is no group's."""
    if grad.dim() == 3:
        by_group = bias.shape == (grad.shape[0], grad.shape[2])
        shape = (bias.shape[0], 1, bias.shape[1]) if by_group else bias.shape
        return sum_to(grad, shape, bias.dtype).reshape(bias.shape)
    of_row = bias.dim() == 1 or bias.shape[0] == 1
    if b.dim() == 3:
        lines, count, along = grad, b.shape[0], not of_row
    else:
        lines, count, along = grad.mT, a.shape[0], of_row
    by_group = bias.shape == (count, lines.shape[1])
    if along and not by_group:  # a value for each line of each group
        ones = grad.new_ones(count, lines.shape[1], 1)
        return groups.multiply(lines, ones, None, bias.dtype).view(bias.shape)
    sums = groups.multiply(grad.new_ones(1, len(lines)), lines, None, torch.float32).squeeze(1)
    return (sums if by_group else sums.sum(0).view(bias.shape)).to(bias.dtype)
