"""What every product has: how it is split, and what becomes of its sums."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import torch

from cleave._epilogue.activations import GATED, PAIRED
from cleave.testing.activations import ELEMENTWISE

from .bound import Accumulator, Expected, Sums, accumulator, activated, expected, rounded
from .found_scales import quantized, scales_shape
from .operand import float64, matrix
from .problem import FLOATS, HALVES, MODES, Problem, Target


@dataclass
class Product(Problem):
    """out_given: D is passed as `out`. c: a dtype, or "D" for in place. align: of lines, in bytes.

    gaps: of the lines of operands, in units of align. fast: use_fast_accum. found_scales: of D, by the product: "k" or
    "mn" of new ones, or "given".
    """

    dtype: str
    out_dtype: str
    out_given: bool = True
    c: str | None = None
    bias: str | None = None
    bias_dtype: str = "float32"
    alpha: float = 1.0
    beta: float | None = None
    activation: str = "none"
    mode: str = "auto"
    slices: int | None = None
    kernel: str = "auto"
    precision: str = "tf32"
    fast: bool = False
    align: int = 16
    gaps: dict[str, int] = field(default_factory=dict)
    shift: int = 0
    found_scales: str | None = None
    ue8m0: bool = False

    def amplitude(self, k: int) -> int:
        """The largest integers whose sums of k products stay exact, if that is possible."""
        most = 2**12 if self.is_8bit else 2**20
        return max(1, min(8, int((most / max(k, 1)) ** 0.5)))

    def is_exact(self, k: int) -> bool:
        """The sums and all that the epilogue makes of them, but for its activation.

        With scales, units are 2^-6 (of two scales, and alpha), and 16 times the sums is the most.
        """
        if self.out_dtype == "int32":
            return True
        q = self.amplitude(k)
        return self.are_whole and q * q * k <= (2**12 if self.is_8bit else 2**20)

    @property
    def are_whole(self) -> bool:
        """Integers, or NaNs and infinities, which are exact wherever they get."""
        return self.contents in ("integers", "special")

    @property
    def is_8bit(self) -> bool:
        return self.dtype == "int8" or self.dtype.startswith("float8")

    def of_values(self, i: int, k: int) -> tuple[str, float, int]:
        """Contents of operand i."""
        seed = self.seed * 16 + i
        if self.are_whole:
            return (self.contents, self.amplitude(k), seed)
        if self.contents == "wide" and self.dtype != "int8":
            return ("wide", 3 if self.dtype == "float8_e4m3fn" else 6, seed)
        return ("normal", 40.0 if self.dtype == "int8" else 1.0, seed)

    def of_addend(self, i: int) -> tuple[str, float, int]:
        """Contents of c or the bias."""
        kind = "integers" if self.are_whole else "normal"
        return (kind, 8 if kind == "integers" else 2.0, self.seed * 16 + i)

    def form(self, name: str) -> dict[str, Any]:
        return {"align": self.align, "gap": self.gaps.get(name, 0), "shift": self.shift}

    def split(self) -> dict[str, Any]:
        given: dict[str, Any] = {"split_k_mode": self.mode, "kernel": self.kernel}
        if self.slices is not None:
            given["split_k_slices"] = self.slices
        if self.precision != "tf32":
            given["precision"] = self.precision
        return given

    def accumulator(self, k: int) -> Accumulator:
        return accumulator(self.dtype, k, self.device, self.fast, self.precision)

    def scalars(self) -> dict[str, Any]:
        given: dict[str, Any] = {}
        if self.alpha != 1.0:
            given["alpha"] = self.alpha
        if self.beta is not None:
            given["beta"] = self.beta
        if self.activation != "none":
            given["activation"] = self.activation
        return given

    def finish(self, sums: Sums, c: torch.Tensor | None = None, bias: torch.Tensor | None = None) -> Sums:
        """Takes one matrix or a batch, c and bias as the call has them."""
        sums = sums.times(self.alpha)
        if c is not None and self.beta != 0:
            sums = sums.add((1.0 if self.beta is None else self.beta) * float64(c))
        if bias is not None:
            sums = sums.add(bias.double())
        return activated(rounded(sums), self.activation)

    def out_scale(self, d: tuple[int, ...], even: bool = False) -> dict[str, Any]:
        """d: the shape of D. even: the rows of its whole batch are evenly spaced."""
        if self.found_scales is None:
            return {}
        given: dict[str, Any] = {"out_scale": "block_1x128", "use_ue8m0": self.ue8m0}
        if self.found_scales != "given":
            return given | {"scale_major": self.found_scales}
        scales = matrix(
            "scale_out", scales_shape(d), "float32", column_major=self.seed % 2 == 1 and not even, even=even,
            gap=self.gaps.get("out", 0), is_output=True,
        )  # fmt: skip
        return given | {"scale_out": scales}

    def output(self, sums: Sums, written: torch.Tensor | None = None) -> Expected:
        return expected(sums, getattr(torch, self.out_dtype), written)

    def outputs(self, sums: Sums, written: torch.Tensor | None = None) -> dict[str, Expected]:
        """D, and what scales of it are found."""
        name = "out" if self.out_given else "0"
        if self.found_scales is None:
            return {name: self.output(sums, written)}
        sums, scales = quantized(sums, self.out_dtype, self.ue8m0)
        if written is not None:
            scales.written = written[..., :1].expand(scales.value.shape)
        scale_name = "scale_out" if self.found_scales == "given" else "1"
        return {name: self.output(sums, written), scale_name: scales}

    def simpler(self) -> list[dict[str, Any]]:
        """Fields to set that every product has."""
        tried: list[dict[str, Any]] = [
            {"activation": "none"} if self.activation not in GATED else {},
            {"c": None, "beta": None},
            {"bias": None},
            {"alpha": 1.0},
            {"beta": None},
            {"mode": "none", "slices": None},
            {"slices": None},
            {"kernel": "auto"},
            {"precision": "tf32"},
            {"gaps": {}, "shift": 0},
            {"align": 16, "shift": 0},
            {"fast": False},
            {"contents": "integers"},
            {"ue8m0": False},
            {"found_scales": "k"} if self.found_scales else {},
        ]
        if self.slices and self.slices > 2:
            tried += [{"slices": 2}, {"slices": self.slices // 2}]
        return [fields for fields in tried if any(getattr(self, n) != x for n, x in fields.items())]


def draw_contents(rng: random.Random, given: dict[str, Any], k: int) -> str:
    """NaNs and infinities only where what becomes of them is defined: not beside functions of them,
    in integers, or where float64 alone multiplies them by zero."""
    contents = rng.choices(("integers", "normal", "wide", "special"), (16, 6, 2, 1))[0]
    defined = (
        given["activation"] in ("none", "relu")
        and given["dtype"] != "int8"
        and given["out_dtype"] not in ("int8", "int32")
        and not given.get("amax")
        and not given.get("found_scales")
        and "geometry" not in given
        and k <= 2**12
    )
    return contents if defined or contents != "special" else "integers"


def draw_gates(config: random.Random, orders: str, target: Target) -> dict[str, Any]:
    """Where they alternate with ups, GPUs take b contiguous along K."""
    activation = config.choice(GATED)
    order_b = "c" if activation in PAIRED and target.device != "cpu" else orders[1]
    return {"activation": activation, "c": None, "orders": f"{orders[0]}{order_b}r"}


def draw_split(config: random.Random, target: Target) -> dict[str, Any]:
    mode = config.choice(MODES)
    kernel = config.choice(("auto", "auto", "sm90", "portable"))
    slices = None
    if mode not in ("none", "auto") and config.random() < 0.85:
        slices = config.choice((1, 2, 3, 4, 5, 8, 16) if mode == "cluster" else (2, 3, 5, 16, 37))
    return {
        "mode": mode,
        "kernel": "auto" if target.device == "cpu" else kernel,
        "slices": slices,
        "precision": config.choice(("tf32", "ieee", "tf32x3", "bf16x3")),
    }


def settle_split(given: dict[str, Any], k: int, k_contiguous: bool, device: str) -> dict[str, Any]:
    """The drawn kernel, mode and slices, made such that products of this K are served."""
    kernel, mode = given["kernel"], given["mode"]
    precision = given["precision"] if given["dtype"] == "float32" else "tf32"
    by_tma = given["align"] == 16 and k > 0
    if kernel == "sm90" and not (by_tma and (given["dtype"] in HALVES or k_contiguous)):
        kernel = "auto"
    if kernel == "sm90" and precision != "tf32":
        kernel = "auto"
    if given["activation"] in GATED and mode == "cluster" and device != "cpu":
        mode = "parallel"
    slices = least(given["slices"], k)
    if mode == "cluster" and slices and given.get("found_scales"):
        slices = min(slices, 3)
    return {"kernel": kernel, "mode": mode, "slices": slices, "precision": precision}


def draw_epilogue(config: random.Random, has_c: bool = True) -> dict[str, Any]:
    """Without the bias, whose forms differ."""
    given: dict[str, Any] = {"activation": config.choice(("none", "none", "none", *ELEMENTWISE))}
    if has_c and config.random() < 0.4:
        given["c"] = config.choice(("D", "own", *FLOATS))
    return given


def settle_c(given: dict[str, Any]) -> dict[str, Any]:
    """The drawn c: of D's own type, or D itself if there is one; to int32 nothing else is added."""
    c, own = given.get("c"), given["out_dtype"]
    if c == "own" or (c == "D" and not given["out_given"]):
        c = own
    if own == "int32" and c not in (None, "D"):
        c = own
    return {"c": c}


def draw_scalars(rng: random.Random, has_c: bool, whole: bool = False) -> dict[str, Any]:
    """whole: factors of integers."""
    given: dict[str, Any] = {"alpha": rng.choice((1.0, 1.0, 1.0, 0.5, -2.0, 0.25, -1.0))}
    if whole:
        given["alpha"] = rng.choice((1, 1, -2, 3)) if has_c else 1.0
        return given | ({"beta": rng.choice((None, 1, -1, 2, 0))} if has_c else {})
    if has_c:
        given["beta"] = rng.choice((None, None, 1.0, -0.5, 2.0, 0.0))
    return given


def draw_form(config: random.Random, rng: random.Random, names: str) -> dict[str, Any]:
    """align by configuration, gaps by problem."""
    align = config.choice((16, 16, 16, 8, 4, 1))
    chosen = {name: rng.choice((0, 0, 1, 3, 8)) for name in names}
    shift = rng.choice((0, 0, 1, 3)) if align == 1 else 0
    return {"align": align, "gaps": {n: g for n, g in chosen.items() if g}, "shift": shift}


def least(slices: int | None, k: int) -> int | None:
    """As many slices as K has room for."""
    return slices if slices is None else max(1, min(slices, k)) if k else None
