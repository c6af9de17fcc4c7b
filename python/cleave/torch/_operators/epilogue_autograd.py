"""The gradients of products and convolutions with an epilogue function: torch.ops.cleave.gemm.epilogue and its like."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from ..._epilogue.derivative import has_derivative
from ..._epilogue.graph import SUM, parse
from ..._epilogue.saved import saved_outputs
from . import autograd, conv_autograd, epilogue, grouped_autograd, packed_weight
from .channels_last import packed
from .grouped_epilogue import GroupedGradients
from .untracked import register_autograd


@dataclass(frozen=True)
class _Operation:
    """What differs from operator to operator.

    sum: the arguments that the sum has gradients for, the first of which is an operand.
    of_operands: theirs that are needed, by name, from the sum's gradient, the call's arguments and its options.
    gradients: those of the function, from the call's arguments, its options, and what Gradients takes.
    arranged: an output's gradient, as an input of the derivative.
    keeps_outputs: whether outputs are kept that spare the product.
    """

    op: Any
    sum: tuple[str, ...]
    of_operands: Callable[[Tensor, Any, dict[str, Any], set[str]], dict[str, Tensor]]
    gradients: Callable[..., epilogue.Gradients]
    arranged: Callable[[Tensor], Tensor]
    keeps_outputs: bool = True

    @property
    def names(self) -> list[str]:
        """Names of the arguments that have positions."""
        return [argument.name for argument in self.op._schema.arguments if not argument.kwarg_only]


def register() -> None:
    for op in (torch.ops.cleave.gemm.epilogue, torch.ops.cleave.scaled_gemm.epilogue):
        gradients = partial(_gradients, _spread_over_matrix)
        _register(_Operation(op, _SUM_OF_PRODUCTS, _of_product, gradients, Tensor.contiguous))
    forms = [(operator.name, operator) for operator in conv_autograd.OPERATORS]
    for name, operator in (*forms, ("scaled_conv", dict(forms)["conv"])):
        op = getattr(torch.ops.cleave, name).epilogue
        added = [name for name in ("bias", "c") if name in operator.arguments]
        _register(
            _Operation(
                op,
                (*(conv_autograd.TENSORS[operand] for operand in operator.operands), *added),
                partial(_of_convolution, operator),
                partial(_gradients, partial(_spread_over_pixels, operator)),
                _channels_last,
            )
        )
    op = torch.ops.cleave.grouped_gemm.epilogue
    _register(_Operation(op, _SUM_OF_GROUPS, _of_groups, _gradients_of_groups, Tensor.contiguous, keeps_outputs=False))
    gradients = partial(_gradients, _spread_over_matrix)
    _register(
        _Operation(torch.ops.cleave.mixed_gemm.epilogue, _SUM_OF_PACKED, _of_packed, gradients, Tensor.contiguous)
    )
    op = torch.ops.cleave.mixed_grouped_gemm.epilogue
    _register(
        _Operation(
            op, _SUM_OF_PACKED_GROUPS, _of_packed_groups, _gradients_of_packed_groups, Tensor.contiguous,
            keeps_outputs=False,
        )
    )  # fmt: skip


def _gradients(spread: Callable[[Tensor, str, int], Tensor], call: Any, options: Any, *given: Any) -> Any:
    """spread: a line of values of such a shape, as it broadcasts with a D of so many dimensions."""
    return epilogue.Gradients(*given, spread)


def _register(operation: _Operation) -> None:
    backward, save = partial(_backward, operation), partial(_save, operation)
    register_autograd(operation.op.name(), backward, setup_context=save)


_SUM_OF_PRODUCTS = ("a", "b", "bias", "c")


def _of_product(grad: Tensor, call: Any, options: dict[str, Any], needed: set[str]) -> dict[str, Tensor]:
    operands = tuple(getattr(call, name) for name in _SUM_OF_PRODUCTS)
    wanted = tuple(name in needed for name in _SUM_OF_PRODUCTS)
    made = autograd.of_operands(grad, operands, wanted, options["alpha"], options["beta"])
    return dict(zip(_SUM_OF_PRODUCTS, made, strict=True))


def _spread_over_matrix(x: Tensor, shape: str, rank: int) -> Tensor:
    return x.unsqueeze(1) if shape == "column" else x


_SUM_OF_GROUPS = ("a", "b", "bias")


def _of_groups(grad: Tensor, call: Any, options: dict[str, Any], needed: set[str]) -> dict[str, Tensor]:
    operands = call.a, call.b, call.bias
    a, b, bias = (name in needed for name in _SUM_OF_GROUPS)
    made = grouped_autograd.of_operands(grad, operands, _groups(call, options), (a, b, bias), options["alpha"])
    return dict(zip(_SUM_OF_GROUPS, made, strict=True))


def _groups(call: Any, options: dict[str, Any]) -> grouped_autograd.Groups:
    bounds = {name: getattr(call, name) for name in grouped_autograd.BOUNDS}
    return grouped_autograd.Groups(call.offs, bounds, options["alignment"])


def _gradients_of_groups(call: Any, options: dict[str, Any], *given: Any) -> GroupedGradients:
    operand = next((x for x in (call.b, call.a) if x.dim() == 3), None)
    *function, shape, dtype, stored, multiply = given
    count = shape[0] if operand is None else operand.shape[0]
    return GroupedGradients(
        _groups(call, options),
        len(shape) == 2 and call.a.dim() == 3,
        count,
        *function,
        shape,
        dtype,
        stored,
        multiply,
        _spread_over_matrix,
    )


_SUM_OF_PACKED = ("a", "bias", "c")


def _dense(call: Any, needed: set[str]) -> Tensor | None:
    """The packed weight as gemm's b, where the gradient of `a` is needed."""
    if "a" not in needed:
        return None
    of_weight = call.packed, call.scales, call.zeros, call.global_scale, call.format, call.a.shape[-1]
    return packed_weight.dense(*of_weight).to(call.a.dtype).mT


def _of_packed(grad: Tensor, call: Any, options: dict[str, Any], needed: set[str]) -> dict[str, Tensor]:
    wanted = ("a" in needed, False, "bias" in needed, "c" in needed)
    operands = call.a, _dense(call, needed), call.bias, call.c
    of_a, _, *rest = autograd.of_operands(grad, operands, wanted, options["alpha"], options["beta"])
    return dict(zip(_SUM_OF_PACKED, (of_a, *rest), strict=True))


_SUM_OF_PACKED_GROUPS = ("a", "bias")


def _of_packed_groups(grad: Tensor, call: Any, options: dict[str, Any], needed: set[str]) -> dict[str, Tensor]:
    wanted = ("a" in needed, False, "bias" in needed)
    operands, groups = (call.a, _dense(call, needed), call.bias), grouped_autograd.Groups(call.offs)
    of_a, _, of_bias = grouped_autograd.of_operands(grad, operands, groups, wanted, options["alpha"])
    return dict(zip(_SUM_OF_PACKED_GROUPS, (of_a, of_bias), strict=True))


def _gradients_of_packed_groups(call: Any, options: dict[str, Any], *given: Any) -> GroupedGradients:
    groups, experts = grouped_autograd.Groups(call.offs), call.packed.shape[0]
    return GroupedGradients(groups, False, experts, *given, _spread_over_matrix)


def _of_convolution(
    operator: conv_autograd.Operator, grad: Tensor, call: Any, options: dict[str, Any], needed: set[str]
) -> dict[str, Tensor]:
    operands = {name: getattr(call, conv_autograd.TENSORS[name]) for name in operator.operands}
    geometry = tuple(getattr(call, name) for name in conv_autograd.GEOMETRY)
    added = {"bias": getattr(call, "bias", None), "c": call.c}
    wanted = {name for name in (*operator.operands, *added) if conv_autograd.TENSORS.get(name, name) in needed}
    scalars = options["alpha"], options["beta"]
    made = conv_autograd.of_operands(operator, grad, operands, geometry, added, wanted, scalars)
    return {conv_autograd.TENSORS.get(name, name): x for name, x in made.items()}


def _spread_over_pixels(operator: conv_autograd.Operator, x: Tensor, shape: str, rank: int) -> Tensor:
    """What has one dimension lies along channels, or, of weight gradients, along filters."""
    return x.view(-1, *(1,) * (rank - (1 if operator.made == "w" else 2)))


def _channels_last(grad: Tensor) -> Tensor:
    return packed(grad) if grad.dim() > 2 else grad.contiguous()


def _save(
    operation: _Operation, ctx: Any, inputs: tuple[Any, ...], keyword_only_inputs: dict[str, Any], output: list[Tensor]
) -> None:
    call = dict(zip(operation.names, inputs, strict=True))
    _check(operation, call)
    tensors = call.pop("inputs")
    ctx.set_materialize_grads(False)
    ctx.options = keyword_only_inputs
    ctx.call = {name: x for name, x in call.items() if not isinstance(x, Tensor)}
    ctx.given = [name for name in call if name not in ctx.call]
    text = call["epilogue"]
    given = epilogue.together(text, tensors, call["numbers"], call["number_places"])
    tracked = [name for name, x in given.items() if isinstance(x, Tensor) and x.requires_grad]
    if any(call[name] is not None and call[name].requires_grad for name in operation.sum):
        tracked += parse(text).sums
    saved = () if call["backward"] or not operation.keeps_outputs else saved_outputs(text, tuple(tracked))
    made = dict(zip(parse(text).outputs, output, strict=True))
    ctx.mark_non_differentiable(*(x for name, x in made.items() if not has_derivative(parse(text), name)))
    ctx.saved, ctx.shape = saved, output[0].shape
    ctx.counts = len(ctx.given), len(tensors)
    ctx.save_for_backward(*(call[name] for name in ctx.given), *tensors, *(made[name] for name in saved))


def _check(operation: _Operation, call: dict[str, Any]) -> None:
    for name, x in call.items():
        if isinstance(x, Tensor) and x.requires_grad:
            if name not in operation.sum:
                raise RuntimeError(f"{name} requires grad, but has no gradient here; pass {name}.detach()")
            if x.itemsize == 1:
                raise RuntimeError(f"{name} is {x.dtype}; 8-bit operands have no gradient. Pass {name}.detach()")
    if call.get("packed") is not None and len(parse(call["epilogue"]).sums) > 1 and call["a"].requires_grad:
        raise RuntimeError("a requires grad, but gates of packed weights have no gradient for it; pass a.detach()")
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


def _backward(operation: _Operation, ctx: Any, grads: list[Tensor | None]) -> tuple[Any, ...]:
    call, stored = _restored(ctx)
    needed = dict(zip(operation.names, ctx.needs_input_grad, strict=False))
    # torch takes an empty list for one of tensors or numbers, and says nothing of trailing arguments that the caller
    # left out.
    results = {name: [] if ctx.call.get(name) == [] else None for name in needed}
    results["inputs"] = [None] * len(call.inputs)
    names = parse(call.epilogue).outputs
    given = {name: operation.arranged(grad) for name, grad in zip(names, grads, strict=True) if grad is not None}
    if not given:
        return tuple(results.values())

    def multiply(text: str, values: Iterable[Any], dtype: torch.dtype) -> list[Tensor]:
        options = ctx.options | {"out_dtype": dtype} | ({"zero_rest": None} if "zero_rest" in ctx.options else {})
        return operation.op(**(vars(call) | epilogue.named(text, values) | options))

    inputs = epilogue.together(call.epilogue, call.inputs, call.numbers, call.number_places)
    tensors = [name for name, x in inputs.items() if isinstance(x, Tensor)]
    of_inputs = [name for name, is_needed in zip(tensors, needed["inputs"] or (), strict=True) if is_needed]
    of_sum = {name for name in operation.sum if needed.get(name)}
    operand = getattr(call, operation.sum[0])
    dtype = operand.dtype if operand.itemsize > 1 else next(iter(given.values())).dtype
    function = call.epilogue, call.backward, inputs, given
    gradients = operation.gradients(call, ctx.options, *function, ctx.shape, dtype, stored, multiply)
    made = gradients.of([*([SUM] if of_sum else []), *of_inputs])
    results["inputs"] = [made.get(name) for name in tensors]
    if SUM in made:
        of_operands = operation.of_operands(made[SUM], call, ctx.options, of_sum)
        results |= {name: x for name, x in of_operands.items() if name in needed}
    return tuple(results.values())
