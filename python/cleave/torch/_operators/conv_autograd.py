"""The gradients of torch.ops.cleave.conv, conv_dgrad and conv_wgrad, as each other.

The sum of y * conv(x, w) is linear in each of x, w and y. Each operator is its derivative by one of
them, made of the other two:

    | operator   | makes | of         |
    |------------|-------|------------|
    | conv       | y     | x and w    |
    | conv_dgrad | x     | w and y    |
    | conv_wgrad | w     | x and y    |

So an operand's gradient is what its own operator makes, with the gradient of the result where the
result would be an operand.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..._epilogue.activations import keeps_result
from .._dealt import gradient_dtype
from . import activations, autograd, epilogue
from .channels_last import channels_last, packed
from .sum_to import sum_to
from .transforms import is_transformed
from .untracked import register_autograd

_ops = torch.ops.cleave
# Where nothing is recorded, operators need not be asked whether to.
_below_autograd = torch._C._AutoDispatchBelowAutograd
TENSORS = {"x": "input", "w": "weight", "y": "grad_output"}  # operators' arguments
GEOMETRY = ("stride", "padding", "dilation", "groups")


@dataclass(frozen=True)
class Operator:
    name: str
    made: str
    operands: tuple[str, str]
    arguments: tuple[str, ...]  # those with positions; of what is made, the size


OPERATORS = (
    Operator("conv", "y", ("x", "w"), ("x", "w", "bias", *GEOMETRY, "c")),
    Operator("conv_dgrad", "x", ("w", "y"), ("x", "w", "y", *GEOMETRY, "bias", "c")),
    Operator("conv_wgrad", "w", ("x", "y"), ("x", "w", "y", *GEOMETRY, "c")),
)


def register() -> None:
    for operator in OPERATORS:
        for overload in ("", ".full"):
            register_autograd(
                f"cleave::{operator.name}{overload}",
                partial(_backward, operator),
                setup_context=partial(_save, operator),
            )


def _call(operator: Operator, *arguments: Any) -> Tensor:
    """The operator of the arguments that have positions, quicker where gradients are recorded: by a
    class of our own, since what torch.library makes of a registration asks the operator's schema on
    every call, which takes longer than the call."""
    if torch.compiler.is_compiling() or is_transformed():
        return getattr(_ops, operator.name).default(*arguments)
    if torch.is_grad_enabled() and any(isinstance(x, Tensor) and x.requires_grad for x in arguments):
        return _Recorded.apply(*arguments, operator)
    with _below_autograd():
        return getattr(_ops, operator.name).default(*arguments)


conv, conv_dgrad = partial(_call, OPERATORS[0]), partial(_call, OPERATORS[1])


class _Recorded(torch.autograd.Function):
    """A call of an operator, which is the last argument."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Tensor:
        *given, ctx.operator = arguments
        ctx.given = len(given)
        with _below_autograd():
            output = getattr(_ops, ctx.operator.name).default(*given)
        _save(ctx.operator, ctx, tuple(given), output)
        return output

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        with nullcontext() if torch.is_grad_enabled() else _below_autograd():
            gradients = _backward(ctx.operator, ctx, grad)
        return *gradients[: ctx.given], None


def _save(
    operator: Operator,
    ctx: Any,
    inputs: tuple[Any, ...],
    output: Tensor,
    keyword_only_inputs: dict[str, Any] | None = None,
) -> None:
    given = dict.fromkeys(operator.arguments) | dict(zip(operator.arguments, inputs, strict=False))
    first, second = (given[name] for name in operator.operands)
    if first.itemsize == 1:
        raise RuntimeError(f"{operator.name} is given {first.dtype}; convolutions of 8-bit operands have no gradient")
    ctx.options = {"activation": "none", "alpha": 1.0, "beta": None} | (keyword_only_inputs or {})
    ctx.geometry = tuple(given[name] for name in GEOMETRY)
    ctx.size = given.get(operator.made)
    kept = output if keeps_result(ctx.options["activation"]) else None
    ctx.save_for_backward(first, second, given.get("bias"), given["c"], kept)


def _backward(operator: Operator, ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    first, second, bias, c, output = ctx.saved_tensors
    operands = dict(zip(operator.operands, (first, second), strict=True))
    activation = ctx.options["activation"]
    if activation != "none":

        def multiply(text: str, inputs: Iterable[Any], dtype: torch.dtype) -> list[Tensor]:
            tensors = {TENSORS[name]: x for name, x in operands.items()}
            linear = {name: x for name, x in ctx.options.items() if name != "activation"} | {"out_dtype": dtype}
            added = {"bias": bias, "c": c, f"{TENSORS[operator.made]}_size": ctx.size}
            given = tensors | dict(zip(GEOMETRY, ctx.geometry, strict=True)) | linear | epilogue.named(text, inputs)
            given |= {name: x for name, x in added.items() if x is not None}
            return getattr(_ops, operator.name).epilogue(**given)

        grad = activations.backward(activation, channels_last(grad), output, multiply)
    # torch says nothing of trailing arguments that the caller left out, and wants nothing.
    needed = {name for name, needs in zip(operator.arguments, ctx.needs_input_grad, strict=False) if needs}
    scalars = ctx.options["alpha"], ctx.options["beta"]
    gradients = of_operands(operator, grad, operands, ctx.geometry, {"bias": bias, "c": c}, needed, scalars)
    return tuple(gradients.get(name) for name in operator.arguments)


def of_operands(
    operator: Operator,
    grad: Tensor,
    operands: dict[str, Tensor],
    geometry: tuple[Any, ...],
    added: dict[str, Tensor | None],
    needed: set[str],
    scalars: tuple[float, float | None],
) -> dict[str, Tensor]:
    """The gradients that are needed of the operands and of what is added, bias and c, from that of the sum."""
    arranged = packed if operator.made == "w" else channels_last
    form = {**operands, operator.made: arranged(grad.to(next(iter(operands.values())).dtype))}
    alpha, beta = scalars
    gradients: dict[str, Tensor] = {}
    for other in OPERATORS:
        if other.made in needed:
            operand, options = form[other.made], {"alpha": alpha}
            if (wanted := gradient_dtype(operand)) != operand.dtype:
                options["out_dtype"] = wanted
            gradients[other.made] = _make(other, form, operand.shape, geometry, **options)
    if "bias" in needed:
        line = (1, grad.shape[1], *(1,) * (grad.dim() - 2))
        gradients["bias"] = sum_to(grad, line, added["bias"].dtype).flatten()
    if "c" in needed:
        gradients["c"] = autograd.scaled(grad, beta).to(added["c"].dtype)
    return gradients


def _make(operator: Operator, form: dict[str, Tensor], size: Any, geometry: tuple[Any, ...], **options: Any) -> Tensor:
    given = dict(zip(GEOMETRY, geometry, strict=True)) | options
    given |= {operator.made: size} | {name: form[name] for name in operator.operands}
    positional = [given.pop(name, None) for name in operator.arguments]
    given.pop(operator.made, None)  # of what conv makes there is no size to give
    return getattr(_ops, operator.name).full(*positional, **given)
