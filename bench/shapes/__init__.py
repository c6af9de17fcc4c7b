"""Shapes that are honest: layers of public models, and sizes that a sampler draws, in three parts.

The part of a shape follows from its job and its weights [N, K] alone, never from M, the number of tokens: the
same weights do not stand on two sides. Constants and tables may be fitted to *fit*; what is tried is decided on
*validation*; claims are made of *test*, of which nothing enters a table, a fit or a decision.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Literal

Part = Literal["fit", "validation", "test"]
Layer = tuple[int, int]  # N, K

PARTS: tuple[Part, ...] = ("fit", "validation", "test")
TENSOR_PARALLEL = (1, 2, 4, 8)
_MODELS = Path(__file__).with_name("models.json")


def part_of(job: str, n: int, k: int) -> Part:
    return part_of_text(f"{job} {n} {k}")


def part_of_text(text: str) -> Part:
    """60 % of all weights are for fitting, 15 % for validation, 25 % for the test."""
    draw = hashlib.sha256(text.encode()).digest()[0] / 256
    return "fit" if draw < 0.60 else "validation" if draw < 0.75 else "test"


@cache
def models() -> dict[str, dict]:
    """Public models' sizes; models.json says what the numbers are."""
    return {name: model for name, model in json.loads(_MODELS.read_text()).items() if name != "_"}


@cache
def layers() -> tuple[Layer, ...]:
    """[N, K] of the linear layers of all models, each once, on 1 to 8 GPUs of tensor parallelism."""
    found = {layer for model in models().values() for layer in _layers_of(model)}
    return tuple(sorted(found))


def _layers_of(model: dict) -> Iterator[Layer]:
    yield from (tuple(layer) for layer in model.get("layers", ()))
    for gpus in TENSOR_PARALLEL:
        if "dense" in model:
            yield from _dense(*model["dense"], gpus)
        if "mla" in model:
            yield from _latent(*model["mla"], gpus)
    if "block" in model:
        hidden, intermediate = model["block"]
        yield from ((3 * hidden, hidden), (hidden, hidden), (intermediate, hidden), (hidden, intermediate))


def _split(n: int, gpus: int) -> int:
    """What one GPU has of a dimension; vocabularies are padded."""
    return math.ceil(n / gpus)


def _dense(hidden, intermediate, heads, key_heads, size, vocabulary, gpus) -> Iterator[Layer]:
    if heads % gpus == 0:
        query, key = heads // gpus * size, max(key_heads // gpus, 1) * size
        yield query + 2 * key, hidden
        yield hidden, query
    if intermediate and intermediate % gpus == 0:
        yield 2 * intermediate // gpus, hidden
        yield hidden, intermediate // gpus
    yield _split(vocabulary, gpus), hidden


def _latent(hidden, intermediate, heads, q_rank, kv_rank, nope, rope, value, vocabulary, gpus) -> Iterator[Layer]:
    own = heads // gpus
    yield kv_rank + rope + q_rank, hidden
    yield own * (nope + rope), q_rank or hidden
    yield own * (nope + value), kv_rank
    yield hidden, own * value
    yield 2 * intermediate // gpus, hidden
    yield hidden, intermediate // gpus
    yield _split(vocabulary, gpus), hidden


def tokens(draw: random.Random) -> int:
    """1 to 16384, log-uniform; half of them as servers round them, half as they come, odd ones too."""
    m = round(2 ** draw.uniform(0, 14))
    if draw.random() < 0.5:
        step = 2 ** max(m.bit_length() - 3, 0)
        m = max(round(m / step) * step, 1)
    return m


def sampled_layer(draw: random.Random, multiples: Layer) -> Layer:
    """N and K of 64 to 32768, log-uniform, as multiples of what the job needs or of more."""

    def size(multiple: int) -> int:
        step = math.lcm(multiple, draw.choice((1, 8, 64, 128)))
        return max(round(2 ** draw.uniform(6, 15) / step), 1) * step

    return size(multiples[0]), size(multiples[1])


def dense(job: str, part: Part, count: int, multiples: Layer, seed: int = 0) -> list[tuple[int, int, int]]:
    """`count` products M x N x K of a job, of N and K that are `multiples`.

    Three of four are models' layers, the rest is sampled.
    """
    draw = random.Random(f"{job} {part} {seed}")
    own = [layer for layer in layers() if part_of(job, *layer) == part and _aligned(layer, multiples)]
    shapes: list[tuple[int, int, int]] = []
    while len(shapes) < count:
        layer = draw.choice(own) if draw.random() < 0.75 else sampled_layer(draw, multiples)
        shape = (tokens(draw), *layer)
        if part_of(job, *layer) == part and shape not in shapes and _fits(shape):
            shapes.append(shape)
    return shapes


def large_k(job: str, part: Part, count: int, seed: int = 0) -> list[tuple[int, int, int]]:
    """K at least 16 times as large as M and N."""
    draw = random.Random(f"{job} {part} {seed} large K")
    shapes: list[tuple[int, int, int]] = []
    while len(shapes) < count:
        m, n = (max(round(2 ** draw.uniform(4, 10) / 8), 1) * 8 for _ in range(2))
        k = max(round(2 ** draw.uniform(12, 17) / 64), 1) * 64
        shape = (m, n, k)
        if k >= 16 * max(m, n) and part_of(job, n, k) == part and shape not in shapes:
            shapes.append(shape)
    return shapes


# GPUs that a model's experts are spread over, and the most weights of a layer that are measured.
EXPERT_PARALLEL = (1, 2, 4, 8, 16, 32, 64)
MOST_WEIGHTS = 1.2e9


# How many of the layers are drawn: models' experts have few distinct N and K.
DRAWN_EXPERTS = {"fit": 0.75, "validation": 0.25, "test": 0.25}


def experts(job: str, part: Part, count: int, seed: int = 0) -> list[tuple[int, int, int, int]]:
    """`count` layers of mixtures of experts: how many one GPU has, its tokens of all of them together, N and K."""
    draw = random.Random(f"{job} {part} {seed} experts")
    own = [layer for layer in expert_layers() if part_of(job, *layer[1:]) == part]
    found: list[tuple[int, int, int, int]] = []
    while len(found) < count:
        drawn = draw.random() < DRAWN_EXPERTS[part]
        groups, n, k = sampled_experts(draw) if drawn else draw.choice(own)
        shape = (groups, round(2 ** draw.uniform(4, 16)), n, k)
        if part_of(job, n, k) == part and shape not in found and _fits(shape[1:]):
            found.append(shape)
    return found


def sampled_experts(draw: random.Random) -> tuple[int, int, int]:
    """1 to 128 groups, N and K of 256 to 16384, log-uniform, in multiples of 128 (a third of them) or more."""
    while True:
        groups = 2 ** draw.randint(0, 7)
        step = draw.choice((128, 256, 512))
        n, k = (max(round(2 ** draw.uniform(8, 14) / step), 1) * step for _ in range(2))
        if groups * n * k <= MOST_WEIGHTS:
            return groups, n, k


@cache
def expert_layers() -> tuple[tuple[int, int, int], ...]:
    """Groups, N and K of the experts of all models, each once, on 1 to 64 GPUs."""
    found = set()
    for hidden, intermediate, total, _ in (model["experts"] for model in models().values() if "experts" in model):
        for groups in (total // gpus for gpus in EXPERT_PARALLEL if total % gpus == 0):
            found |= {(groups, 2 * intermediate, hidden), (groups, hidden, intermediate)}
    return tuple(sorted(layer for layer in found if math.prod(layer) <= MOST_WEIGHTS))


def _aligned(layer: Layer, multiples: Layer) -> bool:
    return all(size % multiple == 0 for size, multiple in zip(layer, multiples, strict=True))


def _fits(shape: tuple[int, int, int]) -> bool:
    """At most 4e12 multiplications: 10 ms."""
    return math.prod(shape) < 4e12
