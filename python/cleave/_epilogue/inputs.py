"""What inputs of epilogue functions are annotated with."""

from __future__ import annotations


class InputShape:
    """What one element of D has of an input of an epilogue function: an annotation of its parameter."""

    def __init__(self, name: str, meaning: str) -> None:
        self.name = name
        self.__doc__ = meaning

    def __repr__(self) -> str:
        return f"cleave.{self.name}"

    def __reduce__(self) -> str:
        return self.name  # as a copy, or in another process, it is the one of this module


scalar = InputShape(
    "scalar", "One value for all of D: a number, or an array of one element (per batch, [B, 1, 1]; per group, [G])."
)
row = InputShape(
    "row",
    "N values, one per column of D: a row vector, which all rows share; [N], [1, N], [B, 1, N], per group [G, N]. "
    "A convolution takes one per channel: [C] or [1, C, 1, 1].",
)
column = InputShape(
    "column",
    "M values, one per row of D: a column vector; [M], [M, 1] or [B, M, 1]. A convolution takes one per pixel: "
    "[N, 1, H, W].",
)
matrix = InputShape("matrix", "One value per element of D, of its shape; of convolutions in its order of memory.")

SHAPES = {shape.name: shape for shape in (scalar, row, column, matrix)}
