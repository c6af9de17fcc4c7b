"""torch.ops.cleave.*: products over the ranks of a group, their results without computing, and their gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from .._epilogue.activations import keeps_result
from ..torch._operators import activations, autograd, epilogue
from ..torch._operators.fake import default_dtype
from ..torch._operators.sum_to import sum_to
from . import _gathers, _moe_operators, _sums
from ._peers import peers_of

_library = torch.library.Library("cleave", "FRAGMENT")

_SUM = 'str activation="none", ScalarType? out_dtype=None, ScalarType? partial_dtype=None, str order="rank", '
_SUM += 'str transport="auto"'
_SCALED = "Tensor a, Tensor b, Tensor? scale_a, Tensor? scale_b, str group_name, Tensor? bias=None, "
_REST = "ScalarType? out_dtype=None, bool use_fast_accum=False"
_SCALED_SUM = f"({_SCALED}Tensor? c=None, Tensor? scale_d=None, *, bool use_fast_accum=False, {_SUM}) -> Tensor"
SCHEMAS = {
    "gemm_all_reduce": f"(Tensor a, Tensor b, str group_name, Tensor? bias=None, Tensor? c=None, *, {_SUM}) -> Tensor",
    "gemm_reduce_scatter": (
        f"(Tensor a, Tensor b, str group_name, Tensor? bias=None, Tensor? c=None, *, {_SUM}) -> Tensor"
    ),
    "all_gather_gemm": (
        "(Tensor a, Tensor b, str group_name, Tensor? bias=None, *, SymInt? rows=None, "
        'str activation="none", ScalarType? out_dtype=None, bool save_gathered=True, str transport="auto") '
        "-> (Tensor, Tensor)"
    ),
    "scaled_gemm_all_reduce": _SCALED_SUM,
    "scaled_gemm_reduce_scatter": _SCALED_SUM,
    "all_gather_scaled_gemm": (
        f'({_SCALED}{_REST}, *, SymInt? rows=None, str activation="none", str transport="auto") -> Tensor'
    ),
    "all_reduce_rows": '(Tensor x, str group_name, Tensor? bias=None, *, str transport="auto") -> Tensor',
    "reduce_scatter_rows": '(Tensor x, str group_name, Tensor? bias=None, *, str transport="auto") -> Tensor',
    "all_gather_rows": '(Tensor x, str group_name, *, SymInt? rows=None, str transport="auto") -> Tensor',
}

IMPLEMENTATIONS = {
    "gemm_all_reduce": _sums.of_products("gemm_all_reduce", scatter=False),
    "gemm_reduce_scatter": _sums.of_products("gemm_reduce_scatter", scatter=True),
    "all_gather_gemm": _gathers.all_gather_gemm,
    "scaled_gemm_all_reduce": _sums.of_scaled_products("scaled_gemm_all_reduce", scatter=False),
    "scaled_gemm_reduce_scatter": _sums.of_scaled_products("scaled_gemm_reduce_scatter", scatter=True),
    "all_gather_scaled_gemm": _gathers.all_gather_scaled_gemm,
    "all_reduce_rows": _sums.of_rows("all_reduce_rows", scatter=False),
    "reduce_scatter_rows": _sums.of_rows("reduce_scatter_rows", scatter=True),
    "all_gather_rows": _gathers.all_gather_rows,
}


# Shapes, for torch.compile, meta tensors and export.


def _fake_sum(scatter: bool, scaled: bool) -> Callable[..., Tensor]:
    def fake(a: Tensor, b: Tensor, *arguments: Any, **options: Any) -> Tensor:
        peers = peers_of(arguments[2 if scaled else 0])
        rows = peers.own(a.shape[0]) if scatter else a.shape[0]
        out = options.get("out_dtype") or (torch.bfloat16 if scaled else a.dtype)
        return a.new_empty(rows, b.shape[1], dtype=out)

    return fake


def _rows_of(x: Tensor, rows: Any, group_name: str) -> Any:
    return peers_of(group_name).size * x.shape[0] if rows is None else rows


def _fake_gather(a: Tensor, b: Tensor, group_name: str, *_: Any, **options: Any) -> tuple[Tensor, Tensor]:
    rows = _rows_of(a, options.get("rows"), group_name)
    made = a.new_empty(rows, b.shape[1], dtype=options.get("out_dtype") or a.dtype)
    return made, a.new_empty(rows, a.shape[1])


def _fake_scaled_gather(
    a: Tensor,
    b: Tensor,
    scale_a: Tensor | None,
    scale_b: Tensor | None,
    group_name: str,
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
    **options: Any,
) -> Tensor:
    rows = _rows_of(a, options.get("rows"), group_name)
    return a.new_empty(rows, b.shape[1], dtype=out_dtype or default_dtype(a, scale_a))


def _fake_scattered_rows(x: Tensor, group_name: str, *_: Any, **__: Any) -> Tensor:
    return x.new_empty(peers_of(group_name).own(x.shape[0]), x.shape[1])


def _fake_rows(x: Tensor, group_name: str, **options: Any) -> Tensor:
    return x.new_empty(_rows_of(x, options.get("rows"), group_name), *x.shape[1:])


_FAKES = {
    "gemm_all_reduce": _fake_sum(scatter=False, scaled=False),
    "gemm_reduce_scatter": _fake_sum(scatter=True, scaled=False),
    "all_gather_gemm": _fake_gather,
    "scaled_gemm_all_reduce": _fake_sum(scatter=False, scaled=True),
    "scaled_gemm_reduce_scatter": _fake_sum(scatter=True, scaled=True),
    "all_gather_scaled_gemm": _fake_scaled_gather,
    "all_reduce_rows": lambda x, *_, **__: x.new_empty(x.shape),
    "reduce_scatter_rows": _fake_scattered_rows,
    "all_gather_rows": _fake_rows,
}


# Gradients: the sum's are local, a scatter's backward gathers, a gather's scatters.


def _save_sum(ctx: Any, inputs: tuple[Any, ...], keyword_only_inputs: dict[str, Any], output: Tensor) -> None:
    a, b, ctx.group_name, bias, c = inputs
    ctx.options = keyword_only_inputs
    ctx.save_for_backward(a, b, bias, c, output if keeps_result(ctx.options["activation"]) else None)


def _before_activation(ctx: Any, op: Any, grad: Tensor) -> Tensor:
    """The gradient of the sum itself, from that of the result."""
    a, b, bias, c, output = ctx.saved_tensors
    activation = ctx.options["activation"]
    if activation == "none":
        return grad

    def multiply(text: str, inputs: Iterable[Any], _: torch.dtype) -> list[Tensor]:  # by all ranks
        linear = ctx.options | {"activation": "none", "out_dtype": grad.dtype}
        return activations.apply(text, inputs, op(a, b, ctx.group_name, bias, c, **linear))

    return activations.backward(activation, grad, output, multiply)


def _backward_all_reduce(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    grad = _before_activation(ctx, torch.ops.cleave.gemm_all_reduce, grad)
    needed = _needed(ctx)
    made = autograd.of_operands(grad, ctx.saved_tensors[:4], needed, 1.0, None)
    return made[0], made[1], None, made[2], made[3]


def _backward_reduce_scatter(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    grad = _before_activation(ctx, torch.ops.cleave.gemm_reduce_scatter, grad)
    a, b, bias, c = ctx.saved_tensors[:4]
    needs_a, needs_b, needs_bias, needs_c = _needed(ctx)
    of_a = of_b = of_bias = None
    transport = {"rows": a.shape[0], "transport": ctx.options["transport"]}
    operand = grad.to(a.dtype).contiguous()
    if needs_a:
        of_a, gathered = torch.ops.cleave.all_gather_gemm(operand, b.mT, ctx.group_name, **transport)
    elif needs_b or needs_bias:
        gathered = torch.ops.cleave.all_gather_rows(operand, ctx.group_name, **transport)
    if needs_b:
        of_b = autograd.product(a.mT, gathered, b, 1.0)
    if needs_bias:
        of_bias = gathered.sum(0, dtype=torch.float32).to(bias.dtype)
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
    if gathered is None and (needs_b or again):
        gathered = torch.ops.cleave.all_gather_rows(a, ctx.group_name, rows=ctx.rows, transport=transport)
    if activation != "none":

        def multiply(text: str, inputs: Iterable[Any], dtype: torch.dtype) -> list[Tensor]:
            function = epilogue.named(text, inputs)
            return torch.ops.cleave.gemm.epilogue(gathered, b, **function, bias=bias, out_dtype=dtype)

        grad = activations.backward(activation, grad.contiguous(), output, multiply)
    operand = grad.to(a.dtype).contiguous()
    return (
        torch.ops.cleave.gemm_reduce_scatter(operand, b.mT, ctx.group_name, transport=transport) if needs_a else None,
        autograd.product(gathered.mT, operand, b, 1.0) if needs_b else None,
        None,
        sum_to(grad, bias.shape, bias.dtype) if needs_bias else None,
    )


def _save_rows(ctx: Any, inputs: tuple[Any, ...], keyword_only_inputs: dict[str, Any], output: Tensor) -> None:
    x, ctx.group_name, bias = inputs
    ctx.rows, ctx.transport = x.shape[0], keyword_only_inputs["transport"]
    ctx.save_for_backward(bias)


def _backward_all_reduce_rows(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    (bias,) = ctx.saved_tensors
    needs_bias = (*ctx.needs_input_grad, False)[2]
    return grad, None, sum_to(grad, bias.shape, bias.dtype) if needs_bias else None


def _backward_reduce_scatter_rows(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    given = {"rows": ctx.rows, "transport": ctx.transport}
    gathered = torch.ops.cleave.all_gather_rows(grad.contiguous(), ctx.group_name, **given)
    return _backward_all_reduce_rows(ctx, gathered)


def _save_gathered_rows(ctx: Any, inputs: tuple[Any, ...], keyword_only_inputs: dict[str, Any], output: Tensor) -> None:
    _, ctx.group_name = inputs
    ctx.transport = keyword_only_inputs["transport"]


def _backward_gathered_rows(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
    return torch.ops.cleave.reduce_scatter_rows(grad.contiguous(), ctx.group_name, transport=ctx.transport), None


_GRADIENTS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "gemm_all_reduce": (_save_sum, _backward_all_reduce),
    "gemm_reduce_scatter": (_save_sum, _backward_reduce_scatter),
    "all_gather_gemm": (_save_gather, _backward_gather),
    "all_reduce_rows": (_save_rows, _backward_all_reduce_rows),
    "reduce_scatter_rows": (_save_rows, _backward_reduce_scatter_rows),
    "all_gather_rows": (_save_gathered_rows, _backward_gathered_rows),
}


def register() -> None:
    if not dist.is_available():
        raise ImportError("this torch is built without torch.distributed; products over ranks need it")
    _register(SCHEMAS, IMPLEMENTATIONS, _FAKES, _GRADIENTS)
    moe = _moe_operators
    _register(moe.SCHEMAS, moe.IMPLEMENTATIONS, moe.FAKES, moe.GRADIENTS)


def _register(
    schemas: dict[str, str],
    implementations: dict[str, Callable[..., Any]],
    fakes: dict[str, Callable[..., Any]],
    gradients: dict[str, tuple[Callable[..., Any], Callable[..., Any]]],
) -> None:
    """Each by an operator's name; what its backward is given, and the backward."""
    for name, schema in schemas.items():
        _library.define(name + schema)
        for device in ("CPU", "CUDA"):
            _library.impl(name, implementations[name], device)
        torch.library.register_fake(f"cleave::{name}", fakes[name], lib=_library)
    for name, (save, backward) in gradients.items():
        torch.library.register_autograd(f"cleave::{name}", backward, setup_context=save, lib=_library)
