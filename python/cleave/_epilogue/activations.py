"""The activations: epilogue functions that are ready-made."""

from __future__ import annotations

from .._core import activations
from .graph import INTERLEAVED, parse
from .saved import saved_outputs

GRAPHS = {name: parse(text) for name, text in activations.items()}
# Those that join two of b's columns; and those of them that join neighbours.
GATED = tuple(name for name, graph in GRAPHS.items() if len(graph.sums) == 2)
PAIRED = tuple(name for name in GATED if GRAPHS[name].sums == INTERLEAVED)


def keeps_result(activation: str) -> bool:
    """Whether the result says enough of the sums, as relu's does, so that a gradient needs no sums again."""
    return activation != "none" and bool(saved_outputs(activations[activation], GRAPHS[activation].sums))
