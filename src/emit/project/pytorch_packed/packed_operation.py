"""Packed weights of random codes, and what they stand for."""

from __future__ import annotations

import torch
from expected_operation import fixed
from torch import Tensor

BLOCK = 64  # rows and columns
GATES = 8  # neighbours, before as many ups
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def make_weight(lead: tuple[int, ...], rows: int, columns: int) -> tuple[list[Tensor], Tensor]:
    """The arguments, and the matrix [*lead, columns, rows] as which the weight is multiplied, in float64."""
    group = fixed.GROUP_SIZE or columns
    shape = (*lead, columns // group, rows)
    codes = torch.randint(0, 16, (*lead, rows, columns), device="cuda")
    scales = torch.rand(shape, device="cuda") * 0.1 + 0.05
    if fixed.WEIGHTS == "mxfp4":
        stored = torch.randint(122, 126, shape, device="cuda", dtype=torch.uint8)
        scales = torch.exp2(stored.double() - 127)
    else:
        stored = scales.to(fixed.SCALES_DTYPE)
        scales = stored.double()
    arguments = [packed(in_pairs(codes, -2)), in_pairs(stored, -1)]
    zeros: Tensor | float = 8.0
    if fixed.HAS_ZEROS:
        zeros = torch.randint(0, 16, shape, device="cuda", dtype=torch.uint8)
        arguments.append(in_pairs(zeros, -1))
        zeros = spread(zeros.double(), group)
    if fixed.WEIGHTS == "int4":
        values = codes - zeros
    else:
        values = torch.tensor([*E2M1, *(-x for x in E2M1)], device="cuda", dtype=torch.float64)[codes]
    elements = values * spread(scales, group)
    if fixed.A_DTYPE.itemsize > 1:
        elements = elements.to(fixed.B_DTYPE).double()
    if fixed.WEIGHTS == "nvfp4":
        global_scale = torch.rand(lead or (1,), device="cuda") + 0.5
        arguments.append(global_scale)
        elements = elements * (global_scale.double()[..., None, None] if lead else global_scale.double())
    return arguments, elements.mT


def in_pairs(x: Tensor, dim: int) -> Tensor:
    """What the weight has of its rows, gates first, as it stores them: some gates and their ups in turn."""
    if not fixed.GATED:
        return x
    return x.unflatten(dim, (2, -1, GATES)).transpose(dim - 2, dim - 1).flatten(dim - 2, dim).contiguous()


def spread(x: Tensor, group: int) -> Tensor:
    """What each group of a row has, for each code."""
    return x.mT.repeat_interleave(group, -1)


def packed(codes: Tensor) -> Tensor:
    """Blocks of 64 x 64, behind each other along the columns."""
    *lead, rows, columns = codes.shape
    down, along = -(-rows // BLOCK), -(-columns // BLOCK)
    whole = torch.zeros(*lead, down * BLOCK, along * BLOCK, device="cuda", dtype=torch.uint8)
    whole[..., :rows, :columns] = codes
    blocks = whole.view(*lead, down, BLOCK, along, BLOCK).transpose(-3, -2).flatten(-2)
    halves = torch.empty_like(blocks)
    halves[..., places()] = blocks
    return halves[..., 0::2] | halves[..., 1::2] << 4


def places() -> Tensor:
    """Which half of a byte each code of a block is, by rows."""
    row, column = (x.flatten() for x in torch.meshgrid(*2 * [torch.arange(BLOCK, device="cuda")], indexing="ij"))
    thread = row // 16 * 32 + row % 8 * 4 + column % 8 // 2
    half = row % 16 // 8 + column % 16 // 8 * 2 + column % 2 * 4
    return thread * 32 + column // 16 * 8 + half
