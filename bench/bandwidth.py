"""What this GPU's memory gives: floors in bytes are of what is measured here, not of a data sheet."""

from __future__ import annotations

from cleave.testing import measure
from cleave.testing.arrays import TorchArrays

# Far more than L2 holds.
BYTES = 2 << 30
ROUNDS = 5


def bytes_per_us(arrays: TorchArrays, size: int = BYTES) -> float:
    """The best of reading (a sum), of reading and writing (a copy), and of writing alone."""
    source, target = (arrays.full((size // 4,), 1.0, "float32") for _ in range(2))
    moved = {lambda _: source.sum(): size, lambda _: target.copy_(source): 2 * size, lambda _: target.zero_(): size}
    graphs = measure.rotating_graphs(arrays, list(moved), sets=1)
    times = measure.interleaved(graphs, ROUNDS)
    return max(count / us for count, us in zip(moved.values(), times, strict=True))
