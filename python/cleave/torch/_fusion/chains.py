"""Chains of layers in models, found by what their modules do with tensors: their forward functions are traced.

A module's own children are not looked into, so that a trace says which child reads what.
"""

from __future__ import annotations

import inspect
import operator
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn

from .._packed_linear import PackedLinear
from .._rms_norm import has_weight_of_rows
from ..linear import W8A8Linear

# A keyword that no layer has: where it turns up, all others do.
_ANY = "any_keyword"


@dataclass(frozen=True)
class DecoderLayer:
    """x = x + attention(norm(x)), then x + mlp(norm(x)): the names of these, and how the layer is called.

    parameters: the layer's, in order, x first. defaults: of those that have one. args, kwargs: attention's, as names of
    such parameters, "" for the norm; any other keyword that the layer takes is attention's, too. first_of_attention,
    first_of_mlp: they return tuples, whose first is added.
    """

    attention_norm: str
    attention: str
    mlp_norm: str
    mlp: str
    parameters: tuple[str, ...]
    defaults: dict[str, Any]
    args: tuple[str, ...]
    kwargs: dict[str, str]
    first_of_attention: bool
    first_of_mlp: bool


def find_decoder_layer(layer: nn.Module) -> DecoderLayer | None:
    if sum(has_weight_of_rows(child) for child in layer.children()) < 2:
        return None  # before any code of the module is run
    graph, whole = _trace(layer)
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    if not whole or not placeholders:
        return None
    try:
        (result,) = graph.output_node().args
        stream, mlp, first_of_mlp = _sum_with_module(result)
        x, attention, first_of_attention = _sum_with_module(stream)
        mlp_norm, attention_norm = _only(mlp.args, mlp.kwargs), _norm_among(attention, x)
        if x is not placeholders[0] or _only(attention_norm.args) is not x or _only(mlp_norm.args) is not stream:
            return None
        if {node.op for node in (mlp_norm, attention_norm)} != {"call_module"}:
            return None
        args = tuple(_parameter(value, attention_norm) for value in attention.args)
        kwargs = {name: _parameter(value, attention_norm) for name, value in attention.kwargs.items()}
    except _NoMatch:
        return None
    names = [node.target for node in (attention_norm, attention, mlp_norm, mlp)]
    passes_on = kwargs.pop(_ANY, None) is not None
    if len(set(names)) != 4 or passes_on != (placeholders[-1].target == _ANY):
        return None
    parameters = _parameters(layer)
    defaults = {name: each.default for name, each in parameters.items() if each.default is not each.empty}
    return DecoderLayer(*names, tuple(parameters), defaults, args, kwargs, first_of_attention, first_of_mlp)


@dataclass(frozen=True)
class GatedMLP:
    """down(silu(gate(x)) * up(x)): the names of these; of one layer where that makes gates and then ups."""

    gates: tuple[str, ...]
    down: str


def find_gated_mlp(module: nn.Module) -> GatedMLP | None:
    if sum(isinstance(child, (nn.Linear, W8A8Linear, PackedLinear)) for child in module.children()) < 2:
        return None
    graph, whole = _trace(module)
    if not whole:
        return None
    try:
        (result,) = graph.output_node().args
        down = _call(result)
        product = _only(down.args)
        if not _is_function(product, operator.mul, torch.mul):
            return None
        for first, second in (product.args, product.args[::-1]):
            gate = _silu_of(module, first)
            if gate is None:
                continue
            both = _chunked(gate, second)
            calls = [_call(each) for each in ((gate, second) if both is None else (both,))]
            inputs = {_only(each.args) for each in calls}
            known = len(inputs) == 1 and inputs.pop().op == "placeholder"
            return GatedMLP(tuple(each.target for each in calls), down.target) if known else None
    except _NoMatch:
        pass
    return None


def find_readers(module: nn.Module, argument: int | str) -> list[str] | None:
    """The children that read an argument of a module, which may ask for its shape, too. None if it is read otherwise,
    or nothing is known of it."""
    graph, _ = _trace(module)  # as far as it goes: attention reads its input at its beginning
    placeholders = {node.target: node for node in graph.nodes if node.op == "placeholder"}
    name = list(placeholders)[argument] if isinstance(argument, int) else argument
    if name not in placeholders:
        return None
    readers = []
    for node in placeholders[name].users:
        if node.op == "call_module" and _only_or_none(node) is placeholders[name]:
            readers.append(node.target)
        else:
            return None
    return readers if len(set(readers)) == len(readers) else None


class _NoMatch(Exception):
    pass


class _Proxy(fx.Proxy):
    """A value whose elements are unknown, and whose shape is taken for that of batch, tokens and features."""

    shape = torch.Size((1, 1, 1))


class _Tracer(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return True

    def proxy(self, node: fx.Node) -> fx.Proxy:
        return _Proxy(node, self)


class _Call(nn.Module):
    """A call of a module, every parameter of which is a placeholder; and _ANY, where it takes any keyword."""

    def __init__(self, module: nn.Module, tracer: fx.Tracer) -> None:
        super().__init__()
        self.module, self._tracer = module, tracer

    def forward(self) -> Any:
        names = list(_parameters(self.module))
        if any(each.kind is each.VAR_KEYWORD for each in inspect.signature(self.module.forward).parameters.values()):
            names.append(_ANY)
        given = {name: self._tracer.create_proxy("placeholder", name, (), {}) for name in names}
        return self.module.forward(**given)


def _trace(module: nn.Module) -> tuple[fx.Graph, bool]:
    """What it does, and whether that is all of it: where values decide what is done the trace ends."""
    tracer = _Tracer()
    try:
        graph, whole = tracer.trace(_Call(module, tracer)), True
    except Exception:  # of whatever the module's code meets that takes no proxies
        graph, whole = getattr(tracer, "graph", fx.Graph()), False
    for node in graph.nodes:
        if node.op == "call_module":
            node.target = node.target.removeprefix("module.")
    if whole:
        graph.eliminate_dead_code(is_impure_node=lambda node: node.op in ("placeholder", "output"))
    return graph, whole


def _parameters(module: nn.Module) -> dict[str, inspect.Parameter]:
    """What its forward function takes, by name, but for *args and **kwargs."""
    every = inspect.signature(module.forward).parameters
    return {name: each for name, each in every.items() if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)}


def _is_function(node: Any, *functions: Any) -> bool:
    return isinstance(node, fx.Node) and node.op == "call_function" and node.target in functions


def _call(node: Any) -> fx.Node:
    if not isinstance(node, fx.Node) or node.op != "call_module":
        raise _NoMatch
    return node


def _only(args: tuple[Any, ...], kwargs: Any = ()) -> fx.Node:
    values = [*args, *dict(kwargs).values()]
    if len(values) != 1 or not isinstance(values[0], fx.Node):
        raise _NoMatch
    return values[0]


def _only_or_none(node: fx.Node) -> fx.Node | None:
    try:
        return _only(node.args, node.kwargs)
    except _NoMatch:
        return None


def _sum_with_module(node: Any) -> tuple[fx.Node, fx.Node, bool]:
    """In stream + module(...): stream, the module's call, and whether its first result is what is added."""
    if not _is_function(node, operator.add, torch.add) or len(node.args) != 2:
        raise _NoMatch
    for stream, added in (node.args, node.args[::-1]):
        first = _is_function(added, operator.getitem) and added.args[1] == 0
        call = added.args[0] if first else added
        if isinstance(call, fx.Node) and call.op == "call_module" and isinstance(stream, fx.Node):
            return stream, call, first
    raise _NoMatch


def _norm_among(attention: fx.Node, x: fx.Node) -> fx.Node:
    """The one argument of attention that is a module's result."""
    made = [node for node in attention.all_input_nodes if node.op == "call_module"]
    if len(made) != 1 or x in attention.all_input_nodes:
        raise _NoMatch
    return made[0]


def _parameter(value: Any, norm: fx.Node) -> str:
    if value is norm:
        return ""
    if isinstance(value, fx.Node) and value.op == "placeholder":
        return value.target
    raise _NoMatch


def _chunked(first: Any, second: Any) -> fx.Node | None:
    """What these are the first and the second half of, along its columns."""
    halves = [each for each in (first, second) if _is_function(each, operator.getitem)]
    if len(halves) != 2 or [each.args[1] for each in halves] != [0, 1]:
        return None
    chunks, other = (each.args[0] for each in halves)
    is_chunk = _is_function(chunks, torch.chunk) or (chunks.op == "call_method" and chunks.target == "chunk")
    if chunks is not other or not is_chunk:
        return None
    given = dict(zip(("input", "chunks", "dim"), chunks.args, strict=False)) | chunks.kwargs
    return given["input"] if given.get("chunks") == 2 and given.get("dim") == -1 else None


def _silu_of(module: nn.Module, node: Any) -> Any:
    """What the silu is taken of that a node is; None where it is none."""
    if not isinstance(node, fx.Node):
        return None
    is_function = _is_function(node, nn.functional.silu)
    if not is_function and not (node.op == "call_module" and _is_silu(module.get_submodule(node.target))):
        return None
    return node.args[0]


def _is_silu(module: nn.Module) -> bool:
    if type(module) is nn.SiLU:
        return True
    graph, whole = _trace(module)
    if not whole or list(module.children()):
        return False
    (result,) = graph.output_node().args
    return _is_function(result, nn.functional.silu) and result.args[0].op == "placeholder"
