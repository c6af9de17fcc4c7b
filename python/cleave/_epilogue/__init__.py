"""Epilogue functions: how they are written (function.py), and what follows from their text."""

from .errors import EpilogueError
from .function import BoundEpilogue, Epilogue, epilogue
from .functions import (
    clamp,
    erf,
    exp,
    gelu,
    log,
    maximum,
    minimum,
    outputs,
    relu,
    relu2,
    rsqrt,
    sigmoid,
    silu,
    sqrt,
    tanh,
    where,
)
from .inputs import column, matrix, row, scalar

__all__ = [
    "BoundEpilogue",
    "Epilogue",
    "EpilogueError",
    "clamp",
    "column",
    "epilogue",
    "erf",
    "exp",
    "gelu",
    "log",
    "matrix",
    "maximum",
    "minimum",
    "outputs",
    "relu",
    "relu2",
    "row",
    "rsqrt",
    "scalar",
    "sigmoid",
    "silu",
    "sqrt",
    "tanh",
    "where",
]
