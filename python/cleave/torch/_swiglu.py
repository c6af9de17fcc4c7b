"""SwiGLU between two products of groups, as a part of them: of the first one's epilogue, and in backward of the second
one's data gradient's."""

from __future__ import annotations

import torch
from torch import Tensor

import cleave

_library = torch.library.Library("cleave", "FRAGMENT")


@cleave.epilogue
def _forward(acc):
    return cleave.outputs(d=cleave.silu(acc.gate) * acc.up, gate=acc.gate, up=acc.up)


def _slope(gate):
    """silu's."""
    sigmoid = cleave.sigmoid(gate)
    return sigmoid + cleave.silu(gate) * (1.0 - sigmoid)


@cleave.epilogue
def _backward(acc, gate: cleave.matrix, up: cleave.matrix):
    """acc: the gradient of silu(gate) * up. d is gate's."""
    return cleave.outputs(d=acc * up * _slope(gate), up=acc * cleave.silu(gate))


@cleave.epilogue
def _backward_and_hidden(acc, gate: cleave.matrix, up: cleave.matrix):
    activated = cleave.silu(gate)
    return cleave.outputs(d=acc * up * _slope(gate), up=acc * activated, hidden=activated * up)


def multiply(
    rows: Tensor,
    weight: Tensor,
    offs: Tensor,
    scale: Tensor | None = None,
    weight_scale: Tensor | None = None,
    dtype: torch.dtype | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """silu(gate) * up, gate and up: [tokens, H] each, where rows[of g] @ weight[g].T are the gates and the ups.

    rows [tokens, K] and weight [G, 2 H, K], with their scales where they are of 8 bits; dtype: of the results, or
    rows' own.
    """
    hidden, gate, up = torch.ops.cleave.grouped_gemm.epilogue(
        rows, weight.mT, offs, _forward.text, [], scale_a=scale, scale_b=weight_scale, out_dtype=dtype
    )
    return hidden, gate, up


_library.define(
    "grouped_swiglu_backward(Tensor grad, Tensor weight, Tensor offs, Tensor gate, Tensor up, bool with_hidden, "
    "Tensor? scale_a=None, Tensor? scale_b=None) -> Tensor[]"
)


def _run(
    grad: Tensor,
    weight: Tensor,
    offs: Tensor,
    gate: Tensor,
    up: Tensor,
    with_hidden: bool,
    scale_a: Tensor | None = None,
    scale_b: Tensor | None = None,
) -> list[Tensor]:
    """The gradients of gates and ups, side by side [tokens, 2 H], of grad @ weight, that of silu(gate) * up; and this
    itself, if it is wanted. grad [tokens, N] and weight [G, N, H], with their scales where they are of 8 bits."""
    made = _empty(gate, with_hidden)
    function = (_backward_and_hidden if with_hidden else _backward)(gate=gate, up=up)
    scales = {} if scale_a is None else {"scale_a": scale_a, "scale_b": scale_b}
    out = (*made[0].chunk(2, -1), *made[1:])
    with torch.no_grad():
        cleave.grouped_gemm(grad, weight, offs, epilogue=function, out=out, zero_rest=True, **scales)
    return made


def _empty(gate: Tensor, with_hidden: bool) -> list[Tensor]:
    rows, columns = gate.shape
    both = gate.new_empty(rows, 2 * columns)
    return [both, gate.new_empty(rows, columns)] if with_hidden else [both]


_library.impl("grouped_swiglu_backward", _run, "CompositeExplicitAutograd")
torch.library.register_fake("cleave::grouped_swiglu_backward", lambda *call, **_: _empty(call[3], call[5]))
backward = torch.ops.cleave.grouped_swiglu_backward.default
