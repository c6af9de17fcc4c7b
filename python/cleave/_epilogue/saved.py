"""What a forward pass may keep, so that backward need not make the sums again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from .derivative import derivative, has_derivative
from .graph import SUMS, Graph, needed, parse


@lru_cache(maxsize=256)
def saved_outputs(text: str, differentiable: tuple[str, ...]) -> tuple[str, ...]:
    """The outputs that are worth saving: with their values no derivative needs the product again."""
    forward = parse(text)
    graph = derivative(text, tuple(name for name in forward.outputs if has_derivative(forward, name)))
    wanted = [value for name, (_, value) in graph.outputs.items() if name in differentiable]
    if not reads_sums(graph, wanted, {}):
        return ()
    whole = {name: output for name, output in forward.outputs.items() if name not in forward.reductions}
    stored = {value: name for name, (dtype, value) in whole.items() if dtype in _SAVED_TYPES}
    read = needed(graph, wanted, stored)
    return () if reads_sums(graph, wanted, stored) else tuple(stored[value] for value in stored if value in read)


def reads_sums(graph: Graph, wanted: Iterable[str], known: Mapping[str, Any]) -> bool:
    """Whether these values are made of sums that are not known."""
    return not needed(graph, wanted, known).difference(known).isdisjoint(SUMS)


_SAVED_TYPES = (None, "float16", "bfloat16", "float32")
