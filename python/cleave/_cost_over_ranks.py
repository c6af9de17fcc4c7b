"""What a call over ranks adds to its product, in microseconds: a model, fitted on two GPUs of one host
(`python -m bench.distributed.fit`, which says how far it is off). `explain` says its numbers.

It stands outside cleave.distributed because reports read it where there is no torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt
from typing import NamedTuple

GPUS = 2  # that it was fitted to
MEASURED = 1 << 18  # bytes of a whole, of which the least cases have about as many
WIRE = 3.7e5  # bytes a microsecond, one way, that copy engines move between two GPUs of one host


class Added(NamedTuple):
    """us + root * sqrt(bytes) + byte * bytes, of the bytes that a rank sends: kernels and meetings; what does not fill
    the wire; the wire and the memory."""

    us: float
    root: float
    byte: float

    def of(self, bytes: float) -> float:
        return self.us + self.root * sqrt(bytes) + self.byte * bytes


# By operation and transport, where nothing is moved while something else is made.
ADDED = {
    ("reduce_scatter", "peer"): Added(3.93, 0.00533, 1.31e-06),
    ("reduce_scatter", "nccl"): Added(5.62, 0.00736, 3.68e-06),
    ("all_reduce", "peer"): Added(3.29, 0, 3.64e-06),
    ("all_reduce", "nccl"): Added(7.95, 0.00568, 2.99e-06),
    ("all_gather", "peer"): Added(4.27, 0.00303, 2.34e-06),
    ("all_gather", "nccl"): Added(4.38, 0.0123, 2.77e-06),
}


Table = Mapping[tuple[str, str], Added]


def is_one_shot(partial_bytes: int, size: int, table: Table = ADDED) -> bool:
    """Whether every rank had better sum all of what every rank sends to all, than its rows alone, which are then sent
    around: one trip less, and (size - 1) partial results on the wire instead of 2 (size - 1) / size. By whatever
    transport, what the memory of peers would take says it."""
    one_trip = table["all_reduce", "peer"].of((size - 1) * partial_bytes)
    return one_trip <= _two_trips(partial_bytes, size, table)


def _two_trips(partial_bytes: int, size: int, table: Table) -> float:
    share = partial_bytes * (size - 1) / size
    return table["reduce_scatter", "peer"].of(share) + table["all_gather", "peer"].of(share)


def sent(operation: str, whole: int, size: int) -> float:
    """Bytes that a rank sends at least; whole: of a partial result, or of the gathered operand."""
    return whole * (size - 1) / size * (2 if operation == "all_reduce" else 1)


def nccl_wins(operation: str, whole: int, size: int, table: Table = ADDED) -> bool:
    """Whether NCCL takes less time than the memory of peers, where nothing is made meanwhile and that was measured;
    whole: as in `sent`."""
    peer, nccl = (added(operation, transport, whole, size, table) for transport in ("peer", "nccl"))
    return size == GPUS and whole >= MEASURED and nccl < peer


def added(operation: str, transport: str, whole: int, size: int, table: Table = ADDED) -> float:
    """Microseconds, where nothing is made meanwhile; whole: as in `sent`."""
    model = table[operation, transport]
    if operation != "all_reduce" or transport != "peer":
        return model.of(sent(operation, whole, size))
    return model.of((size - 1) * whole) if is_one_shot(whole, size, table) else _two_trips(whole, size, table)
