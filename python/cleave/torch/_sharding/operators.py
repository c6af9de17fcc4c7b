"""How torch.ops.cleave.* take DTensors: by rules that say which placements of operands give which of the result.

torch.distributed.tensor.experimental.register_sharding remembers what it found by operands and integers alone, so that
after `gemm(a, b)` a call with activation="relu" would be relu of partial sums. Here all arguments count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace

import torch
from torch.distributed.tensor import DTensor, Placement, Replicate
from torch.distributed.tensor._op_schema import OpSchema, OpStrategy, RuntimeSchemaInfo
from torch.distributed.tensor._ops.utils import expand_to_full_mesh_op_strategy

from . import rules

# Yields what a call may be given: placements of operands by their names, others being replicated, and of each result.
Rule = Callable[[SimpleNamespace], Iterator[tuple[dict[str, Placement], tuple[Placement, ...]]]]

_RULES: dict[str, Rule] = {
    "gemm": rules.gemm,
    "scaled_gemm": rules.scaled_gemm,
    "scaled_gemm.full": rules.scaled_gemm,
    "grouped_gemm": rules.grouped_gemm,
    "grouped_gemm.full": rules.grouped_gemm,
    "conv": rules.conv,
    "conv.full": rules.conv,
    "conv_dgrad": rules.conv_dgrad,
    "conv_dgrad.full": rules.conv_dgrad,
    "conv_wgrad": rules.conv_wgrad,
    "conv_wgrad.full": rules.conv_wgrad,
    "scaled_conv": rules.conv,
    "scaled_conv.full": rules.conv,
    "quantize": rules.quantize,
    "quantize_static": rules.quantize_static,
}

# Arguments that are the result's size: of a rank's part, where that is dealt.
_SIZES = {"conv_dgrad": 0, "conv_wgrad": 1}


def register() -> None:
    propagator = DTensor._op_dispatcher.sharding_propagator
    for name, rule in _RULES.items():
        operator, _, overload = name.partition(".")
        form = getattr(getattr(torch.ops.cleave, operator), overload or "default")
        keywords = [argument.name for argument in form._schema.arguments if argument.kwarg_only]
        everything = RuntimeSchemaInfo(0, keywords or None, needs_pytree=True)
        propagator.register_op_strategy(form, partial(_strategy, rule), everything)
        if operator in _SIZES:
            propagator.op_to_shape_and_stride_idx[form] = _SIZES[operator]


def _strategy(rule: Rule, call: OpSchema) -> OpStrategy:
    """What torch chooses from: the rule for each dimension of the mesh, and everything replicated."""
    declared = call.op._schema
    given = {argument.name: argument.default_value for argument in declared.arguments if argument.has_default_value()}
    given |= dict(zip((argument.name for argument in declared.arguments), call.args_schema, strict=False))
    given |= call.kwargs_schema
    positions = [argument.name for argument in declared.arguments][: len(call.args_schema)]
    tensors = [name for name in (*positions, *call.kwargs_schema) if isinstance(given[name], OpStrategy)]
    # torch 2.11's own search for the mesh ends at a first argument that is a list of sizes.
    mesh, results = given[tensors[0]].mesh, len(declared.returns)
    choices: list[list[Placement]] = [[Replicate()] * (results + len(tensors))]
    for operands, made in rule(SimpleNamespace(**given, parts=mesh.size())):
        choices.append([*made, *(operands.get(name, Replicate()) for name in tensors)])
    return expand_to_full_mesh_op_strategy(mesh, call, choices, input_index=results)
