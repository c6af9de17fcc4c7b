"""cleave.quantize, found scales and given ones, transposes and ragged groups."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

import cleave
from tests.gpu.products import scale_shape, spread

from .bound import Expected, Sums, expected
from .bounds import Groups, draw_groups
from .dense import draw_sizes
from .operand import float64, matrix, packed
from .problem import FLOAT8, FLOATS, Call, Problem, Target

LARGEST = {"int8": 127.0, "float8_e4m3fn": 448.0, "float8_e5m2": 57344.0}
# A division by smooth, one for the scale, its inverse, and the product with that.
_ROUNDINGS = 6 * 2.0**-24


@dataclass
class Quantize(Problem):
    """granularity: as cleave has it. smooth, transpose, static: whether. groups: those of offs."""

    operation: ClassVar[str] = "quantize"
    rows: int = 1
    columns: int = 1
    source: str = "float32"
    dtype: str = "int8"
    granularity: str = "row"
    symmetric: bool = True
    smooth: bool = False
    static: bool = False
    transpose: bool = False
    groups: Groups | None = None
    out_given: bool = True
    scale_major: str = "k"
    gap: int = 0
    align: int = 16

    @property
    def kind(self) -> str:
        return self.granularity.removeprefix("block_")

    def call(self) -> Call:
        kind, limit = ("normal", 1.0) if self.contents == "normal" else ("wide", 6)
        seed = self.seed * 16
        shape = (self.rows, self.columns)
        form = {"align": self.align, "gap": self.gap}
        given: dict[str, Any] = {
            "x": matrix("x", shape, self.source, contents=(kind, limit, seed), **form),
            "dtype": self.dtype,
            "granularity": self.granularity,
        }
        of_scale = scale_shape(self.kind, *shape)
        if self.smooth:
            given["smooth"] = packed("smooth", (self.columns,), "float32", contents=("powers", 2, seed + 1))
        if self.static:
            given["scale"] = packed("scale", of_scale, "float32", contents=("powers", 3, seed + 2))
            if not self.symmetric:
                zero = ("integers", 50, seed + 3)
                given["zero"] = packed("zero", (of_scale[0], 1), "int32", contents=zero)
        elif self.scale_major != "k" and not (self.out_given and not self.transpose):
            given["scale_major"] = self.scale_major
        if self.out_given:
            given["out"] = matrix("out", shape, self.dtype, is_output=True, **form)
            if not self.static:
                given["scale_out"] = matrix(
                    "scale_out", of_scale, "float32", column_major=self.scale_major == "mn",
                    gap=self.gap, is_output=True,
                )  # fmt: skip
        if not self.symmetric:
            given["symmetric"] = False
        if self.transpose:
            given["transpose"] = True
        if self.groups:
            given |= self.groups.keywords(False)
        return Call("quantize", given)

    def plan(self, arrays: dict[str, torch.Tensor]) -> Any:
        return cleave.plan_quantize(**self.call().fill(arrays))

    def expected(self, arrays: dict[str, torch.Tensor]) -> dict[str, Expected]:
        x = float64(arrays["x"])
        if self.smooth:
            x = x / arrays["smooth"].double()
        given = {name: arrays[name].double() for name in ("scale", "zero") if name in arrays}
        q, scale, zero = quantized(x, self.dtype, self.kind, self.symmetric, **given)
        results = [q] if self.static else [q, scale]
        if self.static:
            results = [q, None]
        if not self.symmetric:
            results.append(None if self.static else zero)
        if self.groups:
            results += self.by_groups(x)
        elif self.transpose:
            results += quantized(x.mT, self.dtype, self.kind, True)[:2]
        made = {str(i): result for i, result in enumerate(results) if result is not None}
        if self.out_given:
            made["out"] = made.pop("0")
            if not self.static:
                made["scale_out"] = made.pop("1")
        return made

    def by_groups(self, x: torch.Tensor) -> list[Expected]:
        """q_t, scale_t and ends: each group's transpose alone, from a multiple of 128 on."""
        ranges, rows = self.groups.ranges, self.rows
        width = (rows + 127 * min(len(ranges), rows)) // 128 * 128
        q = x.new_zeros(self.columns, width)
        scale = x.new_zeros(self.columns, width // 128)
        of_q, of_scale = torch.zeros_like(q), torch.zeros_like(scale)
        ends, at = [], 0
        for begin, end in ranges:
            size = end - begin
            if size:
                own, factor, _ = quantized(x[begin:end].mT, self.dtype, self.kind, True)
                blocks = slice(at // 128, at // 128 + factor.value.shape[1])
                q[:, at : at + size], of_q[:, at : at + size] = own.value, own.tolerance
                scale[:, blocks], of_scale[:, blocks] = factor.value, factor.tolerance
            ends.append(at + size)
            at += -(-size // 128) * 128
        where = torch.tensor(ends, dtype=torch.float64, device=x.device)
        return [Expected(q, of_q), Expected(scale, of_scale), Expected(where)]

    def smaller(self) -> list[dict[str, Any]]:
        tried: list[dict[str, Any]] = []
        if self.groups:
            tried.append({"groups": None})
            for groups in self.groups.smaller():
                tried.append({"groups": groups, "rows": groups.extent})
        plain = {"transpose": False, "smooth": False, "gap": 0, "align": 16, "scale_major": "k",
                 "contents": "normal", "out_given": False}  # fmt: skip
        for name, value in plain.items():
            if getattr(self, name) != value and not (name == "transpose" and self.groups):
                tried.append({name: value})
        for name in ("rows", "columns"):
            value = getattr(self, name)
            if not (name == "rows" and self.groups):
                tried += [{name: x} for x in (1, 8, value // 2, value - 1) if 0 < x < value]
        return tried


def quantized(
    x: torch.Tensor,
    dtype: str,
    kind: str,
    symmetric: bool,
    scale: torch.Tensor | None = None,
    zero: torch.Tensor | None = None,
) -> tuple[Expected, Expected, Expected | None]:
    """q, its scales and zero points, of float64."""
    rows, columns = x.shape
    found = scale is None
    if found:
        low, high = reach(x, kind)
        if symmetric:
            scale = torch.maximum(-low, high) / LARGEST[dtype]
        else:
            scale = (high.clamp_min(0) - low.clamp_max(0)) / 255
            zero = torch.where(scale > 0, -128 - low.clamp_max(0) / scale, 0.0).clamp(-128, 127)
    # Below the normal numbers of float32, scales and what is divided by them lose digits.
    kind_of = getattr(torch, dtype)
    each = spread(scale, rows, columns)
    value = torch.where(each > 0, x / each, 0.0)
    slack = _ROUNDINGS * value.abs()
    of_zero = None
    if zero is not None:
        value = value + spread(zero, rows, columns)
        slack = slack + (0.501 if found else 0.0) + _ROUNDINGS * 256
        of_zero = Expected(zero, torch.full_like(zero, 0.501))
    q = expected(Sums(value, slack, value.abs()), kind_of)
    return q, Expected(scale, _ROUNDINGS * scale + 2.0**-149), of_zero


def reach(x: torch.Tensor, kind: str) -> tuple[torch.Tensor, torch.Tensor]:
    """The least and the greatest of what shares a scale."""
    rows, columns = x.shape
    shape = scale_shape(kind, rows, columns)
    if x.numel() == 0:
        return x.new_zeros(shape), x.new_zeros(shape)
    height = {"tensor": rows, "row": 1, "1x128": 1, "128x128": 128}[kind]
    width = columns if kind in ("tensor", "row") else 128
    pads = (0, -columns % width, 0, -rows % height)

    def blocks(fill: float) -> torch.Tensor:
        padded = torch.nn.functional.pad(x, pads, value=fill)
        return padded.reshape(shape[0], height, shape[1], width)

    infinite = float("inf")
    return blocks(infinite).amin((1, 3)), blocks(-infinite).amax((1, 3))


def draw_quantize(config: random.Random, rng: random.Random, target: Target) -> Quantize:
    granularity = config.choice(("tensor", "row", "block_1x128", "block_128x128"))
    blocks = granularity.startswith("block")
    dtype = config.choice(("int8", *FLOAT8))
    sizes = draw_sizes(config, rng, target)
    given: dict[str, Any] = {
        "rows": sizes["m"],
        "columns": sizes["k"],
        "source": config.choice(FLOATS),
        "dtype": dtype,
        "granularity": granularity,
        "symmetric": dtype != "int8" or blocks or config.random() < 0.6,
        "smooth": config.random() < 0.3,
        "static": config.random() < 0.2,
        "transpose": blocks and config.random() < 0.4,
        "out_given": config.random() < 0.8,
        "scale_major": config.choice(("k", "mn")),
        "gap": rng.choice((0, 0, 1, 3)),
        "align": config.choice((16, 16, 4, 1)),
    }
    if given["transpose"]:
        given["static"] = False
    problem = Quantize(
        seed=rng.getrandbits(32),
        contents=rng.choice(("normal", "wide")),
        device=target.device,
        **given,
    )
    if granularity == "block_1x128" and problem.transpose and config.random() < 0.5:
        groups = draw_groups(config, rng, 200, False, 2000)
        groups = replace(groups, kind="ends", spacing=1)
        problem = replace(problem, groups=groups, rows=groups.extent)
    return problem
