"""Operands for the sizes that the operation was planned for and others, and their product."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from expected_operation import Case, fixed, values
from finish_operation import SUMS, finish
from torch import Tensor

if fixed.WEIGHTS != "none":
    from packed_operation import BLOCK, make_weight

OTHER = {"m": (4096, 256, 384, 4), "n": (256, 4096, 384, 4), "k": (256, 384, 4096, 4)}
SIZES = [  # m, n, k, batch or groups
    (fixed.M, fixed.N, fixed.K, fixed.BATCH),
    OTHER.get(fixed.GROUPING, (384, 256, 1024, 3)),
]
INNER = -1  # the dimension of a that b has, too
# A packed weight with scales of whole rows tells it in blocks.
INNER_STEP = BLOCK if fixed.WEIGHTS != "none" and not fixed.GROUP_SIZE else 1
GRADIENT_ROUNDING = 0.0  # by PyTorch's products, beyond that of what is stored
GROUPED = fixed.GROUPING != "none"
MASKED = fixed.GROUPING == "m" and fixed.BOUNDS == "counts"


def matrix(*shape: int, dtype: torch.dtype, order: str) -> Tensor:
    if order == "column":
        return values(*shape[:-2], shape[-1], shape[-2], dtype=dtype).mT
    return values(*shape, dtype=dtype)


def scales(*shape: int, order: str = "row") -> Tensor:
    scale = torch.rand(shape, device="cuda") + 0.5
    return scale.mT.contiguous().mT if order == "column" else scale


def spread(scale: Tensor, rows: int, columns: int, shape: torch.Size) -> Tensor:
    """A scale for each element of a matrix, from one for each block of rows x columns."""
    scale = scale.repeat_interleave(rows, -2).repeat_interleave(columns, -1)
    return scale[..., : shape[-2], : shape[-1]].double()


def block_scales(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    def blocks(size: int, block: int) -> int:
        return -(-size // block)

    (m, k), n = a.shape[-2:], b.shape[-1]
    rows_a, rows_b = fixed.SCALE_ROWS
    order_a = "row" if fixed.SCALE_MAJOR[0] == "k" else "column"
    order_b = "column" if fixed.SCALE_MAJOR[1] == "k" else "row"
    return (
        scales(*a.shape[:-2], blocks(m, rows_a), blocks(k, 128), order=order_a),
        scales(*b.shape[:-2], blocks(k, 128), blocks(n, rows_b), order=order_b),
    )


def like_result(*shape: int, dtype: torch.dtype) -> Tensor:
    return matrix(*shape, dtype=dtype, order=fixed.D_ORDER)


def shapes_of_inputs(result: torch.Size, batch: int) -> dict[str, tuple[int, ...]]:
    """Those of the epilogue function's inputs, some of them one for each of a batch."""
    lead = (batch,) if len(result) == 3 else ()
    rows, columns = result[-2:]
    return {"scalar": (), "row": (*lead, 1, columns), "column": (rows, 1), "matrix": tuple(result)}


def groups_of(total: int, groups: int) -> tuple[list[slice], list[Tensor]]:
    """Groups of several sizes: where they are, and the tensors that say so."""
    each = total // groups // fixed.SPACING * fixed.SPACING
    if fixed.BOUNDS == "counts":
        each = total // groups if MASKED else fixed.SPACING
    ends = [each * (g + 1) - min(each, 5) * (g % 2) for g in range(groups)]
    begins = [0, *ends[:-1]]
    if fixed.BOUNDS in ("starts", "aligned_ends", "counts"):
        begins = [each * g for g in range(groups)]
    sizes = [end - begin for begin, end in zip(begins, ends, strict=True)]
    bounds = {"indptr": [[0, *ends]], "starts": [begins, sizes], "counts": [sizes]}
    tensors = [
        torch.tensor(numbers, device="cuda", dtype=fixed.INDEX_DTYPE) for numbers in bounds.get(fixed.BOUNDS, [ends])
    ]
    return [slice(*ends) for ends in zip(begins, ends, strict=True)], tensors


def multiply(a: Tensor, b: Tensor, batch: int) -> tuple[Tensor, Tensor, list[Tensor], list[slice]]:
    """A @ B, of groups where they are; which rows and columns those are; the groups' bounds, and where that is."""
    if not GROUPED:
        x = a @ b
        return x, torch.ones_like(x, dtype=torch.bool), [], []
    (m, k), n = a.shape[-2:], b.shape[-1]
    ranges, bounds = groups_of({"m": m, "n": n, "k": k}[fixed.GROUPING], batch)
    if fixed.GROUPING == "k":
        x = torch.stack([a[:, part] @ b[part] for part in ranges])
        return x, torch.ones_like(x, dtype=torch.bool), bounds, ranges
    x = torch.zeros(m, n, device="cuda", dtype=torch.float64)
    where = torch.zeros_like(x, dtype=torch.bool)
    for g, part in enumerate(ranges):
        there = (part, slice(None)) if fixed.GROUPING == "m" else (slice(None), part)
        x[there] = a[part] @ b[g] if fixed.GROUPING == "m" else a[g] @ b[:, part]
        where[there] = True
    return x, where, bounds, ranges


def reduce(x: Tensor, shape: str, join: Callable[..., Tensor], ranges: list[slice]) -> Tensor:
    """To a row, a column or a scalar, or to one for each of the groups that are in these ranges."""
    if shape == "matrix":
        return x
    dims = {"row": [-2], "column": [-1], "scalar": [-2, -1]}[shape]
    cut = {"m": -2, "n": -1}.get(fixed.GROUPING)
    if cut in dims:
        x = torch.stack([join(x[part] if cut == -2 else x[:, part], dims) for part in ranges])
        return x if MASKED else x.flatten(1) if shape != "scalar" else x.flatten()
    x = join(x, dims)
    if MASKED:  # a column
        return x.view(len(ranges), -1, 1)
    return x if x.dim() > 2 else x.flatten() if shape != "scalar" else x.squeeze()


def make(m: int, n: int, k: int, batch: int, requires_grad: bool = False) -> Case:
    columns = 2 * n if fixed.GATED else n
    lead_a = (batch,) if not GROUPED or fixed.GROUPING == "n" else ()
    lead_b = (batch,) if not GROUPED or fixed.GROUPING == "m" else ()
    a = matrix(*lead_a, m, k, dtype=fixed.A_DTYPE, order=fixed.A_ORDER)
    if fixed.WEIGHTS == "none":
        b = matrix(*lead_b, k, columns, dtype=fixed.B_DTYPE, order=fixed.B_ORDER)
        arguments = [a, b]
    else:
        arguments, b = make_weight(lead_b, columns, k)
        arguments = [a, *arguments]
    if SUMS is not None and a.itemsize > 1:
        a.mul_(SUMS * k**-0.5)
    for operand in arguments:
        operand.requires_grad_(requires_grad)
    real_a, real_b, factor = a.double(), b.double(), 1
    if fixed.SCALING == "vector":
        batched = [(batch,) if GROUPED and own else () for own in fixed.SCALES_BATCHED]
        scale_a, scale_b = scales(*batched[0], m, 1), scales(*batched[1], 1, columns)
        if fixed.WEIGHTS != "none":
            scale_b = torch.ones_like(scale_b)  # the weight's own scales are among its arguments
        arguments += [scale_a, scale_b] if fixed.WEIGHTS == "none" else [scale_a]
        if fixed.GROUPING == "k":
            factor = scale_a * scale_b
        else:
            real_a, real_b = real_a * scale_a, real_b * scale_b
    if fixed.SCALING == "block":
        scale_a, scale_b = block_scales(a, b)
        arguments += [scale_a, scale_b]
        real_a = real_a * spread(scale_a, fixed.SCALE_ROWS[0], 128, a.shape)
        real_b = real_b * spread(scale_b, 128, fixed.SCALE_ROWS[1], b.shape)
    x, where, bounds, ranges = multiply(real_a, real_b, batch)
    if requires_grad and SUMS is not None:  # backward makes them again, rounded to the operands' type
        x = x + (x.to(a.dtype) - x).detach()
    x = x * factor
    arguments += bounds
    if fixed.HAS_ZERO:
        azp_adj, azp = values(n, dtype=torch.int32), values(m, dtype=torch.int32)
        zeros = azp[:, None].double() * azp_adj
        x = x - (zeros * scale_a * scale_b if fixed.SCALING == "vector" else zeros)
    if fixed.BIAS != "none":
        shape = (columns,) if fixed.BIAS == "row" else (m, 1)
        bias = values(*shape, dtype=fixed.BIAS_DTYPE).requires_grad_(requires_grad)
        arguments.append(bias)
        x = x + bias
    if fixed.HAS_C:
        c = matrix(*x.shape, dtype=fixed.C_DTYPE, order=fixed.D_ORDER)
        c.requires_grad_(requires_grad)
        arguments.append(c.view(batch, -1, n) if MASKED else c)
        x = x + c
    where = where[..., :n]
    in_ranges = partial(reduce, ranges=ranges)
    finished = finish(x, shapes=shapes_of_inputs(where.shape, batch), new=like_result, reduce=in_ranges)
    d = finished.results[0]
    amax = d[where].abs().max() if fixed.HAS_AMAX else None
    if fixed.HAS_SCALE_D:
        scale_d = d[where].abs().max().float() / 100
        arguments.append(scale_d)
        finished.results[0] = d / scale_d
        finished.slack[0] = finished.slack[0] / scale_d
    if fixed.HAS_ZERO:
        arguments += [azp_adj, azp]
    arguments += finished.inputs
    if MASKED:
        arguments[0] = a.view(batch, -1, k)
        results, slack = (
            [x.reshape(batch, -1, n) if x.dim() == 2 else x for x in xs] for xs in (finished.results, finished.slack)
        )
        inputs = [
            x.view(batch, -1, x.shape[-1]) if isinstance(x, Tensor) and x.shape[:-1] == (m,) else x
            for x in finished.inputs
        ]
        arguments[len(arguments) - len(inputs) :] = inputs
        finished = replace(finished, results=results, slack=slack, inputs=inputs)
    wheres = [in_ranges(where, shape, partial(torch.any, keepdim=True)) for shape in finished.shapes]
    if MASKED:
        wheres = [x.view(batch, -1, n) if x.dim() == 2 else x for x in wheres]
    return Case(arguments, finished, wheres, amax)
