"""What PyTorch has to know of the operator: its shapes, for torch.compile, and its gradients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import _epilogue, _formula
from . import _operation as fixed
from ._sum_to import sum_to


def register() -> None:
    torch.library.register_fake(fixed.NAME)(_results)
    torch.library.register_fake(f"{fixed.NAME}.out")(_nothing)
    if fixed.DIFFERENTIABLE:
        torch.library.register_autograd(fixed.NAME, _backward, setup_context=_save)


def _results(*call: Any, **_: Any) -> Any:
    """What the operator returns, without computing it."""
    shapes = _formula.shapes(*call)
    like = next(x for x in call if isinstance(x, Tensor))
    made = [_formula.new(like, shapes[shape], dtype, *order) for dtype, shape, *order in fixed.OUTPUTS.values()]
    if fixed.HAS_AMAX:
        made.append(like.new_empty(1, dtype=torch.float32))
    return tuple(made) if len(made) > 1 else made[0]


def _nothing(*_: Any, **__: Any) -> None:
    """All that it does is write."""


def _save(
    ctx: Any,
    inputs: tuple[Any, ...],
    keyword_only_inputs: dict[str, Any],
    output: Tensor | tuple[Tensor, ...],
) -> None:
    call = dict(zip(fixed.ARGUMENTS, inputs, strict=True))
    tensors = {name: x for name, x in call.items() if isinstance(x, Tensor)}
    # The rest are numbers, and the size of images whose gradient is made.
    ctx.call = keyword_only_inputs | {name: x for name, x in call.items() if name not in tensors}
    ctx.tensors = list(tensors)
    results = output if isinstance(output, tuple) else (output,)
    kept = _epilogue.kept(results)
    ctx.kept, ctx.shape = list(kept), results[0].shape
    ctx.mark_non_differentiable(*_epilogue.without_gradient(results))
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*tensors.values(), *kept.values())


def _backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
    saved = dict(zip([*ctx.tensors, *ctx.kept], ctx.saved_tensors, strict=True))
    wanted = [name for name, needed in zip(fixed.ARGUMENTS, ctx.needs_input_grad, strict=True) if needed]
    gradients: dict[str, Tensor | None] = {}
    if any(grad is not None for grad in grads):
        gradients = _gradients(ctx.call | saved, ctx.shape, grads, wanted)
    return tuple(gradients.get(name) for name in fixed.ARGUMENTS)


def _gradients(
    call: dict[str, Any], shape: torch.Size, grads: tuple[Tensor | None, ...], wanted: list[str]
) -> dict[str, Tensor | None]:
    """Those of the tensors of a call that are wanted, by name. shape: the result's."""
    operands = [call[name] for name in fixed.ARGUMENTS[: _formula.OPERANDS]]
    size, (first, second) = operands[:-2], operands[-2:]
    names = fixed.ARGUMENTS[_formula.OPERANDS - 2 : _formula.OPERANDS]
    alpha = call["alpha"]
    bias = call["bias"] if fixed.HAS_BIAS else None  # an epilogue function may call an input so
    c, beta = (call["c"], call["beta"]) if fixed.HAS_C else (None, None)

    def sums() -> Tensor:
        """What the epilogue is given, made again."""
        x = alpha * _formula.product(first, second, *size).float()
        if c is not None:
            x = x + beta * c
        return x if bias is None else x + bias.view(_formula.BIAS_SHAPE)

    of_sums = [*names, *(["bias"] if fixed.HAS_BIAS else []), *(["c"] if fixed.HAS_C else [])]
    grad, gradients = _epilogue.gradients(call, shape, sums, grads, wanted, not set(of_sums).isdisjoint(wanted))
    if grad is None:
        return gradients
    of_operands = _formula.gradients(first, second, (alpha * grad).to(first.dtype), *(name in wanted for name in names))
    gradients |= dict(zip(names, of_operands, strict=True))
    if bias is not None and "bias" in wanted:
        gradients["bias"] = sum_to(grad, bias.view(_formula.BIAS_SHAPE).shape, bias.dtype).reshape(bias.shape)
    if c is not None and "c" in wanted:
        gradients["c"] = (beta * grad).to(c.dtype)
    return gradients
