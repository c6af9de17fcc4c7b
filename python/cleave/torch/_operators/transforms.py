"""Operators with gradients under torch.func (grad, vjp, jvp, jacrev, vmap ...) and in forward mode.

What torch.library makes of a gradient is refused by torch.func and has no tangents. So there an operator is a
torch.autograd.Function with the same backward pass. That pass is linear in the gradient of the output, and its
transpose gives the tangents: torch.func.vjp makes it, for twice the products that a formula would need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from .autocast import autocast

# From the operator, the size of the new axis, which arguments have it (first), the arguments and the keywords: a result
# that has it first, or None where nothing is better than one call after the other.
Rule = Callable[[Any, int, Sequence[Any], Sequence[Any], dict[str, Any]], Any]

_below_autograd = torch._C._AutoDispatchBelowAutograd
_is_in_torch_func = torch._C._are_functorch_transforms_active


def is_transformed() -> bool:
    """Whether torch.func makes the call, or there may be tangents."""
    return _is_in_torch_func() or forward_ad._current_level >= 0


@dataclass(frozen=True, eq=False)
class _Form:
    """A call without its tensors. `places`: of each argument that has a position, the number of tensors in its list,
    True for a tensor, None for anything else."""

    places: tuple[bool | int | None, ...]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def filled(self, values: Iterable[Any], otherwise: Sequence[Any]) -> list[Any]:
        """With values for tensors."""
        rest = iter(values)
        return [
            other if place is None else next(rest) if place is True else [next(rest) for _ in range(place)]
            for place, other in zip(self.places, otherwise, strict=True)
        ]

    def flattened(self, values: Sequence[Any]) -> list[Any]:
        """The other way; None for what is missing at the end, where there may be too many."""
        flat: list[Any] = []
        for place, value in zip_longest(self.places, values[: len(self.places)]):
            if place is not None:
                flat += [value] if place is True else value or [None] * place
        return flat


def _form(schema: Sequence[Any], args: Sequence[Any], kwargs: dict[str, Any]) -> _Form:
    """With defaults for what is not passed."""
    positional = [x for x in schema if not x.kwarg_only]
    given = [*args, *(kwargs.get(x.name, x.default_value) for x in positional[len(args) :])]
    keywords = {x.name: kwargs.get(x.name, x.default_value) for x in schema if x.kwarg_only}
    return _Form(tuple(map(_place, given)), tuple(given), keywords)


def _place(x: Any) -> bool | int | None:
    if isinstance(x, Tensor):
        return True
    is_list = isinstance(x, list | tuple) and len(x) > 0 and all(isinstance(each, Tensor) for each in x)
    return len(x) if is_list else None


def _first(x: Tensor, at: int) -> Tensor:
    """With the new axis there, and one of the others contiguous, as the operators want it."""
    x = x.movedim(at, 0)
    return x if x.dim() == 1 or 1 in x.stride()[1:] else x.contiguous()


def _without_tangent(x: Tensor | None) -> Tensor | None:
    """At torch.func's innermost level alone: the products that make tangents of that level have none there."""
    if x is None:
        return None
    if not _is_in_torch_func():
        return forward_ad.unpack_dual(x).primal
    level = torch._C._functorch.current_level()
    return torch._C._functorch._wrap_for_grad(torch._C._functorch._unwrap_for_grad(x, level), level)


def transformed(
    operator: Any,
    function: Callable[..., Any],
    backward: Callable[..., Any],
    save: Callable[..., Any],
    rule: Rule | None,
) -> Callable[..., Any]:
    """The operator, whose calls are `function`'s, with the gradients of torch.library.register_autograd(operator,
    backward, setup_context=save)."""
    schema = operator._schema.arguments
    has_keywords = any(x.kwarg_only for x in schema)
    returns_list = isinstance(operator._schema.returns[0].type, torch.ListType)

    class Transformed(torch.autograd.Function):
        """Its arguments are a form and the tensors that fill it."""

        @staticmethod
        def forward(form: _Form, *tensors: Tensor) -> Any:
            with _below_autograd():
                made = function(*form.filled(tensors, form.args), **form.kwargs)
            return tuple(made) if returns_list else made

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            ctx.form, *tensors = inputs
            options = {"keyword_only_inputs": ctx.form.kwargs} if has_keywords else {}
            save(ctx, tuple(ctx.form.filled(tensors, ctx.form.args)), output=output, **options)
            ctx.save_for_forward(*ctx.to_save)
            fixed = {id(x) for x in ctx.non_differentiable or ()}
            outputs = (output,) if isinstance(output, Tensor) else output
            ctx.zeros = [torch.zeros_like(x) if x.is_floating_point() and id(x) not in fixed else None for x in outputs]

        @staticmethod
        def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
            return None, *gradients(ctx, grads, ctx.needs_input_grad[1:])

        @staticmethod
        def jvp(ctx: Any, _: None, *tangents: Tensor | None) -> Any:
            ctx.save_for_forward(*map(_without_tangent, ctx.saved_tensors))
            needed = tuple(x is not None for x in tangents)
            of_used: list[Tensor] = []

            def pulled_back(*grads: Tensor) -> list[Tensor]:
                some = iter(grads)
                made = gradients(ctx, [None if zero is None else next(some) for zero in ctx.zeros], needed)
                used = [(x, tangent) for x, tangent in zip(made, tangents, strict=True) if x is not None]
                of_used.extend(tangent for _, tangent in used)
                return [x for x, _ in used]

            # torch turns forward mode off here, which outer levels have on.
            with forward_ad._set_fwd_grad_enabled(True):
                _, transposed = torch.func.vjp(pulled_back, *(zero for zero in ctx.zeros if zero is not None))
                made = iter(transposed(of_used))
            of_outputs = tuple(None if zero is None else next(made) for zero in ctx.zeros)
            return of_outputs[0] if len(of_outputs) == 1 else of_outputs

        @staticmethod
        def vmap(info: Any, in_dims: tuple[int | None, ...], form: _Form, *tensors: Tensor) -> Any:
            along = [at is not None for at in in_dims[1:]]
            tensors = tuple(x if at is None else _first(x, at) for x, at in zip(tensors, in_dims[1:], strict=True))
            made = None
            if rule is not None:
                args, by_argument = form.filled(tensors, form.args), form.filled(along, [False] * len(form.places))
                made = rule(operator, info.batch_size, by_argument, args, form.kwargs)
            if made is None:
                made = one_by_one(info.batch_size, along, form, tensors)
            return made, 0 if isinstance(made, Tensor) else (0,) * len(made)

    def gradients(ctx: Any, grads: Sequence[Tensor | None], needed: Sequence[bool]) -> list[Tensor | None]:
        before = ctx.needs_input_grad
        ctx.needs_input_grad = tuple(ctx.form.filled(needed, [False] * len(ctx.form.places)))
        try:
            made = backward(ctx, list(grads)) if returns_list else backward(ctx, *grads)
        finally:
            ctx.needs_input_grad = before
        return ctx.form.flattened(made if isinstance(made, tuple) else (made,))

    def one_by_one(size: int, along: Sequence[bool], form: _Form, tensors: Sequence[Tensor]) -> Any:
        made = [
            Transformed.apply(form, *(x[i] if has else x for x, has in zip(tensors, along, strict=True)))
            for i in range(size)
        ]
        return torch.stack(made) if isinstance(made[0], Tensor) else tuple(map(torch.stack, zip(*made, strict=True)))

    def call(*args: Any, **kwargs: Any) -> Any:
        form = _form(schema, *autocast(operator, list(args), kwargs))
        made = Transformed.apply(form, *form.flattened(form.args))
        return list(made) if returns_list else made

    return call
