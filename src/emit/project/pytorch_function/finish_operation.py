"""What the operation makes of its sums, in float64: its epilogue function, with inputs for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from expected_operation import Finished, fixed, operation
from torch import Tensor

_epilogue = operation._operator._epilogue
FUNCTION = _epilogue.FORWARD
SUMS = 1.0  # how large sums are to be: functions may grow fast
ROUNDING = 1e-2  # of sums, relative to the largest


def draw(name: str, shape: tuple[int, ...], new: Callable[..., Tensor]) -> Any:
    """An input. Positive, for logarithms, roots and quotients."""
    dtype = fixed.INPUTS[name]
    if dtype is None:
        return 0.75
    like = new(*shape, dtype=torch.float32) if len(shape) > 1 else torch.empty(shape, device="cuda")
    x = like.uniform_(0.5, 1.5)
    return x.to(dtype) if len(shape) < 2 else new(*shape, dtype=dtype).copy_(x)


def _split(sums: Tensor) -> dict[str, Tensor]:
    return _epilogue.split(sums, FUNCTION.sums)


def _spread(inputs: dict[str, Any]) -> dict[str, Any]:
    """As they broadcast with the result."""
    return {name: _epilogue.spread(x, FUNCTION.inputs[name]) for name, x in inputs.items()}


def _apply(sums: Tensor, inputs: dict[str, Any]) -> list[Tensor]:
    """Outputs, before they are reduced."""
    known, values = _spread(inputs) | _split(sums), [value for _, value in FUNCTION.outputs.values()]
    made = _epilogue.evaluate(FUNCTION, values, known, torch.float64)
    shape = next(iter(_split(sums).values())).shape
    return [torch.as_tensor(made[value], device=sums.device).expand(shape) for value in values]


class _WithBackward(torch.autograd.Function):
    """The function with the backward that it was given."""

    @staticmethod
    def forward(ctx: Any, sums: Tensor, *inputs: Any) -> tuple[Tensor, ...]:
        ctx.call = sums, *inputs
        return tuple(x.clone() for x in _apply(sums, dict(zip(FUNCTION.inputs, inputs, strict=True))))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        sums, *inputs = ctx.call
        spread = _spread(dict(zip(FUNCTION.inputs, inputs, strict=True)))
        of_outputs = {f"grad_{name}": grad for name, grad in zip(FUNCTION.outputs, grads, strict=True)}
        graph = _epilogue.derivative_of(tuple(FUNCTION.outputs))
        names = {name: value for name, (_, value) in graph.outputs.items()}
        made = _epilogue.evaluate(graph, names.values(), spread | _split(sums) | of_outputs, torch.float64)
        full = {n: torch.as_tensor(made[v], dtype=torch.float64, device=sums.device) for n, v in names.items()}
        nothing = torch.zeros_like(grads[0])
        of_sums = _epilogue.join([full.get(name, nothing).expand_as(nothing) for name in FUNCTION.sums], FUNCTION.sums)
        return of_sums, *(
            _sum_to(full.get(name), x, spread[name], nothing) for name, x in zip(spread, inputs, strict=True)
        )


def _sum_to(grad: Tensor | None, x: Any, spread: Any, result: Tensor) -> Tensor | None:
    if grad is None or not isinstance(x, Tensor):
        return None
    return grad.expand_as(result).sum_to_size(spread.shape).reshape(x.shape)


def outputs(sums: Tensor, inputs: dict[str, Any]) -> list[Tensor]:
    """Before they are reduced."""
    real = {name: x.double() if isinstance(x, Tensor) else x for name, x in inputs.items()}
    return list(_WithBackward.apply(sums, *real.values())) if fixed.BACKWARD else _apply(sums, real)


def slopes(sums: Tensor, inputs: dict[str, Any]) -> Tensor:
    sums = sums.detach().requires_grad_()
    total = sum(output.sum() for output in outputs(sums, inputs))
    if not total.requires_grad:
        return torch.zeros_like(sums)
    return torch.autograd.grad(total, sums, allow_unused=True, materialize_grads=True)[0]


# What lines of values come to, and their slack, which they have each on its own.
JOIN = {
    "sum": lambda x, dims: x.sum(dims, keepdim=True),
    "absmax": lambda x, dims: x.abs().amax(dims, keepdim=True),
}
JOIN_SLACK = {
    "sum": lambda x, dims: x.square().sum(dims, keepdim=True).sqrt(),
    "absmax": lambda x, dims: x.amax(dims, keepdim=True),
}


def finish(
    sums: Tensor,
    shapes: dict[str, tuple[int, ...]],
    new: Callable[..., Tensor],
    reduce: Callable[[Tensor, str, Callable[..., Tensor]], Tensor],
) -> Finished:
    """`shapes`: those of inputs. `new`: makes a tensor in the result's order. `reduce`: makes a matrix a row, a column
    or a scalar."""
    inputs = {name: draw(name, shapes[shape], new) for name, shape in FUNCTION.inputs.items()}
    if sums.requires_grad:
        for x in inputs.values():
            if isinstance(x, Tensor) and x.itemsize > 1:
                x.requires_grad_()
    made = outputs(sums, inputs)
    with torch.no_grad():
        step = ROUNDING * sums.abs().max()
        moved = [outputs(sums + side * step, inputs) for side in (-1, 1)]
        slack = [torch.maximum(*((x - y).abs() for y in ys)) for x, *ys in zip(made, *moved, strict=True)]
    # Where a step of the sums changes the slope much, rounding decides about the gradient.
    bend = (slopes(sums + step, inputs) - slopes(sums - step, inputs)).abs()
    smooth = bend <= 0.05 * slopes(sums, inputs).abs().max().clamp(min=1e-3)
    for i, name in enumerate(FUNCTION.outputs):
        if name in FUNCTION.reductions:
            how, shape = FUNCTION.reductions[name]
            made[i], slack[i] = reduce(made[i], shape, JOIN[how]), reduce(slack[i], shape, JOIN_SLACK[how])
    smooth = torch.stack(list(_split(smooth).values())).all(0)
    return Finished(made, slack, smooth, list(inputs.values()), [FUNCTION.shape(name) for name in FUNCTION.outputs])
