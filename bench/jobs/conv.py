"""Jobs of convolutions, as jobs has those of dense products: layers of published networks, in three parts."""

from __future__ import annotations

from dataclasses import dataclass

from cleave.testing import conv
from cleave.testing.conv_case import ConvCase

from .. import shapes
from ..shapes import networks

Shape = tuple[int, ...]  # images, then the layer as networks.Layer has it


@dataclass(frozen=True)
class ConvJob:
    name: str
    kind: str
    dtype: str = "float16"

    testing = conv
    peers = ("cudnn",)

    def case(self, shape: Shape) -> ConvCase:
        images, *layer = shape
        return networks.Layer(*layer).case(images, kind=self.kind, dtype=self.dtype)

    def shapes(self, part: shapes.Part, count: int, seed: int = 0) -> list[Shape]:
        return networks.convolutions(part, count, f"{self.name} {seed}")

    @staticmethod
    def weights(shape: Shape) -> Shape:
        return shape[1:]


CONV_JOBS = {job.name: job for job in (ConvJob(f"conv {kind}", kind) for kind in ("fprop", "dgrad", "wgrad"))}
