"""cleave.mixed_gemm, by the tensors of its weight."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

import cleave
from cleave._weights.experts import stack
from cleave._weights.formats import E2M1, int4_values, scaled, scales_as_floats
from cleave._weights.layout import unpack_codes

from .bound import Sums, product
from .dense import Gemm, completed, draw_sizes
from .epilogue import draw_epilogue, draw_form, draw_split, least
from .operand import Operand, packed
from .problem import FLOATS, HALVES, Call, Target, plan_call

# What rounding an element to a type costs.
_ROUNDOFF = {"bfloat16": 2.0**-8, "float16": 2.0**-11}
_LEAST = 2.0**-24  # of float16's elements


@dataclass
class MixedGemm(Gemm):
    """weights: the format. group: columns that share a scale. by_row: rows have global scales of their own."""

    operation: ClassVar[str] = "mixed_gemm"
    weights: str = "int4"
    group: int = 32
    zeros: bool = False
    by_row: bool = False

    def call(self) -> Call:
        given = super().call().keywords
        del given["b"]
        lead = () if self.batches[1] is None else (self.batches[1],)
        blocks = (-(-self.n // 64), -(-self.k // 64), 2048)
        groups = (*lead, self.k // self.group, self.n)
        given["packed"] = self._bytes("packed", (*lead, *blocks), ("codes", 255), 4)
        given["scales"] = self._scales(groups)
        given |= {"out_features": self.n, "group_size": self.group, "format": self.weights}
        if self.zeros:
            given["zeros"] = self._bytes("zeros", groups, ("codes", 15), 6)
        if self.weights == "nvfp4":
            shape = (*lead, self.n) if self.by_row else (lead or (1,))
            contents = ("powers", 3, self.seed * 16 + 7)
            given["global_scale"] = packed("global_scale", shape, "float32", contents=contents)
        return Call("_core.mixed_gemm", given)

    def _bytes(self, name: str, shape: tuple[int, ...], contents: tuple[str, float], i: int) -> Operand:
        return packed(name, shape, "uint8", contents=(*contents, self.seed * 16 + i))

    def _scales(self, shape: tuple[int, ...]) -> Operand:
        if self.weights == "mxfp4":
            return self._bytes("scales", shape, ("exponents", 6), 5)
        if self.weights == "nvfp4":
            return packed("scales", shape, "float8_e4m3fn", contents=("codes", 126, self.seed * 16 + 5))
        return packed("scales", shape, self.dtype, contents=("normal", 0.1, self.seed * 16 + 5))

    def plan(self, arrays: dict[str, torch.Tensor]) -> Any:
        return plan_call(cleave._core.plan_mixed_gemm, self.call(), arrays)

    def sums(self, arrays: dict[str, torch.Tensor]) -> Sums:
        a, b = arrays["a"].double(), self.weight(arrays)
        # Where sums of codes are scaled instead of elements, that loses a fifth of it (of float16; docs/notes).
        sums = product(a, b.mT, self.accumulator(self.k).relative + _ROUNDOFF[self.dtype])
        small = a.abs().sum(-1, keepdim=True) * (_LEAST * self._largest(arrays))
        return Sums(sums.value, sums.bound + small, sums.magnitude)

    def _largest(self, arrays: dict[str, torch.Tensor]) -> float:
        return float(arrays["global_scale"].max()) if self.weights == "nvfp4" else 1.0

    def weight(self, arrays: dict[str, torch.Tensor]) -> torch.Tensor:
        """[..., N, K]."""
        if self.batches[1] is None:
            return self._weight(arrays)
        names = [name for name in ("packed", "scales", "zeros", "global_scale") if name in arrays]
        each = [self._weight({name: arrays[name][i] for name in names}) for i in range(self.batches[1])]
        return stack(each) if each else arrays["a"].new_zeros((0, self.n, self.k), dtype=torch.float64)

    def _weight(self, arrays: dict[str, torch.Tensor]) -> torch.Tensor:
        codes = unpack_codes(arrays["packed"], self.n, self.k)
        scales = scales_as_floats(torch, arrays["scales"]).double()
        if self.weights == "int4":
            zeros = arrays["zeros"].double() if self.zeros else None
            return int4_values(codes.double(), scales, zeros)
        values = torch.tensor(E2M1, dtype=torch.float64, device=codes.device)[codes.long()]
        values = scaled(values, scales)
        return values * arrays["global_scale"].double().reshape(-1, 1) if self.weights == "nvfp4" else values

    def smaller(self) -> list[dict[str, Any]]:
        tried: list[dict[str, Any]] = [{"zeros": False}, {"by_row": False}]
        kept = [fields for fields in tried if any(getattr(self, n) != x for n, x in fields.items())]
        # K in whole groups.
        return kept + [fields for fields in super().smaller() if fields.get("k", self.k) % self.group == 0]


def draw_mixed_gemm(config: random.Random, rng: random.Random, target: Target) -> MixedGemm:
    dtype = config.choice(HALVES)
    weights = config.choice(("int4", "int4", "mxfp4", "nvfp4"))
    given: dict[str, Any] = draw_epilogue(config) | draw_split(config, target)
    given |= {
        "dtype": dtype,
        "out_dtype": config.choice((dtype, dtype, *FLOATS)),
        "orders": f"rc{config.choice('rc')}",
        "out_given": config.random() < 0.9,
        "bias": config.choice((None, None, "row", "row2", "column")),
        "bias_dtype": config.choice(FLOATS),
        "kernel": "auto" if target.device == "cpu" else config.choice(("auto", "sm90", "streamed")),
        "weights": weights,
        "zeros": weights == "int4" and config.random() < 0.5,
        "by_row": weights == "nvfp4" and config.random() < 0.3,
    }
    given |= draw_form(config, rng, ("a", "c", "out"))
    given |= draw_sizes(config, rng, target)
    count = rng.randint(1, 4)
    given["batches"] = config.choice(((None, None), (None, None), (count, count), (count, 1), (1, count)))
    given["n"] = max(given["n"], 1)
    given = completed(given, rng, target)
    group = config.choice((32, 64, 128, 0)) if weights == "int4" else 32 if weights == "mxfp4" else 16
    unit = group or 8
    given["k"] = max(given["k"] // unit, 1) * unit
    given["slices"] = least(given["slices"], given["k"])
    if target.device == "cuda":
        given |= settle_kernel(given)
    given |= {"group": group or given["k"], "contents": "normal"}
    return MixedGemm(**given, device=target.device)


def settle_kernel(given: dict[str, Any]) -> dict[str, Any]:
    """The drawn kernel and mode, made such that a kernel serves x in rows of this alignment."""
    kernel, mode = given["kernel"], given["mode"]
    if kernel == "sm90" and given["align"] < 16:
        kernel = "auto"
    if (kernel == "streamed" or given["align"] < 16) and mode not in ("auto", "none"):
        mode = "parallel"
    return {"kernel": kernel, "mode": mode}
