"""cleave.grouped_gemm and cleave.grouped_gemm_wgrad."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch

import cleave
from cleave._epilogue.activations import GATED, PAIRED
from tests.gpu.products import scale_shape, spread

from .bound import Expected, Sums, product
from .bounds import Groups, draw_groups, hostile_bounds
from .dense import MOST, draw_sizes, limited, long_enough
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
from .found_scales import draw_found_scales
from .operand import Operand, float64, matrix, packed
from .problem import FLOAT8, FLOATS, Call, Target, plan_call

Index = tuple[Any, ...]
EVERYTHING = slice(None)


@dataclass
class GroupedGemm(Product):
    """dimension: "m", "n", "k", "masked" (of m) or "batched". m, n, k: of the others.

    orders: of a, b and D. bias: "row", "column", or "own" for a vector of each group. zero_rest as
    the call has it. scaling: None, "vector" or "block", and for each operand whether it has one
    value, or a block of 128 rows, instead of one for each row.
    """

    operation: ClassVar[str] = "grouped_gemm"
    dimension: str = "m"
    groups: Groups = field(default_factory=lambda: Groups("ends", (1,)))
    m: int = 1
    n: int = 1
    k: int = 1
    orders: str = "rrr"
    b_dtype: str | None = None
    zero_rest: bool | None = None
    scaling: str | None = None
    coarse: tuple[bool, bool] = (False, False)

    @property
    def count(self) -> int:
        return self.groups.count

    @property
    def columns(self) -> int:
        return self.size("n") * (2 if self.activation in GATED else 1)

    @property
    def grouped(self) -> str:
        """The dimension that is cut; of a batch none."""
        return {"masked": "m", "batched": ""}.get(self.dimension, self.dimension)

    def size(self, name: str) -> int:
        """Size of all groups."""
        if name != self.grouped:
            return getattr(self, name)
        return self.groups.extent

    @property
    def leads(self) -> dict[str, tuple[int, ...]]:
        """Which of a, b and D have a matrix for each group."""
        own = {"m": "b", "n": "a", "k": "d", "masked": "abd", "batched": "abd"}[self.dimension]
        return {name: (self.count,) if name in own else () for name in "abd"}

    def shape(self, name: str) -> tuple[int, ...]:
        rows = self.groups.spacing if self.dimension == "masked" else self.size("m")
        of = {"a": (rows, self.size("k")), "b": (self.size("k"), self.columns)}
        of["d"] = (rows, self.size("n"))
        return (*self.leads[name], *of[name])

    def place(self, g: int) -> dict[str, Index]:
        """Where group g's part of a, b and D is."""
        if self.dimension == "batched":
            return dict.fromkeys("abd", (g,))
        begin, end = self.groups.ranges[g]
        cut = slice(begin, end)
        if self.dimension == "masked":
            own = (g, slice(0, end - begin))
            return {"a": own, "b": (g,), "d": own}
        return {
            "m": {"a": (cut,), "b": (g,), "d": (cut,)},
            "n": {"a": (g,), "b": (EVERYTHING, cut), "d": (EVERYTHING, cut)},
            "k": {"a": (EVERYTHING, cut), "b": (cut,), "d": (g,)},
        }[self.dimension]

    @property
    def longest(self) -> int:
        """The longest of the groups' K."""
        return max(self.groups.sizes) if self.dimension == "k" else self.k

    def array(self, name: str, of: str, dtype: str, order: str, **given: Any) -> Operand:
        even = self.dimension == "masked" and of in "ad"
        return matrix(
            name, self.shape(of), dtype, column_major=order == "c", even=even,
            **self.form(name), **given,
        )  # fmt: skip

    def kept(self, name: str) -> tuple[int, tuple[tuple[int, int], ...]] | None:
        """Where an operand has values; what belongs to no group is poison."""
        dim = {"m": {"a": 0}, "n": {"b": 1}, "k": {"a": 1, "b": 0}}.get(self.dimension, {}).get(name)
        if dim is None or self.groups.hostile is not None:
            return None
        return dim, tuple(self.groups.ranges)

    def call(self) -> Call:
        a_order, b_order, d_order = self.orders
        longest = self.longest
        given: dict[str, Any] = {
            "a": self.array(
                "a", "a", self.dtype, a_order, contents=self.of_values(0, longest),
                kept=self.kept("a"),
            ),
            "b": self.array(
                "b", "b", self.b_dtype or self.dtype, b_order, contents=self.of_values(1, longest),
                kept=self.kept("b"),
            ),
        }  # fmt: skip
        if self.dimension != "batched":
            given |= self.groups.keywords(self.dimension == "masked")
        if self.out_given:
            contents = self.of_addend(2) if self.c == "D" else None
            given["out"] = self.array("out", "d", self.out_dtype, d_order, contents=contents, is_output=True)
        else:
            given["out_dtype"] = self.out_dtype
        if self.c == "D":
            given["c"] = given["out"]
        elif self.c:
            contents = self.of_addend(2) if self.beta != 0 else None
            given["c"] = self.array("c", "d", self.c, d_order, contents=contents)
        if self.bias:
            given["bias"] = packed("bias", self.bias_shape, self.bias_dtype, contents=self.of_addend(3))
        if self.zero_rest is not None:
            given["zero_rest"] = self.zero_rest
        if self.scaling:
            given["scale_a"], given["scale_b"] = self.scale("a"), self.scale("b")
        if self.fast:
            given["use_fast_accum"] = True
        found = self.out_scale(self.shape("d"), even=self.dimension == "masked")
        return Call("grouped_gemm", given | self.scalars() | self.split() | found)

    @property
    def bias_shape(self) -> tuple[int, ...]:
        if self.bias == "own":
            return (self.count, self.size("m") if self.dimension == "n" else self.columns)
        return (self.columns,) if self.bias == "row" else (self.size("m"), 1)

    # --- scales ---

    def scale_lead(self, name: str) -> tuple[int, ...]:
        """Whether there are scales for each group."""
        if self.dimension in ("masked", "batched"):
            return (self.count,)
        if self.scaling == "block":
            return self.leads[name]
        return () if (name, self.dimension) in (("a", "m"), ("b", "n")) else (self.count,)

    def scale(self, name: str) -> Operand:
        rows = self.shape(name)[-2 if name == "a" else -1]
        coarse, lead = self.coarse["ab".index(name)], self.scale_lead(name)
        exact = self.are_whole
        contents = ("powers" if exact else "wide", 2, self.seed * 16 + 4 + "ab".index(name))
        if self.scaling == "vector":
            # Rows of masked matrices have one value for all groups, or one each.
            one = (1,) if not lead or (self.dimension, name) == ("masked", "a") else (*lead, 1)
            shape = one if coarse else (*lead, rows)
            return packed(f"scale_{name}", shape, "float32", contents=contents)
        shape = scale_shape("128x128" if coarse else "1x128", rows, self.size("k"))
        whole = (*lead, *(shape if name == "a" else shape[::-1]))
        even = self.dimension == "masked" and name == "a"
        return matrix(
            f"scale_{name}", whole, "float32", column_major=name == "a" and not even, even=even,
            contents=contents,
        )  # fmt: skip

    def factors(self, name: str, scale: torch.Tensor, g: int) -> torch.Tensor:
        """Factors of group g's part of a, or of b transposed: [rows, K] or [rows, 1]."""
        part = self.place(g)[name]
        if self.scaling == "block":
            rows, k = self.shape(name)[-2 if name == "a" else -1], self.size("k")
            lead = self.scale_lead(name)
            own = scale[g] if lead else scale
            whole = spread(own if name == "a" else own.mT, rows, k)
            if lead and name in "ab" and isinstance(part[0], int):
                part = part[1:]
            whole = whole if name == "a" else whole.mT
            cut = whole[part] if part else whole
            return cut if name == "a" else cut.mT
        own = scale.double()
        if scale.dim() == 2:
            own = own[g]
        if own.numel() > 1:
            cut = part[1:] if isinstance(part[0], int) else part
            rows = self.grouped == {"a": "m", "b": "n"}[name]
            if rows and cut:
                own = own[cut[-1]]
        return own[:, None]

    # --- what it should give ---

    def expected(self, arrays: dict[str, torch.Tensor]) -> dict[str, Expected]:
        if self.groups.hostile is not None:
            return {}
        c = arrays.get("out" if self.c == "D" else "c")
        a, b = arrays["a"], arrays["b"]
        shape, device = self.shape("d"), a.device
        value = torch.zeros(shape, dtype=torch.float64, device=device)
        bound: torch.Tensor | None = torch.zeros_like(value)
        written = torch.zeros(shape, dtype=torch.bool, device=device)
        for g in range(self.count):
            place = self.place(g)
            sums = self.group(g, a[place["a"]], b[place["b"]], arrays)
            own_c = None if c is None else c[place["d"]]
            sums = self.finish(sums, own_c, self.own_bias(g, arrays.get("bias")))
            value[place["d"]], written[place["d"]] = sums.value, True
            if sums.bound is None:
                bound = None
            elif bound is not None:
                bound[place["d"]] = sums.bound
        zeroed = not self.out_given if self.zero_rest is None else self.zero_rest
        everything = zeroed or self.dimension in ("k", "batched")
        return self.outputs(Sums(value, bound), None if everything else written)

    def group(self, g: int, a: torch.Tensor, b: torch.Tensor, arrays: Any) -> Sums:
        k = a.shape[-1]
        rule = self.accumulator(k)
        relative = None if self.is_exact(self.longest) else rule.relative
        a, b = float64(a), float64(b)
        if self.scaling:
            a = a * self.factors("a", arrays["scale_a"], g)
            b = b * self.factors("b", arrays["scale_b"], g).mT
        return product(a, b, relative)

    def own_bias(self, g: int, bias: torch.Tensor | None) -> torch.Tensor | None:
        if bias is None:
            return None
        if self.bias == "own":
            return bias[g][:, None] if self.dimension == "n" else bias[g]
        cut = slice(*self.groups.ranges[g]) if self.grouped else EVERYTHING
        if self.bias == "column":
            return bias[cut] if self.grouped == "m" else bias
        return bias[cut] if self.grouped == "n" else bias

    def plan(self, arrays: dict[str, torch.Tensor]) -> Any:
        return plan_call(cleave.plan_grouped_gemm, self.call(), arrays)

    def smaller(self) -> list[dict[str, Any]]:
        tried: list[dict[str, Any]] = [{"groups": groups} for groups in self.groups.smaller()]
        tried += [{"scaling": None}, {"coarse": (False, False)}] if self.scaling else []
        tried += self.simpler()
        tried += [{"zero_rest": None}, {"orders": "rrr"}]
        for name in "mnk":
            value = getattr(self, name)
            for less in (1, 8, value // 2, value - 1):
                if 0 < less < value:
                    slices = least(self.slices, less) if name == "k" else self.slices
                    tried.append({name: less, "slices": slices})
        return tried


@dataclass
class GroupedWgrad(GroupedGemm):
    """Takes dy [T, N], which is `a` transposed, and x [T, K]. c: "D" to accumulate."""

    operation: ClassVar[str] = "grouped_gemm_wgrad"

    def call(self) -> Call:
        given = super().call().keywords
        for name in ("activation", "bias", "beta"):
            given.pop(name, None)
        given["dy"] = transposed(given.pop("a"), "dy")
        given["x"] = replace(given.pop("b"), name="x")
        if given.pop("c", None) is not None:
            given["accumulate"] = True
        if self.scaling:
            scale = given.pop("scale_a")
            blocks = self.scaling == "block"
            given["scale_dy"] = transposed(scale, "scale_dy") if blocks else scale
            given["scale_x"] = given.pop("scale_b")
        return Call("grouped_gemm_wgrad", given)

    def as_product(self, arrays: dict[str, Any]) -> dict[str, Any]:
        """By the names of grouped_gemm."""
        arrays = dict(arrays)
        arrays |= {"a": arrays.pop("dy").mT, "b": arrays.pop("x")}
        if "scale_dy" in arrays:
            arrays["scale_a"] = arrays.pop("scale_dy")
            if self.scaling == "block":
                arrays["scale_a"] = arrays["scale_a"].mT
        if "scale_x" in arrays:
            arrays["scale_b"] = arrays.pop("scale_x")
        return arrays

    def expected(self, arrays: dict[str, torch.Tensor]) -> dict[str, Expected]:
        return super().expected(self.as_product(arrays))

    def plan(self, arrays: dict[str, torch.Tensor]) -> Any:
        keywords = self.as_product(self.call().fill(arrays))
        if keywords.pop("accumulate", False):
            keywords["c"] = keywords["out"]
        keywords.pop("alpha", None)
        return cleave.plan_grouped_gemm(**keywords)


def transposed(x: Operand, name: str) -> Operand:
    """A matrix whose rows are x's columns, in the same memory."""
    rows, columns = x.shape
    kept = x.kept and (1 - x.kept[0], x.kept[1])
    order = tuple(1 - d for d in x.order)
    return replace(x, name=name, shape=(columns, rows), order=order, kept=kept)


def draw_grouped_gemm(config: random.Random, rng: random.Random, target: Target) -> GroupedGemm:
    dimension = config.choices(("m", "n", "k", "masked", "batched"), (5, 2, 2, 2, 1))[0]
    return GroupedGemm(**_fields(config, rng, target, dimension), device=target.device)


def draw_grouped_wgrad(config: random.Random, rng: random.Random, target: Target) -> GroupedWgrad:
    given = _fields(config, rng, target, "k", wgrad=True)
    given |= {"bias": None, "activation": "none", "beta": None, "zero_rest": None}
    if given.get("c") is not None:
        given["c"] = "D" if given["out_given"] else None
    return GroupedWgrad(**given, device=target.device)


def _fields(
    config: random.Random, rng: random.Random, target: Target, dimension: str, wgrad: bool = False
) -> dict[str, Any]:
    sizes = draw_sizes(config, rng, target)
    masked = dimension == "masked"
    most = min(max(sizes.values()), 512)
    groups = draw_groups(config, rng, most, masked, MOST["small" if target.small else "large"])
    sizes = limited(sizes, target, groups.count)
    dtype = config.choice((*FLOATS, "float16", "bfloat16", "int8", *FLOAT8))
    is_8bit = dtype not in FLOATS
    given: dict[str, Any] = draw_epilogue(config) | draw_split(config, target)
    given |= sizes | draw_form(config, rng, ("a", "b", "c", "out"))
    given |= {
        "dimension": dimension,
        "groups": groups,
        "dtype": dtype,
        "b_dtype": config.choice(FLOAT8) if dtype in FLOAT8 else dtype,
        "out_dtype": config.choice(FLOATS if is_8bit else (dtype, dtype, *FLOATS)),
        "orders": "".join(config.choice("rc") for _ in "abd"),
        "out_given": config.random() < 0.8,
        "bias": config.choice((None, None, "row", "column", "own")),
        "bias_dtype": config.choice(FLOATS),
        "zero_rest": None if dimension in ("k", "batched") else config.choice((None, True, False)),
    }
    if is_8bit:
        blocks = dtype != "int8" and (dimension != "k" or _by_blocks(groups))
        given["scaling"] = config.choice(("vector", "block") if blocks else ("vector", None))
        if dtype == "int8" and given["scaling"] is None and config.random() < 0.6:
            given |= {"out_dtype": "int32", "bias": None, "activation": "none"}
        given["coarse"] = (False, config.random() < 0.5)
        if given["scaling"] == "vector":
            given["coarse"] = (config.random() < 0.3, given["coarse"][1])
        given["fast"] = dtype != "int8" and config.random() < 0.3
        if config.random() < 0.7:
            given["orders"] = "rcr"
    if given.get("scaling") == "block" and dimension == "n":
        given["coarse"] = (given["coarse"][1], False)
    sums_alone = given["out_dtype"] == "int32"
    if dimension in ("m", "masked") and config.random() < 0.15 and not sums_alone:
        given |= draw_gates(config, given["orders"], target)
        given["bias"] = config.choice((None, "row", "own"))
        if is_8bit and target.device != "cpu":  # what the GPU's kernels join columns of
            given |= {"orders": given["orders"][0] + "cr", "k": max(2, given["k"])}
            given["scaling"] = given["scaling"] and "vector"
        if given["activation"] in PAIRED and given.get("scaling") == "block":
            given["coarse"] = (given["coarse"][0], False)
    elif not wgrad and dimension != "n" and config.random() < 0.1 and not sums_alone:
        given |= draw_found_scales(config) | {"orders": given["orders"][:2] + "r"}
    if masked:  # the rows of all groups are evenly spaced
        given["orders"] = "r" + given["orders"][1] + "r"
    if not given["out_given"]:
        given["orders"] = given["orders"][:2] + "r"
    given |= settle_c(given)
    given |= draw_scalars(rng, bool(given["c"]), given["out_dtype"] == "int32")
    given["bias"] = _unambiguous(given)
    if dimension != "k":
        given["k"] = long_enough(given["k"], given["slices"], rng, target)
    extent = groups.extent if dimension == "k" else given["k"]
    given |= settle_split(given, extent, given["orders"][:2] == "rc", target.device)
    # TMA needs groups that begin at multiples of 16 bytes: not along what is contiguous.
    a_order, b_order = given["orders"][:2]
    cut = {"m": a_order == "c", "masked": a_order == "c", "n": b_order == "r",
           "k": a_order == "r" or b_order == "c"}  # fmt: skip
    if given["kernel"] == "sm90" and cut.get(dimension, False):
        given["kernel"] = "auto"
    given |= {"seed": rng.getrandbits(32), "contents": draw_contents(rng, given, extent)}
    if dimension != "batched" and given["out_given"] and rng.random() < 0.06:
        given["groups"] = replace(groups, hostile=hostile_bounds(rng, groups))
    return given


def _by_blocks(groups: Groups) -> bool:
    return groups.kind in ("aligned_ends", "counts") and groups.spacing % 128 == 0


def _unambiguous(given: dict[str, Any]) -> str | None:
    """Without a bias whose shape might mean another: where there is little of it."""
    problem = GroupedGemm(seed=0, contents="", device="", **{k: x for k, x in given.items() if k not in ("seed",)})
    shapes = [replace(problem, bias=kind).bias_shape for kind in ("row", "column", "own")]
    shapes.append((1, problem.columns))
    if given["bias"] is None or shapes.count(problem.bias_shape) > 1:
        return None
    return given["bias"]
