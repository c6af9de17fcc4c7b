"""cleave.moe.route and router_logits: which experts are best, their weights, and what is chosen by."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from .bound import Expected, Sums, expected, product
from .dense import draw_sizes, limited
from .operand import float64, matrix, packed
from .problem import FLOATS, Call, Problem, Target

_EPS = 2.0**-24
_STEP = 1 / 16  # between neighbouring logits of a token


@dataclass
class Router(Problem):
    """top_k: 0 for router_logits, else of route, whose choice float32 cannot leave open: logits are compared, or biases
    that differ by more than scores do, and groups by their best.
    """

    operation: ClassVar[str] = "route"
    tokens: int = 1
    experts: int = 1
    dtype: str = "float32"
    top_k: int = 1
    n_group: int = 1
    topk_group: int = 1
    sigmoid: bool = False
    biased: bool = False
    renormalize: bool = True
    factor: float = 1.0
    features: int = 1
    weight: str = "float32"
    static: bool = False
    gap: int = 0
    align: int = 16

    def shuffled(self, count: int, seed: int) -> torch.Tensor:
        """Every row 0 to experts - 1 in another order."""
        drawn = torch.Generator().manual_seed(seed)
        return torch.rand(count, self.experts, generator=drawn).argsort(1)

    def call(self) -> Call:
        if self.top_k == 0:
            form = {"align": self.align, "gap": self.gap}
            limit = 7.0 if self.contents == "integers" else 1.0
            x = matrix(
                "x", (self.tokens, self.features), self.dtype, contents=(self.contents, limit, self.seed), **form
            )
            weight = matrix(
                "weight",
                (self.experts, self.features),
                self.weight,
                contents=(self.contents, limit, self.seed + 1),
                **form,
            )
            return Call("moe.router_logits", {"x": x, "weight": weight, "static_weight": self.static})
        logits = (self.shuffled(self.tokens, self.seed) - self.experts // 2) * _STEP
        given: dict[str, Any] = {
            "logits": packed(
                "logits", (self.tokens, self.experts), self.dtype, literal=tuple(logits.flatten().tolist())
            ),
            "top_k": self.top_k,
            "scoring_func": "sigmoid" if self.sigmoid else "softmax",
            "n_group": self.n_group,
            "topk_group": self.topk_group,
            "group_score": "max",
            "renormalize": self.renormalize,
            "routed_scaling_factor": self.factor,
        }
        if self.biased:
            bias = tuple((2.0 * self.shuffled(1, self.seed + 1)).flatten().tolist())
            given["bias"] = packed("bias", (self.experts,), "float32", literal=bias)
        return Call("moe.route", given)

    def plan(self, arrays: dict[str, torch.Tensor]) -> Any:
        return None

    def expected(self, arrays: dict[str, torch.Tensor]) -> dict[str, Expected]:
        if self.top_k == 0:
            relative = None if self.contents == "integers" else (self.features + 16) * _EPS
            return {"0": expected(product(float64(arrays["x"]), float64(arrays["weight"]).mT, relative), torch.float32)}
        logits = float64(arrays["logits"])
        scores = logits.sigmoid() if self.sigmoid else logits.softmax(1)
        ids = self.best(float64(arrays["bias"]).expand_as(logits) if self.biased else logits)
        weights = scores.gather(1, ids)
        if self.renormalize:
            weights = weights / weights.sum(1, keepdim=True)
        weights = weights * self.factor
        # A difference of logits, an exponential of it, sums over experts, two quotients and a product.
        bound = 2 * (_STEP * self.experts + self.experts + 16) * _EPS * weights
        return {"0": expected(Sums(weights, bound, weights), torch.float32), "1": Expected(ids.double())}

    def best(self, compared: torch.Tensor) -> torch.Tensor:
        groups = compared.reshape(self.tokens, self.n_group, self.experts // self.n_group)
        order = groups.amax(2).argsort(dim=1, descending=True, stable=True)
        kept = torch.zeros_like(order, dtype=torch.bool).scatter(1, order[:, : self.topk_group], True)
        compared = groups.masked_fill(~kept[:, :, None], float("-inf")).flatten(1)
        return compared.argsort(dim=1, descending=True, stable=True)[:, : self.top_k]

    def smaller(self) -> list[dict[str, Any]]:
        simple = {"biased": False, "sigmoid": False, "renormalize": True, "factor": 1.0, "static": False, "gap": 0,
                  "align": 16}  # fmt: skip
        tried: list[dict[str, Any]] = [{name: value} for name, value in simple.items() if getattr(self, name) != value]
        if self.n_group > 1:
            tried.append({"n_group": 1, "topk_group": 1})
        for name in ("tokens", "features", "experts", "top_k"):
            value = getattr(self, name)
            least = max(1, self.top_k) if name == "experts" else 1
            if name != "experts" or self.n_group == 1:
                tried += [{name: x} for x in (1, value // 2, value - 1) if least <= x < value]
        return tried


def draw_router(config: random.Random, rng: random.Random, target: Target) -> Router:
    chooses = config.random() < 0.5
    sizes = limited(draw_sizes(config, rng, target), target)
    n_group = rng.choice((1, 1, 2, 4, 8, 32)) if chooses else 1
    group = rng.randint(1, 512 // n_group) if chooses and rng.random() < 0.2 else rng.randint(1, 64 // n_group)
    topk_group = rng.randint(1, n_group)
    return Router(
        tokens=sizes["m"],
        experts=n_group * group if chooses else max(1, sizes["n"]),
        dtype=config.choice(FLOATS),
        top_k=rng.randint(1, min(32, topk_group * group)) if chooses else 0,
        n_group=n_group,
        topk_group=topk_group,
        sigmoid=config.random() < 0.5,
        biased=config.random() < 0.4,
        renormalize=config.random() < 0.6,
        factor=rng.choice((1.0, 2.5)),
        features=sizes["k"],
        weight=config.choice(FLOATS),
        static=config.random() < 0.3,
        gap=rng.choice((0, 0, 1, 3)),
        align=config.choice((16, 16, 4, 1)),
        seed=rng.getrandbits(31),
        contents=rng.choice(("integers", "normal")),
        device=target.device,
    )
