"""Gradients of products over ranks: a sum's are local, a scatter's backward gathers, a gather's scatters.

Where gradients have gradients themselves, backward is made of operators that have them: nothing that a product gathers
beside itself, and a gradient that all ranks have is one to which all of them add.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from .._epilogue.activations import keeps_result
from ..torch._operators import activations, autograd, epilogue
from ..torch._operators.sum_to import sum_to

_ops = torch.ops.cleave


class Replicated(torch.autograd.Function):
    """x [rows, columns], which all ranks have, whose gradient is the sum of theirs."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group_name: str) -> Tensor:
        ctx.group_name = group_name
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _ops.all_reduce_rows(grad, ctx.group_name), None


def of_all_ranks(grad: Tensor, group_name: str) -> Tensor:
    """The gradient of a sum that all ranks have, for products of each rank's own."""
    return Replicated.apply(grad, group_name) if torch.is_grad_enabled() else grad


def of_scattered(
    grad: Tensor, b: Tensor, group_name: str, needs_a: bool, **options: Any
) -> tuple[Tensor | None, Tensor]:
    """That of a, and all ranks' rows of grad, from a rank's rows of the gradient of a @ b."""
    if needs_a and not torch.is_grad_enabled():
        return _ops.all_gather_gemm(grad, b.mT, group_name, **options)
    whole = _ops.all_gather_rows(grad, group_name, **options)
    return _ops.gemm(whole, b.mT) if needs_a else None, whole


def gathered_again(kept: Tensor | None, a: Tensor, group_name: str, **options: Any) -> Tensor:
    """All ranks' a, for backward: what forward has kept."""
    if kept is None or torch.is_grad_enabled():
        return _ops.all_gather_rows(a, group_name, **options)
    return kept


def _save_sum(ctx: Any, inputs: tuple[Any, ...], keyword_only_inputs: dict[str, Any], output: Tensor) -> None:
    a, b, ctx.group_name, bias, c = inputs
    ctx.options = keyword_only_inputs
    ctx.save_for_backward(a, b, bias, c, output if keeps_result(ctx.options["activation"]) else None)


Operands = tuple[Tensor, Tensor, Tensor | None, Tensor | None]


def _before_activation(ctx: Any, op: Any, grad: Tensor) -> tuple[Tensor, Operands]:
    """The gradient of the sum itself, from that of the result; a, b, bias and c."""
    *operands, output = ctx.saved_tensors  # once: checkpointing lets nobody look again
    a, b, bias, c = operands
    activation = ctx.options["activation"]
    if activation == "none":
        return grad, (a, b, bias, c)

    def multiply(text: str, inputs: Iterable[Any], _: torch.dtype) -> list[Tensor]:  # by all ranks
        linear = ctx.options | {"activation": "none", "out_dtype": grad.dtype}
        return activations.apply(text, inputs, op(a, b, ctx.group_name, bias, c, **linear))

    return activations.backward(activation, grad, output, multiply), (a, b, bias, c)


def _backward_all_reduce(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    grad, operands = _before_activation(ctx, _ops.gemm_all_reduce, grad)
    *_, bias, c = operands
    needs_a, needs_b, needs_bias, needs_c = _needed(ctx)
    of_product = of_all_ranks(grad, ctx.group_name)
    of_a, of_b, *_ = autograd.of_operands(of_product, operands, (needs_a, needs_b, False, False), 1.0, None)
    of_bias = sum_to(grad, bias.shape, bias.dtype) if needs_bias else None
    return of_a, of_b, None, of_bias, sum_to(grad, c.shape, c.dtype) if needs_c else None


def _backward_reduce_scatter(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    grad, (a, b, bias, c) = _before_activation(ctx, _ops.gemm_reduce_scatter, grad)
    needs_a, needs_b, needs_bias, needs_c = _needed(ctx)
    of_a = of_b = of_bias = None
    if needs_a or needs_b or needs_bias:
        options = {"rows": a.shape[0], "transport": ctx.options["transport"]}
        of_a, whole = of_scattered(grad.to(a.dtype).contiguous(), b, ctx.group_name, needs_a, **options)
    if needs_b:
        of_b = autograd.product(a.mT, whole, b, 1.0)
    if needs_bias:
        of_bias = whole.sum(0, dtype=torch.float32).to(bias.dtype)
    return of_a, of_b, None, of_bias, grad.to(c.dtype) if needs_c else None


def _needed(ctx: Any) -> tuple[bool, ...]:
    """Whether a, b, bias and c need gradients. torch says nothing of trailing arguments that the caller left out."""
    needs_a, needs_b, _, *rest = ctx.needs_input_grad
    return needs_a, needs_b, *(*rest, False, False)[:2]


def _save_gather(
    ctx: Any, inputs: tuple[Any, ...], keyword_only_inputs: dict[str, Any], output: tuple[Tensor, Tensor]
) -> None:
    a, b, ctx.group_name, bias = inputs
    d, gathered = output
    ctx.options, ctx.rows = keyword_only_inputs, d.shape[0]
    ctx.mark_non_differentiable(gathered)
    ctx.set_materialize_grads(False)
    kept = gathered if ctx.options["save_gathered"] else None
    ctx.save_for_backward(a, b, bias, kept, d if keeps_result(ctx.options["activation"]) else None)


def _backward_gather(ctx: Any, grad: Tensor | None, _: Any) -> tuple[Tensor | None, ...]:
    if grad is None:
        return None, None, None, None
    a, b, bias, gathered, output = ctx.saved_tensors
    needs_a, needs_b, _, needs_bias = (*ctx.needs_input_grad, False)[:4]
    transport = ctx.options["transport"]
    activation = ctx.options["activation"]
    again = activation != "none" and output is None
    if needs_b or again:
        gathered = gathered_again(gathered, a, ctx.group_name, rows=ctx.rows, transport=transport)
    if activation != "none":

        def multiply(text: str, inputs: Iterable[Any], dtype: torch.dtype) -> list[Tensor]:
            function = epilogue.named(text, inputs)
            return _ops.gemm.epilogue(gathered, b, **function, bias=bias, out_dtype=dtype)

        grad = activations.backward(activation, grad.contiguous(), output, multiply)
    operand = grad.to(a.dtype).contiguous()
    return (
        _ops.gemm_reduce_scatter(operand, b.mT, ctx.group_name, transport=transport) if needs_a else None,
        autograd.product(gathered.mT, operand, b, 1.0) if needs_b else None,
        None,
        sum_to(grad, bias.shape, bias.dtype) if needs_bias else None,
    )


def _save_rows(ctx: Any, inputs: tuple[Any, ...], keyword_only_inputs: dict[str, Any], output: Tensor) -> None:
    x, ctx.group_name, bias = inputs
    ctx.rows, ctx.transport = x.shape[0], keyword_only_inputs["transport"]
    ctx.save_for_backward(bias)


def _backward_all_reduce_rows(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    needs_x, _, needs_bias = (*ctx.needs_input_grad, False)[:3]
    of_x = of_all_ranks(grad, ctx.group_name) if needs_x else None
    return of_x, None, _of_bias(ctx, grad) if needs_bias else None


def _backward_reduce_scatter_rows(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    given = {"rows": ctx.rows, "transport": ctx.transport}
    gathered = _ops.all_gather_rows(grad.contiguous(), ctx.group_name, **given)
    needs_x, _, needs_bias = (*ctx.needs_input_grad, False)[:3]
    return gathered if needs_x else None, None, _of_bias(ctx, gathered) if needs_bias else None


def _of_bias(ctx: Any, grad: Tensor) -> Tensor:
    (bias,) = ctx.saved_tensors
    return sum_to(grad, bias.shape, bias.dtype)


def _save_gathered_rows(ctx: Any, inputs: tuple[Any, ...], keyword_only_inputs: dict[str, Any], output: Tensor) -> None:
    _, ctx.group_name = inputs
    ctx.transport = keyword_only_inputs["transport"]


def _backward_gathered_rows(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
    return _ops.reduce_scatter_rows(grad.contiguous(), ctx.group_name, transport=ctx.transport), None


# What each operator's backward is given, and the backward.
GRADIENTS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "gemm_all_reduce": (_save_sum, _backward_all_reduce),
    "gemm_reduce_scatter": (_save_sum, _backward_reduce_scatter),
    "all_gather_gemm": (_save_gather, _backward_gather),
    "all_reduce_rows": (_save_rows, _backward_all_reduce_rows),
    "reduce_scatter_rows": (_save_rows, _backward_reduce_scatter_rows),
    "all_gather_rows": (_save_gathered_rows, _backward_gathered_rows),
}
