"""Convolutions of published networks, in the same three parts as the layers of `shapes`.

The part of a layer follows from the layer alone, neither from the direction nor from the number of images.
"""

from __future__ import annotations

import json
import math
import random
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from cleave.testing.conv_case import ConvCase

from . import Part, part_of_text

_NETWORKS = Path(__file__).with_name("networks.json")
MOST_IMAGES = 256
# What a layer takes with its images: at most 1.5 ms of an H200, and tensors that leave room for several sets.
MOST_FLOPS = 1e12
MOST_ELEMENTS = 1 << 29


class Layer(NamedTuple):
    """Sizes of the image, where a depth of 0 stands for an image of two axes, and of the layer."""

    depth: int
    height: int
    width: int
    channels: int
    filters: int
    filter_size: int
    stride: int
    groups: int

    def case(self, images: int, **options: Any) -> ConvCase:
        size = (self.height, self.width) if self.depth == 0 else (self.depth, self.height, self.width)
        patches = self.filter_size == self.stride
        padding = 0 if patches else (self.filter_size - 1) // 2
        layer = (self.channels, self.filters, self.filter_size, self.stride, padding)
        return ConvCase(images, size, *layer, groups=self.groups, **options)


@cache
def networks() -> dict[str, tuple[Layer, ...]]:
    """Layers of each network; networks.json says what the numbers are."""
    found = json.loads(_NETWORKS.read_text())
    return {name: tuple(map(_layer, layers)) for name, layers in found.items() if name != "_"}


def _layer(numbers: list[Any]) -> Layer:
    size, *rest = numbers
    return Layer(*(size if isinstance(size, list) else (0, size, size)), *rest)


@cache
def layers() -> tuple[Layer, ...]:
    """Those of all networks, each once."""
    return tuple(sorted({layer for network in networks().values() for layer in network}))


def part_of(layer: Layer) -> Part:
    return part_of_text(f"conv {' '.join(map(str, layer))}")


# How many of the layers that kernels are fitted on are drawn: networks have few sizes, and like multiples of 32.
DRAWN = 0.5


def convolutions(part: Part, count: int, draw_of: str) -> list[tuple[int, ...]]:
    """`count` layers of a part, each with a number of images: every layer once before one comes again."""
    draw = random.Random(f"{draw_of} {part}")
    own = [layer for layer in layers() if part_of(layer) == part]
    found: list[tuple[int, ...]] = []
    while len(found) < count:
        for known in draw.sample(own, len(own)):
            layer = sampled(draw) if part == "fit" and draw.random() < DRAWN else known
            shape = (round(2 ** draw.uniform(0, math.log2(_most_images(layer)))), *layer)
            if part_of(layer) == part and shape not in found and len(found) < count:
                found.append(shape)
    return found


def sampled(draw: random.Random) -> Layer:
    """A layer of 8 to 2048 channels, log-uniform, of images of 7 to 112 lines: half of such have one tap. One in seven
    has a third axis, and one in seven groups."""

    def log_uniform(least: int, most: int) -> int:
        return round(2 ** draw.uniform(math.log2(least), math.log2(most)))

    def channels(most: int = 2048) -> int:
        step = draw.choice((8, 16, 32, 64))
        return max(round(log_uniform(8, most) / step), 1) * step

    kind = draw.choice(("plain",) * 5 + ("volume", "groups"))
    stride = draw.choice((1, 1, 1, 2))
    if kind == "volume":
        depth, height = log_uniform(3, 32), log_uniform(7, 64)
        return Layer(depth, height, height, channels(512), channels(512), draw.choice((1, 3, 3)), stride, 1)
    height = log_uniform(7, 112)
    if kind == "groups":
        groups, width = draw.choice((2, 4, 8, 16, 32)), draw.choice((4, 8, 16, 24, 32, 48, 64, 96))
        return Layer(0, height, height, groups * width, groups * width, draw.choice((1, 3, 3, 5)), stride, groups)
    filter_size = draw.choice((1, 1, 1, 1, 3, 3, 3, 5))
    return Layer(0, height, height, channels(), channels(), filter_size, stride, 1)


def _most_images(layer: Layer) -> int:
    one = layer.case(1)
    elements = max(math.prod(one.shapes[name]) for name in ("input", "output"))
    return max(1, min(MOST_IMAGES, int(MOST_FLOPS / one.flops), MOST_ELEMENTS // elements))
