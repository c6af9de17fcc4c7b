"""What torch.func makes of an operator's calls, against backward() and against one call after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch_operators
from torch.func import jvp, vjp, vmap

close = torch.testing.assert_close


def tracked(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.requires_grad


def differentiable_calls(device: str) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Name, operator and arguments of those with tensors that require grad; every operator that has gradients is among
    them."""
    torch.manual_seed(0)
    for name, calls in torch_operators.calls(device).items():
        for i, (op, arguments, options) in enumerate(calls):
            given = dict(zip([x.name for x in op._schema.arguments], arguments, strict=False)) | options
            if any(tracked(x) for value in given.values() for x in (value if isinstance(value, list) else [value])):
                yield f"{name}-{i}", op, given


def of_tracked(op: Any, given: dict[str, Any]) -> tuple[Callable[..., Any], list[Any]]:
    """The call as a function of the tensors that require grad, to a tuple, and these."""
    values, where = [], []
    for name, value in given.items():
        for i, x in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if tracked(x):
                values.append(x.detach())
                where.append((name, i))

    def function(*tensors: Any) -> tuple[Any, ...]:
        new = {name: list(value) if isinstance(value, list) else value for name, value in given.items()}
        for (name, i), x in zip(where, tensors, strict=True):
            if i is None:
                new[name] = x
            else:
                new[name][i] = x
        made = op(**new)
        return (made,) if isinstance(made, torch.Tensor) else tuple(made)

    return function, values


def inner(xs: Any, ys: Any) -> Any:
    return sum((x.double() * y.double()).sum() for x, y in zip(xs, ys, strict=True))


def check_transforms(op: Any, given: dict[str, Any]) -> None:
    """Gradients are those of backward(), tangents their transpose, and vmap's results those of one call each."""
    function, tensors = of_tracked(op, given)

    def differentiable(*xs: Any) -> list[Any]:
        made = function(*xs)
        return [made[i] for i in seen]

    leaves = [x.clone().requires_grad_() for x in tensors]
    made = function(*leaves)
    seen = [i for i, x in enumerate(made) if x.requires_grad]
    of_seen = [torch.randn_like(made[i]) for i in seen]
    expected = torch.autograd.grad([made[i] for i in seen], leaves, of_seen)

    outputs, pull_back = vjp(differentiable, *tensors)
    for d, same in zip(outputs, seen, strict=True):
        assert torch.equal(d, made[same])
    for x, same in zip(pull_back(of_seen), expected, strict=True):
        close(x, same)

    directions = [torch.randn_like(x) for x in tensors]
    _, tangents = jvp(differentiable, tuple(tensors), tuple(directions))
    half = any(x.itemsize < 4 for x in (*tensors, *of_seen))
    scale = sum(x.double().norm() * y.double().norm() for x, y in zip(expected, directions, strict=True))
    error = abs(inner(of_seen, tangents) - inner(expected, directions))
    assert error <= (1e-2 if half else 1e-5) * scale

    pairs = [torch.stack([x, x.flip(0)]) for x in tensors]
    for both, *each in zip(vmap(function)(*pairs), *(function(*xs) for xs in zip(*pairs, strict=True)), strict=True):
        close(both, torch.stack(each))
