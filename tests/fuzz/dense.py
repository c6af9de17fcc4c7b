"""cleave.gemm and cleave.scaled_gemm."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

import cleave
from cleave._epilogue.activations import GATED
from tests.gpu.products import scale_shape, spread

from .bound import Expected, Sums, product
from .epilogue import (
    Product,
    draw_contents,
    draw_epilogue,
    draw_form,
    draw_gates,
    draw_scalars,
    draw_split,
    least,
    settle_c,
    settle_split,
)
from .found_scales import QUANTIZED, draw_found_scales
from .operand import Operand, float64, matrix, packed
from .problem import FLOAT8, FLOATS, Call, Target, plan_call, size


@dataclass
class Gemm(Product):
    """batches: of a and of b: None for a matrix. orders: of a, b and D: "r" or "c" (column-major).

    c_shared: one C for the batch.
    """

    operation: ClassVar[str] = "gemm"
    m: int = 1
    n: int = 1
    k: int = 1
    batches: tuple[int | None, int | None] = (None, None)
    orders: str = "rrr"
    c_shared: bool = False

    @property
    def columns(self) -> int:
        return self.n * (2 if self.activation in GATED else 1)

    @property
    def batch(self) -> tuple[int, ...]:
        """D's batch."""
        own = [x for x in self.batches if x is not None]
        return () if not own else (own[0] if 1 not in own else max(own, key=lambda x: x != 1),)

    def operand(self, name: str, shape: tuple[int, ...], dtype: str, order: str, **given: Any) -> Operand:
        return matrix(name, shape, dtype, column_major=order == "c", **self.form(name), **given)

    def call(self) -> Call:
        lead_a, lead_b = (() if x is None else (x,) for x in self.batches)
        a_order, b_order, d_order = self.orders
        shape = (*self.batch, self.m, self.n)
        given: dict[str, Any] = {
            "a": self.operand(
                "a", (*lead_a, self.m, self.k), self.dtype, a_order,
                contents=self.of_values(0, self.k),
            ),
            "b": self.operand(
                "b", (*lead_b, self.k, self.columns), self.b_type, b_order,
                contents=self.of_values(1, self.k),
            ),
        }  # fmt: skip
        if self.out_given:
            contents = self.of_addend(2) if self.c == "D" else None
            given["out"] = self.operand("out", shape, self.out_dtype, d_order, contents=contents, is_output=True)
        else:
            given["out_dtype"] = self.out_dtype
        if self.c == "D":
            given["c"] = given["out"]
        elif self.c:
            lead = () if self.c_shared else self.batch
            contents = self.of_addend(2) if self.beta != 0 else None
            given["c"] = self.operand("c", (*lead, self.m, self.n), self.c, d_order, contents=contents)
        if self.bias:
            shapes = {"row": (self.columns,), "row2": (1, self.columns), "column": (self.m, 1)}
            given["bias"] = packed("bias", shapes[self.bias], self.bias_dtype, contents=self.of_addend(3))
        return Call("gemm", given | self.scalars() | self.split() | self.out_scale(shape))

    @property
    def b_type(self) -> str:
        return self.dtype

    def plan(self, arrays: dict[str, torch.Tensor]) -> Any:
        return plan_call(cleave.plan_gemm, self.call(), arrays)

    def sums(self, arrays: dict[str, torch.Tensor]) -> Sums:
        rule = self.accumulator(self.k)
        relative = None if self.is_exact(self.k) else rule.relative
        return product(float64(arrays["a"]), float64(arrays["b"]), relative)

    def expected(self, arrays: dict[str, torch.Tensor]) -> dict[str, Expected]:
        c = arrays.get("out" if self.c == "D" else "c")
        return self.outputs(self.finish(self.sums(arrays), c, arrays.get("bias")))

    def smaller(self) -> list[dict[str, Any]]:
        tried: list[dict[str, Any]] = []
        if self.batches != (None, None):
            one = tuple(None if x is None else 1 for x in self.batches)
            tried += [{"batches": (None, None), "c_shared": False}, {"batches": one}]
        tried += self.simpler()
        tried += [{"orders": "rrr"}, {"orders": self.orders[:2] + "r"}]
        for name in "mnk":
            value = getattr(self, name)
            for less in (1, 8, value // 2, value - 1):
                if 0 < less < value:
                    tried.append({name: less, **self.fewer_slices(name, less)})
        return tried

    def fewer_slices(self, name: str, less: int) -> dict[str, Any]:
        return {"slices": least(self.slices, less)} if name == "k" else {}


MOST = {"tiny": 40, "small": 160, "medium": 640, "large": 4096}


def draw_sizes(config: random.Random, rng: random.Random, target: Target) -> dict[str, int]:
    """m, n and k of about one order for all problems of a configuration; few of them large."""
    weights = (6, 3, 0.1, 0) if target.small else (3, 4, 3, 0.4)
    most = MOST[config.choices(tuple(MOST), weights)[0]]
    sizes = {name: size(rng, most) for name in "mnk"}
    if rng.random() < 0.15:  # a long sum
        sizes["k"] = size(rng, (4 if target.small else 16) * most)
    if config.random() < 0.2:  # a few rows, as in decoding
        sizes["m"] = min(sizes["m"], rng.randint(1, 16))
    return limited(sizes, target)


def limited(sizes: dict[str, int], target: Target, matrices: int = 1) -> dict[str, int]:
    """The sizes, the largest halved until so many products fit into a gigabyte of float64."""
    sizes = dict(sizes)
    while matrices * (sizes["m"] * sizes["k"] + sizes["k"] * sizes["n"] + sizes["m"] * sizes["n"]) > (
        2**21 if target.small else 2**26
    ):
        largest = max(sizes, key=lambda name: sizes[name])
        sizes[largest] //= 2
    return sizes


def draw_batches(config: random.Random, rng: random.Random) -> tuple[int | None, int | None]:
    form = config.choice(("", "", "", "", "both", "a", "b", "a1", "b1"))
    count = rng.choice((0, 1, 2, 3, 5)) if rng.random() < 0.3 else rng.randint(1, 4)
    return {
        "": (None, None), "both": (count, count), "a": (count, None), "b": (None, count),
        "a1": (count, 1), "b1": (1, count),
    }[form]  # fmt: skip


def draw_gemm(config: random.Random, rng: random.Random, target: Target) -> Gemm:
    dtype = config.choice(FLOATS)
    given: dict[str, Any] = draw_epilogue(config) | draw_split(config, target)
    given |= {
        "dtype": dtype,
        "out_dtype": config.choice((dtype, dtype, *FLOATS)),
        "orders": "".join(config.choice("rc") for _ in "abd"),
        "out_given": config.random() < 0.9,
        "bias": config.choice((None, None, "row", "row2", "column")),
        "bias_dtype": config.choice(FLOATS),
        "c_shared": config.random() < 0.2,
    }
    if config.random() < 0.08:
        given |= draw_gates(config, given["orders"], target)
        given["bias"] = config.choice((None, "row"))
    elif config.random() < 0.08:
        given |= draw_found_scales(config) | {"orders": given["orders"][:2] + "r"}
    given |= draw_form(config, rng, ("a", "b", "c", "out", "scale_out"))
    given |= draw_sizes(config, rng, target) | {"batches": draw_batches(config, rng)}
    return Gemm(**completed(given, rng, target), device=target.device)


def completed(given: dict[str, Any], rng: random.Random, target: Target) -> dict[str, Any]:
    """With what a problem alone draws, and without what contradicts itself."""
    if not given["out_given"]:
        given["orders"] = given["orders"][:2] + "r"
    given |= settle_c(given)
    given |= draw_scalars(rng, bool(given["c"]), given["out_dtype"] == "int32")
    if given["c"] == "D" or given["batches"] == (None, None):
        given["c_shared"] = False
    if given["bias"] == "column" and given["m"] == 1:
        given["bias"] = "row"  # of one row and one column alike
    given["k"] = long_enough(given["k"], given["slices"], rng, target)
    given |= settle_split(given, given["k"], given["orders"][:2] == "rc", target.device)
    return given | {"seed": rng.getrandbits(32), "contents": draw_contents(rng, given, given["k"])}


def long_enough(k: int, slices: int | None, rng: random.Random, target: Target) -> int:
    """K, more often with a step of 64 or 128 elements for each slice."""
    if not slices or slices == 1 or rng.random() < 0.3:
        return k
    least_k = slices * rng.choice((64, 64, 128)) + rng.randint(-64, 64)
    return min(max(k, least_k), 1024 if target.small else 16384)


@dataclass
class ScaledGemm(Gemm):
    """scaling: what scales of a and b cover: "tensor", "row", "1x128", "128x128"; None: none.

    scale_majors: "k" or "mn" of each; scale_batch: each entry has its own. azp: "tensor", "row".
    """

    operation: ClassVar[str] = "scaled_gemm"
    b_dtype: str = "int8"
    scaling: tuple[str, str] | None = ("tensor", "tensor")
    scale_majors: tuple[str, str] = ("k", "k")
    scale_batch: bool = False
    azp: str | None = None
    scale_d: float | None = None
    amax: bool = False

    @property
    def b_type(self) -> str:
        return self.b_dtype

    def of_scale(self, i: int) -> tuple[str, float, int]:
        exact = self.are_whole
        return ("powers" if exact else "wide", 2, self.seed * 16 + i)

    def scale(self, i: int, rows: int) -> Operand:
        kind = self.scaling[i]
        name = f"scale_{'ab'[i]}"
        lead = self.batch if self.scale_batch else ()
        shape = (*lead, *scale_shape(kind, rows, self.k))
        transposed = self.scale_majors[i] == "mn"
        if i == 1:
            shape = (*lead, shape[-1], shape[-2])
            transposed = not transposed
        return matrix(
            name, shape, "float32", column_major=transposed,
            gap=self.gaps.get(name, 0), contents=self.of_scale(4 + i),
        )  # fmt: skip

    def call(self) -> Call:
        given = super().call().keywords
        given["scale_a"] = given["scale_b"] = None
        if self.scaling:
            given["scale_a"] = self.scale(0, self.m)
            given["scale_b"] = self.scale(1, self.columns)
        if self.fast:
            given["use_fast_accum"] = True
        if self.azp:
            contents = ("integers", 99, self.seed * 16 + 6)
            given["azp_adj"] = packed("azp_adj", (self.n,), "int32", contents=contents)
            if self.azp == "row":
                contents = ("integers", 9, self.seed * 16 + 7)
                given["azp"] = packed("azp", (self.m,), "int32", contents=contents)
        if self.scale_d:
            given["scale_d"] = packed("scale_d", (1,), "float32", literal=(self.scale_d,))
        if self.amax:
            given["amax"] = packed("amax", (1,), "float32", literal=(0.0,), is_output=True)
        return Call("scaled_gemm", given)

    def plan(self, arrays: dict[str, torch.Tensor]) -> Any:
        return plan_call(cleave.plan_scaled_gemm, self.call(), arrays)

    def sums(self, arrays: dict[str, torch.Tensor]) -> Sums:
        rule = self.accumulator(self.k)
        relative = None if self.is_exact(self.k) else rule.relative
        a, b = float64(arrays["a"]), float64(arrays["b"])
        zero = None
        if self.azp and self.k:  # of the sum of nothing, nothing is taken
            zero = arrays["azp_adj"].double().expand(self.m, self.n)
            if self.azp == "row":
                zero = zero * arrays["azp"].double()[:, None]
        if self.scaling is None:
            sums = product(a, b, relative)
            return sums if zero is None else sums.add(-zero)
        of_a = spread(arrays["scale_a"], self.m, self.k)
        of_b = spread(arrays["scale_b"].mT, self.columns, self.k).mT
        sums = product(a * of_a, b * of_b, relative)
        if zero is not None:
            sums = sums.add(-(zero * of_a[..., :1] * of_b[..., :1, :]))
        return sums

    def expected(self, arrays: dict[str, torch.Tensor]) -> dict[str, Expected]:
        c = arrays.get("out" if self.c == "D" else "c")
        sums = self.finish(self.sums(arrays), c, arrays.get("bias"))
        outputs = {}
        if self.amax:
            outputs["amax"] = largest(sums)
        if self.scale_d:
            sums = sums.times(1.0 / self.scale_d)
            if sums.bound is not None:  # of the inverse, and of the product with it
                sums = Sums(sums.value, sums.bound + 2.0**-22 * sums.value.abs(), sums.magnitude)
        return outputs | self.outputs(sums)

    def smaller(self) -> list[dict[str, Any]]:
        tried = [{"azp": None}, {"scale_d": None}, {"amax": False}, {"scale_batch": False},
                 {"scale_majors": ("k", "k")}, {"scaling": None, "scale_batch": False}]  # fmt: skip
        kept = [fields for fields in tried if any(getattr(self, n) != x for n, x in fields.items())]
        return kept + super().smaller()


def largest(sums: Sums) -> Expected:
    """amax, which begins as 0."""
    if sums.value.numel() == 0:
        return Expected(sums.value.new_zeros(1))
    if sums.bound is None:
        return Expected(sums.value.abs().max().reshape(1))
    high = (sums.value.abs() + sums.bound).max()
    low = (sums.value.abs() - sums.bound).max().clamp_min(0)
    middle = ((high + low) / 2).reshape(1)
    return Expected(middle, ((high - low) / 2).reshape(1) + 2.0**-23 * high + 2.0**-149)


def draw_scaled_gemm(config: random.Random, rng: random.Random, target: Target) -> ScaledGemm:
    integer = config.random() < 0.4
    dtype = "int8" if integer else config.choice(FLOAT8)
    given: dict[str, Any] = draw_epilogue(config) | draw_split(config, target)
    kind = config.choices(("none", "vector", "block"), (1, 4, 0 if integer else 3))[0]
    if kind == "vector":
        scaling = tuple(config.choice(("tensor", "row")) for _ in "ab")
    elif kind == "block":
        scaling = ("1x128", config.choice(("1x128", "128x128")))
    else:
        scaling = None
    given |= {
        "dtype": dtype,
        "b_dtype": "int8" if integer else config.choice(FLOAT8),
        "out_dtype": config.choice((*FLOATS, "bfloat16", "int8", *FLOAT8)),
        # K contiguous in both is what tensor cores read.
        "orders": "rcr" if config.random() < 0.7 else "".join(config.choice("rc") for _ in "abd"),
        "out_given": config.random() < 0.9,
        "bias": config.choice((None, None, "row", "row2", "column")),
        "bias_dtype": config.choice(FLOATS),
        "c_shared": config.random() < 0.2,
        "scaling": scaling,
        "scale_majors": (config.choice(("k", "mn")), config.choice(("k", "mn"))),
        "scale_batch": config.random() < 0.3,
        "fast": not integer and config.random() < 0.4,
        "amax": config.random() < 0.15,
    }
    if integer and kind != "block" and config.random() < 0.3:
        given["azp"] = config.choice(("tensor", "row"))
    if integer and kind == "none" and "azp" not in given and config.random() < 0.6:
        given |= {"out_dtype": "int32", "bias": None, "activation": "none"}
        given["amax"] = False
    if config.random() < 0.12 and given["out_dtype"] != "int32":
        given |= draw_found_scales(config) | {"orders": given["orders"][:2] + "r"}
        # A gate and its up projection, as layers have them, where every kernel serves it.
        if target.device == "cpu" and config.random() < 0.5:
            given |= {"activation": "swiglu", "c": None, "bias": config.choice((None, "row")), "azp": None}
    elif given["out_dtype"] in QUANTIZED:
        given["scale_d"] = config.choice((None, 0.25, 4.0))
    given |= draw_form(config, rng, ("a", "b", "c", "out", "scale_a", "scale_b", "scale_out"))
    given |= draw_sizes(config, rng, target) | {"batches": draw_batches(config, rng)}
    given = completed(given, rng, target)
    if given["batches"] == (None, None):
        given["scale_batch"] = False
    return ScaledGemm(**given, device=target.device)
