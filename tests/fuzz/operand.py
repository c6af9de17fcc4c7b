"""Arrays in memory that shows every stray access: strides, gaps and guards."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from .values import buffer_of, only, values

CANARY = 96.0  # exact in every dtype
MARGIN = 64  # guards before, at least, and by default after
_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True)
class Operand:
    """An array: its form, and what it holds.

    order: its dimensions, the last of which has neighbours in memory. gaps: elements left free
    after each step of a dimension but the last, in that order. is_output: the call writes it.
    contents: as `values` makes them; literal: these values; neither: poison.
    kept: a dimension, and ranges of it, outside of which there is poison all the same.
    """

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    order: tuple[int, ...]
    gaps: tuple[int, ...]
    offset: int = MARGIN
    contents: tuple[str, float, int] | None = None
    literal: tuple[Any, ...] | None = None
    kept: tuple[int, tuple[tuple[int, int], ...]] | None = None
    is_output: bool = False

    @property
    def strides(self) -> tuple[int, ...]:
        strides = [1] * len(self.shape)
        for i in reversed(range(len(self.order) - 1)):
            inner = self.order[i + 1]
            strides[self.order[i]] = max(self.shape[inner], 1) * strides[inner] + self.gaps[i]
        return tuple(strides)

    def length(self, tail: int = MARGIN) -> int:
        """Length of the buffer, in elements, with so many guards at its end, and some to make its
        bytes a multiple of 16: to a sanitizer, cp.async reads 16 bytes also where it is told to
        read fewer.
        """
        length = self.offset + tail
        if math.prod(self.shape) != 0:
            steps = zip(self.shape, self.strides, strict=True)
            length += sum((size - 1) * stride for size, stride in steps) + 1
        piece = 16 // self.dtype.itemsize
        return -(-length // piece) * piece

    def view(self, buffer: torch.Tensor) -> torch.Tensor:
        return buffer.as_strided(self.shape, self.strides, self.offset)

    @property
    def guard(self) -> float:
        """What would be noticed if it changed, beside an output, or if it were read."""
        if self.is_output:
            return CANARY
        return float("nan") if self.dtype.is_floating_point else 101

    def make(self, device: torch.device, tail: int = MARGIN) -> torch.Tensor:
        """The buffer."""
        contents = None
        if self.literal is not None:
            contents = torch.tensor(self.literal, dtype=self.dtype, device=device)
            contents = contents.reshape(self.shape)
        elif self.contents is not None:
            contents = values(self.shape, self.dtype, *self.contents, device)
            if self.kept is not None:
                contents = only(contents, *self.kept)
        return buffer_of(
            self.length(tail), self.offset, self.shape, self.strides, self.dtype, self.guard,
            contents, device,
        )  # fmt: skip

    def empty(self, device: torch.device) -> torch.Tensor:
        """What a plan needs to see."""
        return self.view(torch.empty(self.length(), dtype=self.dtype, device=device))


def bits(x: torch.Tensor) -> torch.Tensor:
    """The same memory as integers, which every device compares and copies, NaNs too."""
    return x.view(_BITS[x.dtype.itemsize])


def float64(x: torch.Tensor) -> torch.Tensor:
    return x.float().double() if x.dtype.itemsize == 1 else x.double()


def matrix(
    name: str,
    shape: tuple[int, ...],
    dtype: str,
    *,
    column_major: bool = False,
    align: int = 1,
    gap: int = 0,
    even: bool = False,
    **given: Any,
) -> Operand:
    """A matrix or a batch of them, each line `gap` elements apart from the next.

    align: of every line's address, in bytes. even: the lines of a whole batch are evenly spaced.
    """
    kind = getattr(torch, dtype)
    rank = len(shape)
    lead = tuple(range(rank - 2))
    order = (*lead, rank - 1, rank - 2) if column_major else tuple(range(rank))
    step = max(1, align // kind.itemsize)
    gap = gap * step + -(max(shape[order[-1]], 1) + gap * step) % step
    lines = max(shape[order[-1]], 1) + gap
    between = 0 if even else (-(lines * max(shape[order[-2]], 1)) % step)
    gaps = (between,) * (rank - 2) + (gap,) if rank > 1 else ()
    offset = MARGIN if step > 1 else MARGIN + given.pop("shift", 0)
    given.pop("shift", None)
    return Operand(name, shape, kind, order, gaps, offset, **given)


def packed(name: str, shape: tuple[int, ...], dtype: str, **given: Any) -> Operand:
    rank = len(shape)
    return Operand(name, shape, getattr(torch, dtype), tuple(range(rank)), (0,) * max(rank - 1, 0), **given)
