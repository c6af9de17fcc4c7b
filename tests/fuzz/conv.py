"""cleave.conv1d, 2d and 3d, their gradients, and transposed convolutions."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch

import cleave
from cleave.testing.conv_axis import Axis
from tests.support.conv_reference import Convolution, outputs_met, pixels_met

from .bound import Expected, product
from .epilogue import (
    Product,
    draw_contents,
    draw_epilogue,
    draw_form,
    draw_scalars,
    draw_split,
    least,
    settle_c,
    settle_split,
)
from .operand import MARGIN, Operand, float64, packed
from .problem import FLOATS, Call, Target

MADE = {"fprop": "output", "dgrad": "input", "wgrad": "weight", "transpose": "input"}
PARTS = ("input", "weight", "output")


@dataclass
class Conv(Product):
    """kind: "fprop", "dgrad", "wgrad" or "transpose", which is dgrad under another name.

    gaps: after the channels of a pixel, or between filters.
    """

    operation: ClassVar[str] = "conv"
    kind: str = "fprop"
    geometry: Convolution = field(default_factory=lambda: Convolution(1, 1, 1, (Axis(1),)))
    division: str = "auto"

    @property
    def direction(self) -> str:
        """The kernel's."""
        return "dgrad" if self.kind == "transpose" else self.kind

    @property
    def made(self) -> str:
        return MADE[self.kind]

    @property
    def k(self) -> int:
        g = self.geometry
        taps = math.prod(axis.filter_size for axis in g.axes)
        if self.direction == "wgrad":
            return g.images * math.prod(axis.outputs for axis in g.axes)
        return taps * (g.channels if self.direction == "fprop" else g.filters) // g.groups

    def array(self, name: str, part: str, dtype: str, **given: Any) -> Operand:
        """An array of the form of `part`: channels last."""
        shape = self.geometry.shapes[part]
        kind = getattr(torch, dtype)
        order = (0, *range(2, len(shape)), 1)
        step = max(1, self.align // kind.itemsize)
        # Filters have only their distance free, images that of pixels.
        free = 0 if part == "weight" else len(order) - 2
        packed_size = math.prod(max(1, shape[d]) for d in order[free + 1 :])
        gap = self.gaps.get(name, 0) * step + -packed_size % step
        gaps = tuple(gap if i == free else 0 for i in range(len(order) - 1))
        return Operand(name, shape, kind, order, gaps, MARGIN + self.shift, **given)

    @property
    def numbers(self) -> dict[str, Any]:
        """stride and the like, as the call has them."""
        given = self.geometry.geometry
        if self.kind != "transpose":
            return given
        axes = self.geometry.axes
        rest = [
            axis.size - ((axis.outputs - 1) * axis.stride + axis.span - axis.before - axis.after)
            for axis in map(_Spanned, axes)
        ]
        return given | {"output_padding": tuple(rest)}

    def call(self) -> Call:
        given: dict[str, Any] = {}
        shapes = self.geometry.shapes
        # What a transposed convolution calls input is the other's output.
        words = {name: name for name in PARTS} | {"output": "grad_output"}
        if self.kind == "transpose":
            words["output"] = "input"
        for i, part in enumerate(PARTS):
            if part != self.made:
                contents = self.of_values(i, self.k)
                given[words[part]] = self.array(words[part], part, self.dtype, contents=contents)
            elif self.kind in ("dgrad", "wgrad"):
                given[f"{part}_size"] = shapes[part]
        if self.out_given:
            contents = self.of_addend(4) if self.c == "D" else None
            given["out"] = self.array("out", self.made, self.out_dtype, contents=contents, is_output=True)
        else:
            given["out_dtype"] = self.out_dtype
        if self.c == "D":
            given["c"] = given["out"]
        elif self.c:
            contents = self.of_addend(4) if self.beta != 0 else None
            given["c"] = self.array("c", self.made, self.c, contents=contents)
        if self.bias:
            shape = (shapes[self.made][1],)
            given["bias"] = packed("bias", shape, self.bias_dtype, contents=self.of_addend(5))
        given |= self.numbers | self.scalars() | self.split()
        if self.kind == "dgrad":
            given["division"] = self.division
        return Call(self.function, given)

    @property
    def function(self) -> str:
        rank = len(self.geometry.axes)
        if self.kind == "transpose":
            return f"conv_transpose{rank}d"
        return f"conv{rank}d" + ("" if self.kind == "fprop" else f"_{self.kind}")

    def plan(self, arrays: dict[str, torch.Tensor]) -> Any:
        keywords = self.call().fill(arrays)
        parts = self.parts(keywords)
        a, b = {
            "fprop": ("input", "weight"),
            "dgrad": ("output", "weight"),
            "wgrad": ("output", "input"),
        }[self.direction]
        names = ("out", "out_dtype", "c", "bias", "activation", "split_k_mode", "split_k_slices",
                 "kernel", "precision")  # fmt: skip
        given = {name: keywords[name] for name in names if name in keywords}
        given["division"] = self.division
        if self.direction != "fprop":
            given["size"] = self.geometry.shapes[self.made]
        function = getattr(cleave, f"plan_conv{len(self.geometry.axes)}d")
        return function(self.direction, parts[a], parts[b], **self.geometry.geometry, **given)

    def parts(self, arrays: dict[str, Any]) -> dict[str, Any]:
        """By the names of PARTS."""
        if self.kind == "transpose":
            return {"weight": arrays["weight"], "output": arrays["input"]}
        return {
            part: arrays[name]
            for part, name in (("input", "input"), ("weight", "weight"), ("output", "grad_output"))
            if name in arrays
        }

    # --- what it should give ---

    def expected(self, arrays: dict[str, torch.Tensor]) -> dict[str, Expected]:
        parts = {name: float64(x) for name, x in self.parts(arrays).items()}
        a, b = operands(self.geometry, self.direction, parts)
        rule = self.accumulator(self.k)
        sums = product(a, b, None if self.is_exact(self.k) else rule.relative)
        c = arrays.get("out" if self.c == "D" else "c")
        c = None if c is None else matrices(self.geometry, self.direction, float64(c))
        bias = arrays.get("bias")
        if bias is not None:
            bias = bias.reshape(self.geometry.groups, 1, -1)
        of = self.output(self.finish(sums, c, bias))
        shape = self.geometry.shapes[self.made]
        back = [
            None if x is None else unmatrices(self.geometry, self.direction, x, shape) for x in (of.value, of.tolerance)
        ]
        return {"out" if self.out_given else "0": Expected(*back)}

    def smaller(self) -> list[dict[str, Any]]:
        g = self.geometry
        tried: list[Convolution] = []
        if len(g.axes) > 1:
            tried += [replace(g, axes=g.axes[:i] + g.axes[i + 1 :]) for i in range(len(g.axes))]
        if g.groups > 1:
            own = {"channels": g.channels // g.groups, "filters": g.filters // g.groups}
            tried.append(replace(g, groups=1, **own))
        tried += [replace(g, images=x) for x in (1, g.images // 2) if 0 < x < g.images]
        for name in ("channels", "filters"):
            value = getattr(g, name)
            for less in (1, 8, value // 2, value - 1):
                less = less // g.groups * g.groups
                if 0 < less < value:
                    tried.append(replace(g, **{name: less}))
        for i, axis in enumerate(g.axes):
            for less in _smaller_axes(axis):
                if less.outputs > 0:
                    tried.append(replace(g, axes=(*g.axes[:i], less, *g.axes[i + 1 :])))
        fields = [{"geometry": x, "slices": self._slices(x)} for x in tried]
        return fields + self.simpler() + [{"division": "auto"}]

    def _slices(self, geometry: Convolution) -> int | None:
        return least(self.slices, replace(self, geometry=geometry).k)


class _Spanned:
    """An axis with how many pixels its filter spans."""

    def __init__(self, axis: Axis):
        self._axis = axis
        self.span = axis.dilation * (axis.filter_size - 1) + 1

    def __getattr__(self, name: str) -> Any:
        return getattr(self._axis, name)


def _smaller_axes(axis: Axis) -> list[Axis]:
    made = [replace(axis, **{name: x}) for name, x in (("stride", 1), ("dilation", 1),
            ("before", 0), ("after", 0), ("filter_size", 1))]  # fmt: skip
    for name in ("size", "filter_size", "stride", "before", "after", "dilation"):
        value = getattr(axis, name)
        made += [replace(axis, **{name: x}) for x in (value // 2, value - 1) if x >= 1]
    return [x for x in made if x != axis]


def operands(g: Convolution, direction: str, parts: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """[groups, m, k] and [groups, k, n], in float64, as Convolution.operands of NumPy arrays."""
    if direction == "dgrad":
        met = [outputs_met(axis) for axis in g.axes]
        weight = _filters(g, parts["weight"])  # [groups, filters, taps, channels]
        return (
            _rows(g, _unfold(parts["output"], met)),
            weight.transpose(1, 2).reshape(g.groups, -1, weight.shape[-1]),
        )
    met = [pixels_met(axis) for axis in g.axes]
    rows = _rows(g, _unfold(parts["input"], met))
    if direction == "fprop":
        return rows, _filters(g, parts["weight"]).flatten(2).mT
    return matrices(g, "fprop", parts["output"]).mT, rows


def matrices(g: Convolution, direction: str, made: torch.Tensor) -> torch.Tensor:
    """[groups, m, n], of what the direction makes."""
    if direction == "wgrad":
        return _filters(g, made).flatten(2)
    images, channels, *axes = made.shape
    return _rows(g, made.movedim(1, -1).reshape(images, math.prod(axes), 1, channels))


def unmatrices(g: Convolution, direction: str, made: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """The inverse."""
    first, channels, *axes = shape
    if direction == "wgrad":
        return made.reshape(first, *axes, channels).movedim(-1, 1)
    return made.movedim(0, 1).reshape(first, *axes, channels).movedim(-1, 1)


def _filters(g: Convolution, weight: torch.Tensor) -> torch.Tensor:
    """[groups, filters, taps, channels]."""
    filters, channels = g.filters // g.groups, weight.shape[1]
    return weight.movedim(1, -1).reshape(g.groups, filters, -1, channels)


def _rows(g: Convolution, unfolded: torch.Tensor) -> torch.Tensor:
    """[groups, rows, taps x channels] of [images, pixels, taps, channels of all groups]."""
    images, pixels, taps, channels = unfolded.shape
    parts = unfolded.reshape(images * pixels, taps, g.groups, channels // g.groups)
    return parts.movedim(2, 0).flatten(2)


def _unfold(x: torch.Tensor, met: list[Any]) -> torch.Tensor:
    """[images, pixels, taps, channels] of an image, zero where nothing is met."""
    rank = len(met)
    at: list[Any] = []
    inside: Any = True
    for d, index in enumerate(met):
        index = torch.from_numpy(index).to(x.device)  # [pixels, taps] of one axis
        shape = [1] * (2 * rank)
        shape[d], shape[rank + d] = index.shape
        at.append(index.reshape(shape))
        inside = (at[-1] >= 0) & inside
    pixels, taps = inside.shape[:rank], inside.shape[rank:]
    if x.numel() == 0:
        last = x.movedim(1, -1)
        return last.new_zeros(x.shape[0], math.prod(pixels), math.prod(taps), x.shape[1])
    taken = x.movedim(1, -1)[(slice(None), *(i.clamp_min(0) for i in at))]
    taken = torch.where(inside[..., None], taken, 0.0)
    return taken.reshape(x.shape[0], math.prod(pixels), math.prod(taps), x.shape[1])


# --- drawing ---


def _axis(rng: random.Random, kind: str, most: int, taps: int, stride: int, dilation: int) -> Axis:
    span = dilation * (taps - 1) + 1
    before, after = rng.choice(((0, 0), (taps // 2, taps // 2), (rng.randint(0, span), 0)))
    if kind != "transpose" and rng.random() < 0.1:
        after = rng.randint(0, span + 1)
    axis = Axis(rng.randint(1, most), taps, stride, before, after, dilation)
    missing = max(0, span - axis.size - before - after)
    axis = replace(axis, before=before + missing)
    return axis


def draw_conv(config: random.Random, rng: random.Random, target: Target) -> Conv:
    kind = config.choice(("fprop", "dgrad", "wgrad", "transpose"))
    rank = config.choice((1, 2, 2, 2, 3))
    most = {1: 60, 2: 24, 3: 8} if not target.small else {1: 12, 2: 7, 3: 4}
    strides = [config.choice((1, 1, 2, 3)) for _ in range(rank)]
    if config.random() < 0.5:
        strides = [1] * rank
    taps = [config.choice((1, 3, 3, rng_free)) for rng_free in (2, 4, 5)[:rank]]
    dilations = [config.choice((1, 1, 1, 2, 3)) for _ in range(rank)]
    axes = tuple(_axis(rng, kind, most[rank], t, s, d) for t, s, d in zip(taps, strides, dilations, strict=True))
    groups = config.choice((1, 1, 1, 2, 3, 8))
    wide = 128 if not target.small else 12
    aligned = config.random() < 0.6
    channels, filters = (
        (8 * rng.randint(1, max(1, wide // 8)) if aligned else rng.randint(1, wide // 2)) for _ in range(2)
    )
    if groups > 1:
        channels, filters = (max(1, x // groups) for x in (channels, filters))
        if config.random() < 0.3:
            channels = filters = 1
    geometry = Convolution(
        rng.randint(0, 4) if rng.random() < 0.1 else rng.randint(1, 4),
        channels * groups, filters * groups, axes, groups,
    )  # fmt: skip
    dtype = config.choice((*FLOATS, "float16", "bfloat16", *(("int8",) if kind == "fprop" else ())))
    given: dict[str, Any] = draw_epilogue(config) | draw_split(config, target)
    given |= {
        "kind": kind,
        "geometry": geometry,
        "dtype": dtype,
        "out_dtype": config.choice((*FLOATS, "int32") if dtype == "int8" else (dtype, dtype, *FLOATS)),
        "out_given": config.random() < 0.9,
        "bias": "row" if kind != "wgrad" and config.random() < 0.4 else None,
        "bias_dtype": config.choice(FLOATS),
        "division": config.choice(("auto", "auto", "fast", "plain", "fast_load", "fast_store")),
    }
    given |= draw_form(config, rng, ("input", "weight", "grad_output", "c", "out"))
    if kind == "wgrad":
        given["activation"] = "none"
    if given["out_dtype"] == "int32":
        given |= {"bias": None, "activation": "none"}
    given |= settle_c(given)
    given |= draw_scalars(rng, bool(given["c"]), given["out_dtype"] == "int32")
    given |= {"seed": rng.getrandbits(32), "contents": draw_contents(rng, given, 0)}
    problem = Conv(**given, device=target.device)
    settled = settle_split(given, problem.k, False, target.device)
    if settled["kernel"] == "sm90" and (groups > 1 or channels % 8 or filters % 8):
        settled["kernel"] = "auto"
    strided = problem.direction == "dgrad" and any(axis.stride > 1 for axis in axes)
    if strided and groups > 1 and target.device != "cpu" and settled["mode"] == "stream_k":
        settled["mode"] = "parallel"
    return replace(problem, **settled)
