"""Every operation that takes an epilogue function, drawn with operands, and what its sums are in float64.

What each takes as inputs is drawn in the shapes that its users may write, next to the same values in D's shape.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
from conv_reference import Convolution
from epilogue_functions import ROUNDOFF, Bounded
from strategies_groups import BOUNDS, Groups, describe

import cleave
from cleave.testing.conv_axis import Axis

Array = np.ndarray


@dataclass
class Operation:
    """`inputs[shape]()`: an input, as it is passed and as an array that broadcasts with the sums. `run` takes
    `epilogue` and options. `placed`: results as the sums lie, float64. `exists`: where there are sums; D is 0
    elsewhere. `refused_on_gpu`: the split modes that only the CPU backend serves."""

    inputs: dict[str, Callable[[], tuple[Any, Array]]]
    run: Callable[..., Any]
    sums: Bounded
    placed: Callable[[Array], Array] = lambda x: x.astype(np.float64)
    exists: Array | bool = True
    ranges: Sequence[tuple[int, int]] = ()
    refused_on_gpu: tuple[str, ...] = ()


@dataclass
class Draw:
    """What is drawn from. `to_operand`, `to_array`: from NumPy's to what is multiplied, and to bounds of groups.
    `whole`: 8-bit floats are small whole numbers, whose sums tensor cores do not round."""

    random: Random
    rng: np.random.Generator
    sizes: tuple[int, ...] = (1, 7, 33, 130)
    channels: tuple[int, ...] = (1, 2, 5, 8)
    to_operand: Callable[[Array], Any] = lambda x: x
    to_array: Callable[[Array], Any] = lambda x: x
    whole: bool = False

    def operand(self, *shape: int, lines: int | None = None) -> Array:
        """`lines`: the dimension that M or N is, of whose lines each may have a scale."""
        return operand(self.rng, *shape)

    def tensor(self, *shape: int, lines: int | None = None) -> Array:
        """The same in channels-last order."""
        return channels_last(self.rng, shape)

    def multiply(self, function: Callable[..., Any], *operands: Any, **options: Any) -> Any:
        """`operands`: made here, or shapes."""
        return function(*(self.to_operand(x) if isinstance(x, Array) else x for x in operands), **options)

    def bounds(self, groups: Groups) -> dict[str, Any]:
        return {name: self.to_array(x) if isinstance(x, Array) else x for name, x in groups.keywords.items()}


def values(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(rng.choice([np.float16, np.float32]))


def operand(rng: np.random.Generator, *shape: int) -> Array:
    """float32 that float16 holds."""
    return rng.standard_normal(shape).astype(np.float16).astype(np.float32)


def bounded(a: Array, b: Array) -> tuple[Array, Array]:
    """a @ b, and what float32 may err."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    return a @ b, (a.shape[-1] + 4) * ROUNDOFF * (np.abs(a) @ np.abs(b))


def number_or(random: Random, x: Array) -> Any:
    return float(x.reshape(())) if x.size == 1 and random.random() < 0.5 else x


def products(draw: Draw) -> Operation:
    random, rng = draw.random, draw.rng
    batch = random.choice([None, None, 2])
    m, n, k = (random.choice(draw.sizes) for _ in range(3))
    lead = () if batch is None else (batch,)
    a, b = draw.operand(*lead, m, k, lines=-2), draw.operand(*lead, k, n, lines=-1)

    sizes = {"scalar": (1, 1), "row": (1, n), "column": (m, 1), "matrix": (m, n)}

    def input_of(shape: str) -> tuple[Any, Array]:
        x = values(rng, *(lead if random.random() < 0.5 else (1,) * len(lead)), *sizes[shape])
        if shape == "matrix" and random.random() < 0.3:
            x = x.swapaxes(-1, -2).copy().swapaxes(-1, -2)
        return number_or(random, x) if shape == "scalar" else x, x.astype(np.float64)

    return Operation(
        {shape: lambda shape=shape: input_of(shape) for shape in sizes},
        lambda **options: draw.multiply(cleave.gemm, a, b, **options),
        Bounded(*bounded(a, b)),
    )


def drawn_groups(random: Random, kinds: tuple[str, ...] = BOUNDS) -> Groups:
    sizes = [random.choice([0, 1, 3, 17, 130]) for _ in range(random.choice([1, 2, 5]))]
    kind, spacing = random.choice(kinds), random.choice([1, 8])
    if kind == "counts":
        spacing = -(-max(1, *sizes) // spacing) * spacing
    return describe(kind, sizes, random.choice([np.int32, np.int64]), random.choice([0, 0, 5]), spacing)


def grouped(draw: Draw, dimension: str) -> Operation:
    """Groups of rows of `a`, or of columns of `b`."""
    random, rng = draw.random, draw.rng
    cut = drawn_groups(random)
    count = cut.count
    other, k = (random.choice(draw.sizes) for _ in range(2))
    m, n = (cut.extent, other) if dimension == "m" else (other, cut.extent)
    own = draw.operand(count, *((k, n) if dimension == "m" else (m, k)), lines=-1 if dimension == "m" else -2)
    shared = draw.operand(*((m, k) if dimension == "m" else (k, n)), lines=-2 if dimension == "m" else -1)
    owner = np.full(cut.extent, -1)
    sums, error = np.zeros((m, n)), np.zeros((m, n))
    for g, (begin, end) in enumerate(cut.ranges):
        owner[begin:end] = g
        place = (slice(begin, end), slice(None)) if dimension == "m" else (slice(None), slice(begin, end))
        a, b = (shared[place], own[g]) if dimension == "m" else (own[g], shared[place])
        sums[place], error[place] = bounded(a, b)

    def by_group(x: Array) -> Array:
        """[groups, values], of each element of the grouped dimension."""
        spread = x.astype(np.float64)[owner]
        return spread if dimension == "m" else spread.T

    def vector(length: int, grouped_along: bool) -> tuple[Any, Array]:
        """`grouped_along`: the values lie along what is grouped; then there is one line."""
        is_row = length == n and (grouped_along == (dimension == "n"))
        if grouped_along or random.random() < 0.5:
            x = values(rng, length)
            shaped = x.reshape(1, -1) if is_row else x.reshape(-1, 1)
            return (x if random.random() < 0.5 else shaped), shaped.astype(np.float64)
        x = values(rng, count, length)
        full = x[:, None, :] if is_row else x[:, :, None]
        return (full if random.random() < 0.5 or count == 1 else x), by_group(x)

    def scalar() -> tuple[Any, Array]:
        if random.random() < 0.5:
            x = values(rng, 1)
            return number_or(random, x), x.astype(np.float64)
        x = values(rng, count)
        return (x if random.random() < 0.5 else x[:, None, None]), by_group(x[:, None])

    def matrix() -> tuple[Any, Array]:
        x = values(rng, m, n)
        return (np.asfortranarray(x) if random.random() < 0.3 else x), x.astype(np.float64)

    operands = (shared, own) if dimension == "m" else (own, shared)
    exists = (owner >= 0)[:, None] if dimension == "m" else (owner >= 0)[None, :]
    return Operation(
        {
            "scalar": scalar,
            "row": lambda: vector(n, dimension == "n"),
            "column": lambda: vector(m, dimension == "m"),
            "matrix": matrix,
        },
        lambda **options: draw.multiply(cleave.grouped_gemm, *operands, **draw.bounds(cut), **options),
        Bounded(sums, error),
        exists=exists,
        ranges=cut.ranges,
    )


def grouped_rows(draw: Draw) -> Operation:
    return grouped(draw, "m")


def grouped_columns(draw: Draw) -> Operation:
    return grouped(draw, "n")


def masked(draw: Draw) -> Operation:
    """Groups of the first rows of matrices."""
    random, rng = draw.random, draw.rng
    count, rows = random.choice([1, 2, 5]), random.choice([1, 9, 130])
    n, k = (random.choice(draw.sizes) for _ in range(2))
    counts = np.array([random.choice([0, 1, rows // 2, rows]) for _ in range(count)], np.int32)
    a, b = draw.operand(count, rows, k, lines=-2), draw.operand(count, k, n, lines=-1)
    shapes = {"scalar": (1, 1), "row": (1, n), "column": (rows, 1), "matrix": (rows, n)}

    def input_of(shape: str) -> tuple[Any, Array]:
        alike = shape in ("scalar", "row") and random.random() < 0.5
        x = values(rng, 1 if alike else count, *shapes[shape])
        passed = x.reshape(-1) if alike else x
        if not alike and shape in ("scalar", "row") and random.random() < 0.5:
            passed = x.reshape(count) if shape == "scalar" else x.reshape(count, n)
        return passed, x.astype(np.float64)

    return Operation(
        {shape: lambda shape=shape: input_of(shape) for shape in shapes},
        lambda **options: draw.multiply(cleave.grouped_gemm, a, b, counts=draw.to_array(counts), **options),
        Bounded(*bounded(a, b)),
        exists=np.arange(rows)[None, :, None] < counts[:, None, None],
    )


def weight_gradients(draw: Draw) -> Operation:
    """Groups of K."""
    random, rng = draw.random, draw.rng
    cut = drawn_groups(random)
    count = cut.count
    m, n = (random.choice(draw.sizes) for _ in range(2))
    dy, x = draw.operand(cut.extent, m), draw.operand(cut.extent, n)
    parts = [bounded(dy[begin:end].T, x[begin:end]) for begin, end in cut.ranges]
    sizes = {"scalar": (1, 1), "row": (1, n), "column": (m, 1), "matrix": (m, n)}

    def input_of(shape: str) -> tuple[Any, Array]:
        given = values(rng, count if random.random() < 0.5 else 1, *sizes[shape])
        return (number_or(random, given) if shape == "scalar" else given), given.astype(np.float64)

    return Operation(
        {shape: lambda shape=shape: input_of(shape) for shape in sizes},
        lambda **options: draw.multiply(cleave.grouped_gemm_wgrad, dy, x, **draw.bounds(cut), **options),
        Bounded(*(np.stack(part) for part in zip(*parts, strict=True))),
    )


def channels_last(rng: np.random.Generator, shape: tuple[int, ...], make: Callable[..., Array] = operand) -> Array:
    return np.moveaxis(make(rng, shape[0], *shape[2:], shape[1]), -1, 1)


def drawn_axis(random: Random) -> Axis:
    taps, dilation = random.choice([1, 2, 3, 4]), random.choice([1, 1, 2])
    before, after = random.choice([0, 1, 2]), random.choice([0, 1])
    span = dilation * (taps - 1) + 1
    return Axis(max(random.choice([1, 5, 9]), span), taps, random.choice([1, 2, 3]), before, after, dilation)


def convolution(draw: Draw, kind: str) -> Operation:
    random, rng = draw.random, draw.rng
    groups = random.choice([1, 1, 2, 3])
    channels, filters = (random.choice(draw.channels) * groups for _ in range(2))
    axes = tuple(drawn_axis(random) for _ in range(random.choice([1, 2, 2, 3])))
    conv = Convolution(random.choice([1, 3]), channels, filters, axes, groups)
    shapes, made = conv.shapes, {"fprop": "output", "dgrad": "input", "wgrad": "weight"}[kind]
    lines = {"weight": 0}  # a filter's
    tensors = {name: draw.tensor(*shape, lines=lines.get(name)) for name, shape in shapes.items() if name != made}
    d = shapes[made]
    # Where D's lines are, and where they differ.
    line, plane = (0, 1) if kind == "wgrad" else (1, 0)

    def placed(x: Array) -> Array:
        return conv.matrix(kind, np.broadcast_to(np.asarray(x, np.float64), d))

    def along_line() -> tuple[Any, Array]:
        x = values(rng, d[line])
        full = x.reshape([-1 if i == line else 1 for i in range(len(d))])
        return random.choice([x, full] + ([full[0]] if line == 1 else [])), placed(full)

    def over_plane() -> tuple[Any, Array]:
        x = channels_last(rng, tuple(1 if i == line else size for i, size in enumerate(d)), values)
        return x, placed(x)

    def matrix() -> tuple[Any, Array]:
        x = channels_last(rng, d, values)
        return x, placed(x)

    def scalar() -> tuple[Any, Array]:
        x = values(rng, *random.choice([(), (1,), (1,) * len(d)]))
        return number_or(random, x), x.astype(np.float64).reshape(())

    suffix = "" if kind == "fprop" else f"_{kind}"
    function = getattr(cleave, f"conv{len(axes)}d{suffix}")
    names = {"fprop": ("input", "weight"), "dgrad": (d, "weight", "output"), "wgrad": ("input", d, "output")}[kind]
    arguments = [tensors[name] if isinstance(name, str) else name for name in names]
    row, column = (over_plane, along_line) if plane == 1 else (along_line, over_plane)
    return Operation(
        {"scalar": scalar, "row": row, "column": column, "matrix": matrix},
        lambda **options: draw.multiply(function, *arguments, **conv.geometry, **options),
        Bounded(*bounded(*conv.operands(kind, **tensors))),
        placed,
        refused_on_gpu=("stream_k",) if kind == "dgrad" and groups > 1 and any(a.stride > 1 for a in axes) else (),
    )


def forward_convolutions(draw: Draw) -> Operation:
    return convolution(draw, "fprop")


def data_gradients(draw: Draw) -> Operation:
    return convolution(draw, "dgrad")


def filter_gradients(draw: Draw) -> Operation:
    return convolution(draw, "wgrad")


OPERATIONS = (
    products,
    grouped_rows,
    grouped_columns,
    masked,
    weight_gradients,
    forward_convolutions,
    data_gradients,
    filter_gradients,
)
