"""Gradients beside an epilogue function of groups, whose inputs may have values for each of them.

Where groups are, only the products know: they make every derivative, as an epilogue of the same product, and sums over
the rows of each group, as products with ones. What belongs to no group is zero in all of them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .epilogue import MOST_OUTPUTS, Gradients
from .grouped_autograd import Groups
from .sum_to import sum_to


class GroupedGradients(Gradients):
    """Where D has two dimensions, one is cut: that of its rows, or of its columns."""

    def __init__(self, groups: Groups, columns_are_cut: bool, count: int, *of_function: Any) -> None:
        super().__init__(*of_function)
        self._groups = groups
        self._columns_are_cut = columns_are_cut
        self._count = count

    def _elementwise(self, wanted: dict[str, str]) -> dict[str, Tensor]:
        names = list(wanted)
        made: dict[str, Tensor] = {}
        for first in range(0, len(names), MOST_OUTPUTS):
            part = self._again({name: wanted[name] for name in names[first : first + MOST_OUTPUTS]})
            if part is None:
                raise RuntimeError(
                    "the derivative of the epilogue function takes more inputs or values than a function may, which "
                    "products of groups cannot do without; use torch.no_grad(), or apply a part of the function to "
                    "what torch.ops.cleave.grouped_gemm returns"
                )
            made |= part
        return made

    def _summed(self, grad: Tensor, name: str) -> Tensor:
        x, shape = self._inputs[name], self._graph.inputs[name]
        if shape == "matrix":
            sums = sum_to(grad, x.shape, x.dtype)
        elif grad.dim() == 3:
            rows = grad.shape[1] if shape == "column" else 1
            columns = grad.shape[2] if shape == "row" else 1
            sums = sum_to(grad, (self._count if x.numel() > rows * columns else 1, rows, columns), x.dtype)
        else:
            lines = grad.mT if self._columns_are_cut else grad
            along = shape == ("row" if self._columns_are_cut else "column")
            sums = sum_to(lines, (len(lines), 1), x.dtype) if along else self._over_lines(lines, x, shape)
        return sums.to(x.dtype).reshape(x.shape)

    def _over_lines(self, lines: Tensor, x: Tensor, shape: str) -> Tensor:
        """What each group's lines, or all groups' together, come to."""
        sums = self._groups.multiply(lines.new_ones(1, len(lines)), lines, None, torch.float32).squeeze(1)
        if shape == "scalar":
            sums = sums.sum(1, keepdim=True)
        return sums if x.numel() > sums.shape[1] else sums.sum(0)
