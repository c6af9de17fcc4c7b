"""What the operation makes of its sums, in float64: its epilogue function, with inputs for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from expected_operation import Finished, fixed, operation
from torch import Tensor

_epilogue, _formula = operation._operator._epilogue, operation._operator._formula
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


def outputs(sums: Tensor, inputs: dict[str, Any]) -> list[Tensor]:
    known = {
        name: _formula.spread(x.double(), FUNCTION.inputs[name]) if isinstance(x, Tensor) else x
        for name, x in inputs.items()
    }
    made = _epilogue.evaluate(FUNCTION, [v for _, v in FUNCTION.outputs.values()], known | _split(sums), torch.float64)
    shape = next(iter(_split(sums).values())).shape
    return [torch.as_tensor(made[value], device=sums.device).expand(shape) for _, value in FUNCTION.outputs.values()]


def slopes(sums: Tensor, inputs: dict[str, Any]) -> Tensor:
    sums = sums.detach().requires_grad_()
    total = sum(output.sum() for output in outputs(sums, inputs))
    if not total.requires_grad:
        return torch.zeros_like(sums)
    return torch.autograd.grad(total, sums, allow_unused=True, materialize_grads=True)[0]


def finish(sums: Tensor, shapes: dict[str, tuple[int, ...]], new: Callable[..., Tensor]) -> Finished:
    """`shapes`: those of inputs. `new`: makes a tensor in the result's order."""
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
    return Finished(made, slack, torch.stack(list(_split(smooth).values())).all(0), list(inputs.values()))
