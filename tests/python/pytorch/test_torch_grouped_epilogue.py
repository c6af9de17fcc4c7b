"""Gradients of groups beside an epilogue function, against torch's own in float64, group by group."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

torch = pytest.importorskip("torch", minversion="2.10")

from gradient_checks import check_gradients  # noqa: E402

import cleave.torch  # noqa: E402

K, OTHER, EXTENT = 8, 6, 13
RANGES = [(0, 3), (3, 3), (3, 10)]  # the second is empty; the last three belong to none
CUTS = ("rows", "columns", "k", "masked", "batch")


@cleave.epilogue
def curved(acc, row: cleave.row, column: cleave.column, matrix: cleave.matrix, scale: cleave.scalar):
    """More gradients than a function has outputs."""
    pre = acc * scale + row
    return cleave.outputs(d=cleave.tanh(pre) * column + matrix * pre, pre=pre)


@cleave.epilogue
def linear(acc, row: cleave.row, column: cleave.column, matrix: cleave.matrix, scale: cleave.scalar):
    return acc * 2.0 + row * column - matrix * scale


def exact(function: Any, acc: Any, row: Any, column: Any, matrix: Any, scale: Any) -> tuple[Any, ...]:
    if function is linear:
        return (acc * 2 + row * column - matrix * scale,)
    pre = acc * scale + row
    return torch.tanh(pre) * column + matrix * pre, pre


class Case:
    """Operands of groups that are cut so, and inputs that vary by group where they may."""

    def __init__(self, cut: str, by_group: bool) -> None:
        torch.manual_seed(CUTS.index(cut))
        self.cut, self.groups = cut, len(RANGES)
        g = self.groups
        shapes = {
            "rows": ((EXTENT, K), (g, K, OTHER)),
            "columns": ((g, OTHER, K), (K, EXTENT)),
            "k": ((OTHER, EXTENT), (EXTENT, K)),
            "masked": ((g, 5, K), (g, K, OTHER)),
            "batch": ((g, 5, K), (g, K, OTHER)),
        }[cut]
        d = {"rows": (EXTENT, OTHER), "columns": (OTHER, EXTENT), "k": (g, OTHER, K)}.get(cut, (g, 5, OTHER))
        rows, columns = d[-2:]
        lead = (g,) if by_group else ()
        row = (columns,) if cut == "columns" else (*lead, columns)
        column = (rows,) if cut == "rows" else (*lead, rows)
        if len(d) == 3:  # [groups, rows, 1]; a column of masked groups has values for each
            row = (g, 1, columns) if by_group else (columns,)
            column = (g, rows, 1) if by_group or cut == "masked" else (rows, 1)
        scalar = ((g, 1, 1) if len(d) == 3 else (g,)) if by_group else ()
        self.d = d
        inputs = {"row": row, "column": column, "matrix": d, "scale": scalar}
        self.tensors = [torch.randn(shape, requires_grad=True) for shape in (*shapes, *inputs.values())]
        self.names = list(inputs)
        self.counts = torch.tensor([5, 0, 2], dtype=torch.int32)

    def run(self, function: Any, *tensors: Any) -> tuple[Any, ...]:
        a, b, *inputs = tensors
        call = function(**dict(zip(self.names, inputs, strict=True)))
        bounds: dict[str, Any] = {"offs": torch.tensor([end for _, end in RANGES], dtype=torch.int32)}
        if self.cut in ("masked", "batch"):
            bounds = {"counts": self.counts} if self.cut == "masked" else {}
        made = cleave.torch.grouped_gemm(a, b, epilogue=call, **bounds)
        return made if isinstance(made, tuple) else (made,)

    def exact(self, function: Any, *tensors: Any) -> tuple[Any, ...]:
        """What belongs to no group stays zero."""
        results = [torch.zeros(self.d, dtype=torch.float64) for _ in range(1 if function is linear else 2)]
        for g, (begin, end) in enumerate(RANGES):
            a, b, row, column, matrix, scale = tensors
            row = row if row.dim() == 1 else row[g].reshape(1, -1)
            column = column.reshape(-1, 1) if column.numel() == self.d[-2] else column[g].reshape(-1, 1)
            scale = scale if scale.dim() == 0 else scale.reshape(-1)[g]
            matrix = matrix[g] if matrix.dim() == 3 else matrix
            along = slice(begin, end)
            if self.cut == "rows":
                place: Any = (along,)
                acc, column, matrix = a[along] @ b[g], column[along], matrix[along]
            elif self.cut == "columns":
                place = (slice(None), along)
                acc, row, matrix = a[g] @ b[:, along], row[along], matrix[:, along]
            elif self.cut == "k":
                place, acc = (g,), a[:, along] @ b[along]
            else:
                count = int(self.counts[g]) if self.cut == "masked" else 5
                place, acc = (g, slice(0, count)), a[g, :count] @ b[g]
                column, matrix = column[:count], matrix[:count]
            for result, value in zip(results, exact(function, acc, row, column, matrix, scale), strict=True):
                result[place] = value
        return tuple(results)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("by_group", [False, True])
@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("function", [curved, linear], ids=lambda function: function.__name__)
def test_gradients(function: Any, cut: str, by_group: bool, compiled: bool) -> None:
    case = Case(cut, by_group)
    names = ("a", "b", *case.names)
    check_gradients(partial(case.run, function), partial(case.exact, function), case.tensors, names, compiled)


@cleave.epilogue
def with_norm(acc, factor: cleave.scalar):
    x = acc * factor
    return cleave.outputs(d=x, norm=cleave.sum_of_squares(x, over="columns"))


def test_bias_alpha_and_norms() -> None:
    a, b = torch.randn(EXTENT, K, requires_grad=True), torch.randn(3, K, OTHER, requires_grad=True)
    bias, factor = torch.randn(3, OTHER, requires_grad=True), torch.tensor(0.5, requires_grad=True)
    offs = torch.tensor([end for _, end in RANGES], dtype=torch.int32)
    tensors = a, b, bias, factor
    d, norm = cleave.torch.grouped_gemm(a, b, offs, bias=bias, epilogue=with_norm(factor=factor), alpha=2.0)
    acc = torch.cat([2 * a[begin:end] @ b[g] + bias[g] for g, (begin, end) in enumerate(RANGES)]) * factor
    weight, of_norm = torch.randn(10, OTHER), torch.randn(10)
    loss = (acc * weight).sum() + ((acc * acc).sum(1) * of_norm).sum()
    mine = (d[:10] * weight).sum() + (norm[:10] * of_norm).sum() + 7 * d[10:].sum()
    for got, want in zip(torch.autograd.grad(mine, tensors), torch.autograd.grad(loss, tensors), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-3)


def test_what_is_refused() -> None:
    a, b = torch.randn(EXTENT, K, requires_grad=True), torch.randn(3, K, OTHER)
    offs = torch.tensor([3, 3, 10], dtype=torch.int32)
    with pytest.raises(RuntimeError, match=r"c requires grad, but has no gradient here; pass c.detach\(\)"):
        c = torch.randn(EXTENT, OTHER, requires_grad=True)
        cleave.torch.grouped_gemm(a, b, offs, c=c, epilogue=with_norm(factor=1.0))

    @cleave.epilogue
    def long(acc, x: cleave.matrix, y: cleave.matrix, z: cleave.matrix, u: cleave.row, v: cleave.row, w: cleave.row):
        product = acc * x * y * z * u * v * w
        return cleave.outputs(d=product, p=product * acc, q=product * x)

    rows, matrices = torch.ones(OTHER), torch.ones(EXTENT, OTHER)
    inputs = dict.fromkeys("xyz", matrices) | dict.fromkeys("uvw", rows)
    made = cleave.torch.grouped_gemm(a, b, offs, epilogue=long(**inputs))
    with pytest.raises(RuntimeError, match="takes more inputs or values than a function may"):
        sum(x.sum() for x in made).backward()
