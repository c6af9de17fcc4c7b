"""cleave.moe: sorting tokens by expert, gathering and summing their rows."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from .bound import Expected, Sums, expected
from .dense import draw_sizes, limited
from .operand import Operand, float64, matrix, packed
from .problem import FLOATS, Call, Problem, Target

FUNCTIONS = ("expert_offsets", "sort_tokens", "permute", "gather", "unpermute")


@dataclass
class Moe(Problem):
    """function: of cleave.moe. columns: of a token. ids reach one beyond the experts if `dropping`.

    weights: their dtype.
    """

    operation: ClassVar[str] = "moe"
    function: str = "permute"
    tokens: int = 1
    top_k: int = 1
    experts: int = 1
    columns: int = 1
    dtype: str = "float32"
    wide: bool = False
    dropping: bool = False
    weights: str | None = None
    gap: int = 0
    align: int = 16

    def ids(self) -> torch.Tensor:
        """Drawn on the host, since indices follow from them."""
        drawn = torch.Generator().manual_seed(self.seed)
        low, high = (-1, self.experts + 1) if self.dropping else (0, self.experts)
        return torch.randint(low, high, (self.tokens, self.top_k), generator=drawn)

    def sorted(self) -> tuple[torch.Tensor, torch.Tensor]:
        """offs and indices."""
        ids = self.ids().reshape(-1)
        dropped = (ids < 0) | (ids >= self.experts)
        bins = torch.where(dropped, self.experts, ids)
        slots = bins.argsort(stable=True)
        offs = bins.bincount(minlength=self.experts + 1).cumsum(0)[: self.experts]
        return offs, torch.where(dropped[slots], ~slots, slots)

    def call(self) -> Call:
        slots = self.tokens * self.top_k
        given: dict[str, Any] = {}
        if self.function in ("permute", "gather"):
            given["x"] = self.rows("x", self.tokens)
        if self.function == "unpermute":
            given["y"] = self.rows("y", slots)
        if self.function in ("gather", "unpermute"):
            literal = tuple(self.sorted()[1].tolist())
            given["indices"] = packed("indices", (slots,), "int32", literal=literal)
            if self.weights:
                contents = ("normal", 1.0, self.seed * 16 + 1)
                given["weights"] = packed("weights", (self.tokens, self.top_k), self.weights, contents=contents)
            elif self.function == "unpermute":
                given["top_k"] = self.top_k
        else:
            literal = tuple(self.ids().reshape(-1).tolist())
            dtype = "int64" if self.wide else "int32"
            given["expert_ids"] = packed("expert_ids", (self.tokens, self.top_k), dtype, literal=literal)
            given["num_experts"] = self.experts
        return Call(f"moe.{self.function}", given)

    def rows(self, name: str, count: int) -> Operand:
        contents = ("normal", 1.0 if self.dtype in FLOATS else 40.0, self.seed * 16)
        shape = (count, self.columns)
        return matrix(name, shape, self.dtype, align=self.align, gap=self.gap, contents=contents)

    def plan(self, arrays: dict[str, torch.Tensor]) -> Any:
        return None

    def expected(self, arrays: dict[str, torch.Tensor]) -> dict[str, Expected]:
        device = next(iter(arrays.values())).device
        offs, indices = (x.to(device) for x in self.sorted())
        of_offs, of_indices = Expected(offs.double()), Expected(indices.double())
        match self.function:
            case "expert_offsets":
                return {"0": of_offs}
            case "sort_tokens":
                return {"0": of_offs, "1": of_indices}
            case "unpermute":
                return {"0": self.summed(arrays, indices)}
        rows = float64(arrays["x"])[torch.where(indices < 0, ~indices, indices) // self.top_k]
        rows = Expected(torch.where((indices < 0)[:, None], 0.0, rows))
        return {"0": rows, "1": of_offs, "2": of_indices} if "perm" in self.function else {"0": rows}

    def summed(self, arrays: dict[str, torch.Tensor], indices: torch.Tensor) -> Expected:
        """Each token's rows: top_k roundings of float32, of products and of sums."""
        kept = indices >= 0
        weights = torch.ones(self.tokens, self.top_k, dtype=torch.float64, device=indices.device)
        if "weights" in arrays:
            weights = arrays["weights"].double()
        y = float64(arrays["y"])
        terms = torch.where(kept[:, None], y, 0.0)
        slots = torch.where(kept, indices, 0)
        terms = terms * weights.reshape(-1)[slots][:, None]
        value = y.new_zeros(self.tokens, self.columns)
        tokens = slots // self.top_k
        magnitude = value.index_add(0, tokens, terms.abs())
        value = value.index_add(0, tokens, terms)
        bound = 2 * (self.top_k + 1) * 2.0**-24 * magnitude
        return expected(Sums(value, bound, magnitude), getattr(torch, self.dtype))

    def smaller(self) -> list[dict[str, Any]]:
        tried: list[dict[str, Any]] = [
            {name: value}
            for name, value in (("dropping", False), ("wide", False), ("weights", None),
                                ("gap", 0), ("align", 16))
            if getattr(self, name) != value
        ]  # fmt: skip
        for name in ("tokens", "top_k", "experts", "columns"):
            value = getattr(self, name)
            tried += [{name: x} for x in (1, value // 2, value - 1) if 0 < x < value]
        return tried


def draw_moe(config: random.Random, rng: random.Random, target: Target) -> Moe:
    function = config.choice(FUNCTIONS)
    sizes, top_k = draw_sizes(config, rng, target), rng.choice((1, 2, 3, 4, 8))
    sizes = limited(sizes | {"k": 0}, target, top_k)
    dtypes = FLOATS if function == "unpermute" else (*FLOATS, "int8")
    return Moe(
        function=function,
        tokens=sizes["m"],
        top_k=top_k,
        experts=rng.choice((1, 2, 8, 64, 257, 1024)),
        columns=max(1, sizes["n"]),
        dtype=config.choice(dtypes),
        wide=config.random() < 0.4,
        dropping=rng.random() < 0.4,
        weights=config.choice((None, *FLOATS)) if function == "unpermute" else None,
        gap=rng.choice((0, 0, 1, 3)),
        align=config.choice((16, 16, 4, 1)),
        seed=rng.getrandbits(32),
        contents="normal",
        device=target.device,
    )
