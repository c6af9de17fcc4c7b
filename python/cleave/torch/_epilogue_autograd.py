"""The gradients of torch.ops.cleave.gemm.epilogue and scaled_gemm.epilogue."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from .._epilogue.derivative import has_derivative
from .._epilogue.graph import parse
from . import _autograd, _epilogue

_FUNCTION = ("epilogue", "inputs", "numbers", "number_places", "backward")  # arguments of both
_SUM = ("a", "b", "bias", "c")  # what the sum has gradients for


def register() -> None:
    for op in (torch.ops.cleave.gemm.epilogue, torch.ops.cleave.scaled_gemm.epilogue):
        torch.library.register_autograd(op, _backward, setup_context=_saver(op))
    torch.library.register_autograd(torch.ops.cleave.grouped_gemm.epilogue, _backward, setup_context=_refuse)


def _saver(op: Any) -> Callable[..., None]:
    names = [argument.name for argument in op._schema.arguments if not argument.kwarg_only]

    def save(ctx: Any, inputs: tuple[Any, ...], keyword_only_inputs: dict[str, Any], output: list[Tensor]) -> None:
        call = dict(zip(names, inputs, strict=True))
        _check(call)
        tensors = call.pop("inputs")
        ctx.set_materialize_grads(False)
        ctx.op, ctx.names, ctx.options = op, names, keyword_only_inputs
        ctx.call = {name: x for name, x in call.items() if not isinstance(x, Tensor)}
        ctx.given = [name for name in call if name not in ctx.call]
        text = call["epilogue"]
        given = _epilogue.together(text, tensors, call["numbers"], call["number_places"])
        tracked = [name for name, x in given.items() if isinstance(x, Tensor) and x.requires_grad]
        if any(call[name] is not None and call[name].requires_grad for name in _SUM if name in call):
            tracked.append("acc")
        saved = () if call["backward"] else _epilogue.saved_outputs(text, tuple(tracked))
        made = dict(zip(parse(text).outputs, output, strict=True))
        ctx.mark_non_differentiable(*(x for name, x in made.items() if not has_derivative(parse(text), name)))
        ctx.saved, ctx.shape = saved, output[0].shape
        ctx.counts = len(ctx.given), len(tensors)
        ctx.save_for_backward(*(call[name] for name in ctx.given), *tensors, *(made[name] for name in saved))

    return save


def _refuse(ctx: Any, **_: Any) -> None:
    raise RuntimeError(
        "a tensor requires grad, but products of groups have no gradient beside an epilogue function; use "
        "torch.no_grad(), or apply the function to what torch.ops.cleave.grouped_gemm returns"
    )


def _check(call: dict[str, Any]) -> None:
    for name, x in call.items():
        if isinstance(x, Tensor) and x.requires_grad:
            if name not in _SUM:
                raise RuntimeError(f"{name} requires grad, but has no gradient here; pass {name}.detach()")
            if x.itemsize == 1:
                raise RuntimeError(f"{name} is {x.dtype}; 8-bit operands have no gradient. Pass {name}.detach()")
    if call.get("scale_d") is not None:
        raise RuntimeError("scale_d is given, but D in 8 bits has no gradient; use torch.no_grad()")


def _restored(ctx: Any) -> tuple[SimpleNamespace, dict[str, Tensor]]:
    """The call's arguments by name, and values of the function that outputs say."""
    known, tensors = ctx.counts
    saved = list(ctx.saved_tensors)
    call = SimpleNamespace(**ctx.call | dict(zip(ctx.given, saved[:known], strict=True)))
    call.inputs = saved[known : known + tensors]
    outputs = parse(call.epilogue).outputs
    return call, {outputs[n][1]: x for n, x in zip(ctx.saved, saved[known + tensors :], strict=True)}


def _backward(ctx: Any, grads: list[Tensor | None]) -> tuple[Any, ...]:
    call, stored = _restored(ctx)
    needed = dict(zip(ctx.names, ctx.needs_input_grad, strict=False))
    # torch takes an empty list for one of tensors, and says nothing of trailing arguments that the caller left out.
    results = {name: [] if ctx.call.get(name) == [] else None for name in needed}
    results["inputs"] = [None] * len(call.inputs)
    names = parse(call.epilogue).outputs
    given = {name: grad.contiguous() for name, grad in zip(names, grads, strict=True) if grad is not None}
    if not given:
        return tuple(results.values())

    def multiply(text: str, values: Iterable[Any], dtype: torch.dtype) -> list[Tensor]:
        function = dict(zip(_FUNCTION, (text, *_epilogue.separate(values), ""), strict=True))
        return ctx.op(**(vars(call) | function | ctx.options | {"out_dtype": dtype}))

    inputs = _epilogue.together(call.epilogue, call.inputs, call.numbers, call.number_places)
    tensors = [name for name, x in inputs.items() if isinstance(x, Tensor)]
    of_inputs = [name for name, is_needed in zip(tensors, needed["inputs"], strict=True) if is_needed]
    of_sum = [name for name in _SUM if needed.get(name)]
    dtype = call.a.dtype if call.a.itemsize > 1 else next(iter(given.values())).dtype
    gradients = _epilogue.Gradients(call.epilogue, call.backward, inputs, given, ctx.shape, dtype, stored, multiply)
    made = gradients.of([*(["acc"] if of_sum else []), *of_inputs])
    results["inputs"] = [made.get(name) for name in tensors]
    if "acc" in made:
        operands = tuple(getattr(call, name) for name in _SUM)
        scalars = ctx.options["alpha"], ctx.options["beta"]
        of_operands = _autograd.of_operands(made["acc"], operands, tuple(n in of_sum for n in _SUM), *scalars)
        results |= {name: x for name, x in zip(_SUM, of_operands, strict=True) if name in needed}
    return tuple(results.values())
