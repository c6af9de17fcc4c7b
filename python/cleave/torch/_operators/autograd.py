"""The gradients of torch.ops.cleave.gemm, as products of the same operator."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from ..._epilogue.activations import keeps_result
from . import activations, epilogue
from .batching import along_a_new_axis
from .sum_to import sum_to
from .untracked import register_autograd


def register() -> None:
    register_autograd("cleave::gemm", _backward, setup_context=_save, vmap=along_a_new_axis)


def _save(
    ctx: Any,
    inputs: tuple[Tensor, Tensor, Tensor | None, Tensor | None],
    keyword_only_inputs: dict[str, Any],
    output: Tensor,
) -> None:
    a, b, bias, c = inputs
    if a.itemsize == 1:
        raise RuntimeError(f"a and b are {a.dtype} and {b.dtype}; products of 8-bit operands have no gradient")
    ctx.options = keyword_only_inputs
    ctx.save_for_backward(a, b, bias, c, output if keeps_result(keyword_only_inputs["activation"]) else None)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    a, b, bias, c, output = ctx.saved_tensors
    alpha, beta = ctx.options["alpha"], ctx.options["beta"]
    activation = ctx.options["activation"]
    if activation != "none":

        def multiply(text: str, inputs: Iterable[Any], dtype: torch.dtype) -> list[Tensor]:
            linear = {name: x for name, x in ctx.options.items() if name != "activation"} | {"out_dtype": dtype}
            return torch.ops.cleave.gemm.epilogue(a, b, **epilogue.named(text, inputs), bias=bias, c=c, **linear)

        grad = activations.backward(activation, grad.contiguous(), output, multiply)
    # torch says nothing of trailing arguments that the caller left out.
    return of_operands(grad, (a, b, bias, c), (*ctx.needs_input_grad, False, False)[:4], alpha, beta)


def of_operands(
    grad: Tensor,
    operands: tuple[Tensor, Tensor, Tensor | None, Tensor | None],
    needed: tuple[bool, ...],
    alpha: float,
    beta: float | None,
) -> tuple[Tensor | None, ...]:
    """The gradients of a, b, bias and c, of those that are needed, from that of alpha * a @ b + bias + beta * c."""
    a, b, bias, c = operands
    needs_a, needs_b, needs_bias, needs_c = needed
    operand = grad.to(a.dtype).contiguous() if needs_a or needs_b else grad
    return (
        product(operand, b.mT, a, alpha) if needs_a else None,
        _gradient_of_b(a, operand, b, alpha) if needs_b else None,
        sum_to(grad, bias.shape, bias.dtype) if needs_bias else None,
        sum_to(scaled(grad, beta), c.shape, c.dtype) if needs_c else None,
    )


def _gradient_of_b(a: Tensor, grad: Tensor, b: Tensor, alpha: float) -> Tensor:
    if b.dim() == 2 and a.dim() == 3:  # one product, with the batch as part of its K
        a, grad = a.flatten(0, 1), grad.flatten(0, 1)
    return product(a.mT, grad, b, alpha)


def product(x: Tensor, y: Tensor, operand: Tensor, alpha: float) -> Tensor:
    """The gradient of `operand`: alpha * x @ y, summed over the batch that it serves."""
    batch = max(x.shape[:-2].numel(), y.shape[:-2].numel())
    shared = operand.shape[:-2].numel() < batch
    product = torch.ops.cleave.gemm(x, y, alpha=alpha, out_dtype=torch.float32 if shared else operand.dtype)
    return product.sum_to_size(operand.shape).to(operand.dtype)


def scaled(grad: Tensor, beta: float | None) -> Tensor:
    return grad if beta is None or beta == 1 else beta * grad
