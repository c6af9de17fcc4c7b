"""One spatial dimension of a convolution, and which pixels its taps meet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Axis:
    """Output o and tap t meet at pixel o * stride + t * dilation - before."""

    size: int
    filter_size: int = 1
    stride: int = 1
    before: int = 0
    after: int = 0
    dilation: int = 1

    @property
    def outputs(self) -> int:
        """None where the filter is larger than the padded image."""
        padded = self.before + self.size + self.after
        return max(0, (padded - self.dilation * (self.filter_size - 1) - 1) // self.stride + 1)

    def meetings(self) -> Iterator[tuple[int, range, range]]:
        """Each tap, the outputs that have it inside the image, and the pixels it lands on."""
        for tap in range(self.filter_size):
            offset = tap * self.dilation - self.before
            first = max(0, -(offset // self.stride))
            end = min(self.outputs, (self.size - 1 - offset) // self.stride + 1)
            outputs = range(first, max(first, end))
            start = first * self.stride + offset
            pixels = range(start, start + len(outputs) * self.stride, self.stride)
            yield tap, outputs, pixels

    @property
    def touched_outputs(self) -> int:
        """How many have a tap inside the image."""
        return len({output for _, outputs, _ in self.meetings() for output in outputs})

    @property
    def touched_pixels(self) -> int:
        """How many a tap lands on."""
        return len({pixel for _, _, pixels in self.meetings() for pixel in pixels})
