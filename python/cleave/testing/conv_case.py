"""One convolution, or one of its gradients, to plan, run or time: sizes and options, no data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from .case import GemmCase, IsProduct
from .conv_axis import Axis
from .dtypes import DTYPES

# What is multiplied and what is made of that; of gradients, "output" is the outputs' gradient.
_KINDS = {
    "fprop": ("input", "weight", "output"),
    "dgrad": ("output", "weight", "input"),
    "wgrad": ("output", "input", "weight"),
}
KINDS = tuple(_KINDS)
# The images have one scale, the filters one or each its own.
SCALINGS = ("none", "tensor", "row")

# One axis', or each one's.
Extent = int | Sequence[int]
Padding = int | Sequence[int | Sequence[int]]


@dataclass(frozen=True)
class ConvCase(IsProduct):
    """Images [images, channels, *size] and filters [filters, channels / groups, *filter_size].

    size: [width], [height, width] or [depth, height, width]. filter_size, stride, padding and
    dilation: one number for every axis, or one for each; a padding may be (before, after). kind:
    "fprop" computes the outputs, "dgrad" the images' gradient, "wgrad" the filters'. scaling:
    one of SCALINGS, of "fprop". division, kernel: as in `cleave.conv2d`. The others are those of GemmCase.
    """

    images: int
    size: Sequence[int]
    channels: int
    filters: int
    filter_size: Extent
    stride: Extent = 1
    padding: Padding = 0
    dilation: Extent = 1
    groups: int = 1
    kind: str = "fprop"
    dtype: str = "float16"
    precision: str = "tf32"
    out_dtype: str | None = None
    activation: str = "none"
    bias: str = "none"
    scaling: str = "none"
    use_fast_accum: bool = False
    division: str = "auto"
    kernel: str = "auto"
    split_k_mode: str = "auto"
    split_k_slices: int | None = None

    def __post_init__(self) -> None:
        """Spells out one value per axis. ValueError if there are more or fewer than axes."""
        own = {"size": tuple(self.size)}
        for name in ("filter_size", "stride", "dilation"):
            own[name] = self._of_each_axis(name)
        own["padding"] = tuple(
            (value, value) if isinstance(value, int) else tuple(value) for value in self._of_each_axis("padding")
        )
        for name, value in own.items():
            object.__setattr__(self, name, value)

    def _of_each_axis(self, name: str) -> tuple[Any, ...]:
        value = getattr(self, name)
        values = (value,) * len(self.size) if isinstance(value, int) else tuple(value)
        if len(values) != len(self.size):
            raise ValueError(
                f"{name} has {len(values)} values, but the images have {len(self.size)} axes: "
                "give one of each axis, or one for all"
            )
        return values

    @cached_property
    def axes(self) -> tuple[Axis, ...]:
        return tuple(
            Axis(size, filter_size, stride, before, after, dilation)
            for size, filter_size, stride, (before, after), dilation in zip(
                self.size, self.filter_size, self.stride, self.padding, self.dilation, strict=True
            )
        )

    @property
    def outputs(self) -> tuple[int, ...]:
        """Along each axis."""
        return tuple(axis.outputs for axis in self.axes)

    @property
    def taps(self) -> int:
        return math.prod(self.filter_size)

    @property
    def read(self) -> tuple[str, str]:
        """Which of `shapes` are multiplied: a and b."""
        return _KINDS[self.kind][:2]

    @property
    def made(self) -> str:
        """Which of `shapes` is computed from those."""
        return _KINDS[self.kind][2]

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """torch's; in memory the channels come last."""
        return {
            "input": (self.images, self.channels, *self.size),
            "weight": (self.filters, self.channels // self.groups, *self.filter_size),
            "output": (self.images, self.filters, *self.outputs),
        }

    @cached_property
    def product(self) -> GemmCase:
        """The product that it is, of one group."""
        pixels = self.images * math.prod(self.size)
        outputs = self.images * math.prod(self.outputs)
        channels, filters = self.channels // self.groups, self.filters // self.groups
        m, n, k = {
            "fprop": (outputs, filters, self.taps * channels),
            "dgrad": (pixels, channels, self.taps * filters),
            "wgrad": (filters, self.taps * channels, outputs),
        }[self.kind]
        return GemmCase.of(self, m, n, k)

    @property
    def result_shape(self) -> tuple[int, int, int]:
        """That of the one matrix that D is in memory: of pixels, or, for the weights' gradient, of filters."""
        product = self.product
        if self.kind == "wgrad":
            return 1, product.m * self.groups, product.n
        return 1, product.m, product.n * self.groups

    @property
    def flops(self) -> int:
        """Those with what is padded counted, as is usual."""
        outputs = self.images * math.prod(self.outputs)
        return 2 * outputs * self.filters * self.taps * (self.channels // self.groups)

    @property
    def bytes(self) -> int:
        """Each input read once, as far as taps meet it; the output written once."""
        pixels = math.prod(axis.touched_pixels for axis in self.axes)
        outputs = math.prod(axis.touched_outputs for axis in self.axes)
        met = {
            "input": self.images * self.channels * pixels,
            "weight": math.prod(self.shapes["weight"]),
            "output": self.images * self.filters * outputs,
        }
        return (
            sum(met[name] for name in self.read) * DTYPES[self.dtype].bytes
            + (self.shapes[self.made][1] if self.bias == "row" else 0) * DTYPES[self.bias_dtype].bytes
            + math.prod(self.shapes[self.made]) * DTYPES[self.result_dtype].bytes
            + {"none": 0, "tensor": 2, "row": 1 + self.filters}[self.scaling] * DTYPES["float32"].bytes
        )

    def plan(self, device: str, epilogue: Any = None) -> Any:
        """As GemmCase has it."""
        import cleave

        return cleave.plan_conv_problem(**asdict(self), epilogue=epilogue, device=device)

    @property
    def title(self) -> str:
        """For people: sizes and whatever is not plain. The split is no part of it."""
        parts = [self.kind, _by(self.images, *self.size, self.channels), _by(self.filters, *self.filter_size)]
        paddings = [before if before == after else (before, after) for before, after in self.padding]
        for name, values, plain in (("stride", self.stride, 1), ("pad", paddings, 0), ("dilation", self.dilation, 1)):
            if any(value != plain for value in values):
                parts.append(f"{name} {_each(values)}")
        if self.groups != 1:
            parts.append(f"in {self.groups} groups")
        parts.append(self.dtype)
        if self.precision != "tf32":
            parts.append(self.precision)
        if self.scaling != "none":
            parts.append(f"scales {self.scaling}")
        if self.result_dtype != self.product.default_result_dtype:
            parts.append(f"to {self.result_dtype}")
        if self.bias != "none":
            parts.append("bias")
        if self.activation != "none":
            parts.append(self.activation)
        if self.use_fast_accum:
            parts.append("fast")
        if self.division != "auto":
            parts.append(f"division {self.division}")
        if self.kernel != "auto":
            parts.append(f"kernel {self.kernel}")
        return " ".join(parts)


def _each(values: Sequence[Any]) -> str:
    """One for all axes where they are equal; a pair as 0-1."""
    texts = ["-".join(map(str, v)) if isinstance(v, tuple) else str(v) for v in values]
    return texts[0] if len(set(texts)) == 1 else "x".join(texts)


def _by(*extents: int) -> str:
    return "x".join(map(str, extents))
