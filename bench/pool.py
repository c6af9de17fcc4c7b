"""Operands at no cost: views of one large pool of random numbers.

Making new ones for each of thousands of shapes would take longer than measuring them.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from cleave.testing.case import GemmCase
from cleave.testing.measure import set_count
from cleave.testing.operands import Operands

from .peers import Peer, reason

POOL_BYTES = 6 << 30


class Pool:
    """Random numbers in memory, of which operands are views that follow each other and then begin anew."""

    def __init__(self, device: str = "cuda"):
        self._normal = torch.empty(POOL_BYTES, dtype=torch.uint8, device=device)
        self._out = torch.empty(POOL_BYTES // 2, dtype=torch.uint8, device=device)
        self._scales = torch.rand(1 << 26, device=device) + 0.5
        self._next = self._next_out = 0
        self._dtype: torch.dtype | None = None

    def operands(self, case: GemmCase) -> list[Operands]:
        """As many sets as leave L2 cold."""
        self._fill(getattr(torch, case.dtype))
        return [self._set(case) for _ in range(set_count(case.bytes))]

    @staticmethod
    def result_of(call: Callable[[], object], operands: Operands) -> torch.Tensor:
        """A copy of what `call` makes of poisoned memory."""
        torch.cuda.synchronize()
        operands.out.view(torch.uint8).fill_(0xFF)  # NaN
        torch.cuda.synchronize()
        returned = call()
        torch.cuda.synchronize()
        return (returned if isinstance(returned, torch.Tensor) else operands.out).to(torch.float32, copy=True)

    def theirs(self, peer: Peer, case: GemmCase, sets: Sequence[Operands]) -> list[Callable[[], object]] | None:
        """A peer's call for each set, of the case or, for scales of rows, of one that asks for less: one a matrix.

        None where it serves neither.
        """
        served = peer.serves(case)
        less = replace(case, scaling="tensor") if case.scaling == "row" else case
        if served not in (case, less):
            return None
        scales = [operands.scales if served == case else self._scales_of(served) for operands in sets]
        try:
            scaled = [replace(o, scales=s) for o, s in zip(sets, scales, strict=True)]
            return [next(iter(peer.calls(served, operands).values())) for operands in scaled]
        except (RuntimeError, ValueError, AssertionError) as error:
            print(f"{case.title}: without {peer.name}: {reason(error)}", file=sys.stderr)
            return None

    def _fill(self, dtype: torch.dtype) -> None:
        """Standard normal numbers; integers of the whole range's third."""
        if dtype == self._dtype:
            return
        self._dtype = dtype
        values = self._normal.view(dtype)
        for part in values.split(1 << 28):
            normal = torch.randn(part.numel(), device=part.device)
            part.copy_((normal * 40).round().clamp(-127, 127) if dtype == torch.int8 else normal)
        torch.cuda.synchronize()

    def _set(self, case: GemmCase) -> Operands:
        dtype, result = getattr(torch, case.dtype), getattr(torch, case.result_dtype)
        a = self._matrix(case.m, case.k, dtype, case.layout[0] == "t")
        b = self._matrix(case.k, case.n, dtype, case.layout[1] == "t")
        size = case.m * case.n * result.itemsize
        if size > self._out.numel():
            self._out = torch.empty(size, dtype=torch.uint8, device=self._out.device)
        out, self._next_out = _take(self._out, self._next_out, size)
        return Operands(a, b, None, out.view(result).view(case.m, case.n), self._scales_of(case))

    def _matrix(self, rows: int, columns: int, dtype: torch.dtype, row_major: bool) -> torch.Tensor:
        taken, self._next = _take(self._normal, self._next, rows * columns * dtype.itemsize)
        return taken.view(dtype).view(rows, columns) if row_major else taken.view(dtype).view(columns, rows).t()

    def _scales_of(self, case: GemmCase) -> dict[str, torch.Tensor]:
        if case.scaling == "none":
            return {}
        if case.scaling == "tensor":
            return {"scale_a": self._scales[0], "scale_b": self._scales[4]}  # cuBLASLt wants them at 16 bytes
        if case.scaling == "row":
            return {"scale_a": self._scales[: case.m].view(-1, 1), "scale_b": self._scales[: case.n].view(1, -1)}
        blocks = math.ceil(case.k / 128)
        columns = math.ceil(case.n / 128)
        return {
            "scale_a": self._scales[: case.m * blocks].view(blocks, case.m).t(),
            "scale_b": self._scales[: columns * blocks].view(columns, blocks).t(),
        }


def _take(pool: torch.Tensor, start: int, size: int) -> tuple[torch.Tensor, int]:
    """`size` bytes from `start` on, or from the pool's beginning, and where the next ones start."""
    if start + size > pool.numel():
        start = 0
    if size > pool.numel():
        raise ValueError(f"an operand of {size} bytes is larger than the pool of {pool.numel()}")
    return pool[start : start + size], -(-(start + size) // 256) * 256
