"""Codes into packed blocks and back; where each code goes is said once, in kernels/cleave/memory/weight_layout.h."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from .. import _core
from .arrays import bits, contiguous, full, made, namespace, on_host
from .packed import BLOCK, GATE_ROWS, packed_shape


def pack_codes(codes: Any, padding: int) -> Any:
    """uint8 [N, K], of 0 to 15, as blocks; what the last ones have beyond the codes is `padding`."""
    if not on_host(codes):
        return pack_codes_anywhere(codes, padding)
    packed = full(codes, packed_shape(*codes.shape), 0)
    _core.pack_weight_codes(bits(contiguous(codes), "int8"), padding, bits(packed, "int8"))
    return packed


def unpack_codes(packed: Any, rows: int, columns: int) -> Any:
    if not on_host(packed):
        return unpack_codes_anywhere(packed, rows, columns)
    codes = full(packed, (rows, columns), 0)
    _core.unpack_weight_codes(bits(contiguous(packed), "int8"), bits(codes, "int8"))
    return codes


def pack_codes_anywhere(codes: Any, padding: int) -> Any:
    """The same by an array's own operations, on whatever device it is."""
    rows, columns = codes.shape
    high, wide, size = shape = packed_shape(rows, columns)
    padded = full(codes, (high * BLOCK, wide * BLOCK), padding)
    padded[:rows, :columns] = codes
    blocks = padded.reshape(high, BLOCK, wide, BLOCK).swapaxes(1, 2).reshape(-1, 2 * size)
    halves = blocks[:, made(codes, _order(), "int64")]
    return (halves[:, 0::2] | halves[:, 1::2] << 4).reshape(shape)


def unpack_codes_anywhere(packed: Any, rows: int, columns: int) -> Any:
    xp = namespace(packed, "packed")
    return codes_at(xp, packed, made(packed, places_in_block(), "int64"), rows, columns)


def codes_at(xp: Any, packed: Any, places: Any, rows: int, columns: int) -> Any:
    """The codes by `places_in_block`, an array beside them; torch.compile traces it."""
    high, wide, size = packed.shape
    halves = xp.stack((packed & 15, packed >> 4), -1).reshape(high, wide, 2 * size)
    blocks = halves[:, :, places].reshape(high, wide, BLOCK, BLOCK)
    return contiguous(blocks.swapaxes(1, 2).reshape(high * BLOCK, wide * BLOCK)[:rows, :columns])


def gate_rows(rows: int) -> list[int]:
    """Which row of a weight, gates first, is each row of it packed `gated`: weight_gate_row (weight_layout.h)."""
    half = range(rows // 2)
    return [
        row for first in half[::GATE_ROWS] for up in (0, len(half)) for row in range(first + up, first + up + GATE_ROWS)
    ]


def inverse(permutation: Sequence[int]) -> list[int]:
    return sorted(range(len(permutation)), key=permutation.__getitem__)


@lru_cache(maxsize=1)
def _order() -> list[int]:
    return _core.weight_block_order()


def places_in_block() -> list[int]:
    """Where each code of a block, by rows, is among the halves of the block's bytes."""
    return inverse(_order())
