"""The experts of a mixture in training: two GroupedLinears with SwiGLU between them, which their products make.

Forward keeps gates and ups, as the first product stores them beside silu(gate) * up. In backward the data gradient of
the second product makes their gradients, and, where it is wanted, silu(gate) * up again: what is between the products
is neither a kernel of its own nor kept.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from . import _dealt, _float8_grouped, _main_grad, _swiglu
from ._float8 import E4M3, Rows
from ._hooks import has_hooks
from ._operators.transforms import is_transformed
from ._scales import BLOCK
from .grouped_linear import GroupedLinear, weight_gradient

_grouped_gemm = torch.ops.cleave.grouped_gemm
_ALIGNED = 8  # columns of 16 bits: halves of 16 bytes' alignment


def serves(gate_up: nn.Module, down: nn.Module, rows: Tensor, gaps: dict[str, Any]) -> bool:
    """Whether the two are layers as they come, without hooks, of 16 bits or of blocks of 8, and groups without gaps;
    torch.func takes operators alone."""
    layers = gate_up, down
    if is_transformed():
        return False
    if not all(type(layer) is GroupedLinear and not has_hooks(layer) and layer.bias is None for layer in layers):
        return False
    same = all(getattr(gate_up, name) == getattr(down, name) for name in ("recipe", "grad_dtype"))
    added = any(layer.accumulate_main_grad for layer in layers)
    if not same or any(gap is not None for gap in gaps.values()) or torch.is_autocast_enabled(rows.device.type):
        return False
    if added and (torch.compiler.is_compiling() or any(_dealt.is_dealt(layer.weight) for layer in layers)):
        return False
    if rows.dtype not in (torch.float16, torch.bfloat16):
        return False
    if gate_up.recipe:
        return down.in_features % BLOCK == 0
    return down.in_features % _ALIGNED == 0 and all(layer.weight.dtype == rows.dtype for layer in layers)


def run(gate_up: GroupedLinear, down: GroupedLinear, rows: Tensor, offs: Tensor) -> Tensor:
    """down(silu(gate) * up), where gate_up makes these of rows; differentiable. For what `serves` says."""
    weights = gate_up.weight, down.weight
    accumulate = gate_up.accumulate_main_grad, down.accumulate_main_grad
    if gate_up.recipe:
        return _In8Bits.apply(rows, *map(_dealt.own, weights), offs, gate_up.grad_dtype, accumulate)
    if torch.compiler.is_compiling():
        weights = tuple(map(_dealt.own, weights))
    return _In16Bits.apply(rows, *weights, offs, accumulate)


class _In16Bits(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, gate_up: Tensor, down: Tensor, offs: Tensor, accumulate: tuple[bool, bool]
    ) -> Tensor:
        hidden, gate, up = _swiglu.multiply(rows, _dealt.own(gate_up), offs)
        ctx.save_for_backward(rows, gate_up, down, offs, gate, up)
        ctx.main = _main_weights(gate_up, down, accumulate)
        return _grouped_gemm.default(hidden, _dealt.own(down).mT, offs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        if not torch.compiler.is_compiling() and torch.is_grad_enabled():
            return _differentiable_gradients(ctx, grad)
        rows, gate_up, down, offs, gate, up = ctx.saved_tensors
        needs_rows, needs_gate_up, needs_down, *_ = ctx.needs_input_grad
        grad = grad.contiguous()
        of_sums, *hidden = _swiglu.backward(grad, _dealt.own(down), offs, gate, up, needs_down)
        of_rows = of_gate_up = of_down = None
        if needs_down:
            of_down = weight_gradient(down, ctx.main[1], grad, *hidden, offs)
        if needs_gate_up:
            of_gate_up = weight_gradient(gate_up, ctx.main[0], of_sums, rows, offs)
        if needs_rows:
            of_rows = _grouped_gemm.default(of_sums, _dealt.own(gate_up), offs)
        return of_rows, of_gate_up, of_down, None, None


def _main_weights(gate_up: Tensor, down: Tensor, accumulate: tuple[bool, bool]) -> tuple[Tensor | None, ...]:
    """Those whose gradients are added to main_grad: the very objects, of which it is an attribute."""
    return tuple(weight if added else None for weight, added in zip((gate_up, down), accumulate, strict=True))


def _differentiable_gradients(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    """By operators that have gradients themselves, where those of the gradients are asked for."""
    rows, gate_up, down, offs, *_ = ctx.saved_tensors
    gate, up = _grouped_gemm.default(rows, _dealt.own(gate_up).mT, offs).chunk(2, -1)
    y = _grouped_gemm.default(nn.functional.silu(gate) * up, _dealt.own(down).mT, offs)
    inputs = rows, gate_up, down
    wanted = [x for x, needed in zip(inputs, ctx.needs_input_grad, strict=False) if needed]
    made = iter(torch.autograd.grad(y, wanted, grad, create_graph=True))
    gradients = [next(made) if needed else None for needed in ctx.needs_input_grad[:3]]
    for place, weight in enumerate(ctx.main, 1):
        if weight is not None and gradients[place] is not None:
            gradients[place] = _main_grad.add(weight, partial(_add, gradients[place].detach()))
    return *gradients, None, None


def _add(grad: Tensor, c: Tensor | None, out: Tensor) -> None:
    with torch.no_grad():
        out.copy_(grad if c is None else c + grad)


class _In8Bits(torch.autograd.Function):
    """As two of _float8_grouped.Linear's."""

    @staticmethod
    def forward(
        ctx: Any,
        rows: Tensor,
        gate_up: Tensor,
        down: Tensor,
        offs: Tensor,
        grad_dtype: torch.dtype,
        accumulate: tuple[bool, bool],
    ) -> Tensor:
        needs_rows, needs_gate_up, needs_down, *_ = ctx.needs_input_grad
        x, x_t, ends = _float8_grouped.tokens(rows, offs, E4M3, needs_gate_up)
        first, first_t = _float8_grouped.experts(gate_up, needs_rows)
        hidden, gate, up = _swiglu.multiply(x.q, first.q, offs, x.scale, first.scale.mT, rows.dtype)
        h, h_t, ends_of_h = _float8_grouped.tokens(hidden, offs, E4M3, needs_down)
        second, second_t = _float8_grouped.experts(down, True)
        ends = ends_of_h if ends is None else ends
        ctx.save_for_backward(offs, ends, gate, up, *x_t, *first_t, *h_t, *second_t)
        ctx.dtypes = _dealt.gradient_dtype(gate_up), _dealt.gradient_dtype(down)
        ctx.grad_dtype = grad_dtype
        ctx.main = _main_weights(gate_up, down, accumulate)
        return _float8_grouped.by_groups(h, second, offs, rows.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        offs, ends, gate, up, *operands = ctx.saved_tensors
        x_t, first_t, h_t, second_t = (Rows(*operands[i : i + 2]) for i in range(0, 8, 2))
        needs_rows, needs_gate_up, needs_down, *_ = ctx.needs_input_grad
        of_rows = of_gate_up = of_down = None
        rows, grad_t, _ = _float8_grouped.tokens(grad.contiguous(), offs, ctx.grad_dtype, needs_down)
        if needs_down:
            of_down = _float8_grouped.weight_gradient(grad_t, h_t, ends, ctx.dtypes[1], ctx.main[1])
        if needs_rows or needs_gate_up:
            scales = rows.scale, second_t.scale.mT
            (of_sums,) = _swiglu.backward(rows.q, second_t.q.mT, offs, gate, up, False, *scales)
            sums, sums_t, _ = _float8_grouped.tokens(of_sums, offs, ctx.grad_dtype, needs_gate_up)
            if needs_gate_up:
                of_gate_up = _float8_grouped.weight_gradient(sums_t, x_t, ends, ctx.dtypes[0], ctx.main[0])
            if needs_rows:
                of_rows = _float8_grouped.by_groups(sums, first_t, offs, gate.dtype)
        return of_rows, of_gate_up, of_down, None, None, None
