"""A router's product, bfloat16 tokens times float32 weights, after an ordinary kernel of the same graph.

    python -m bench.router_logits        # a table: marginal microseconds (between.py) with cold weights

Every call has weights of its own, together more than the second-level cache holds, and all contenders take turns. torch
multiplies tokens that are float32 already, by cuBLAS with allow_tf32 off; `parts` is cleave.gemm of the same
with precision="tf32x3".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import cleave
import cleave.torch
from cleave.testing.measure import set_count

from .between import Between, medians

SHAPES = ((8, 6144), (128, 2048), (128, 6144), (256, 7168), (512, 4096))  # experts, features
TOKENS = (1, 2, 4, 8, 16, 64, 256, 512)
MOST_SETS = 48  # as many as there are calls in a graph
ROUNDS = 7


def forms(tokens: int, experts: int, features: int) -> dict[str, Callable[[torch.Tensor], Any]]:
    """Each contender: from a weight to its logits."""
    x = torch.randn(tokens, features, device="cuda").bfloat16()
    wide, out = x.float(), torch.empty(tokens, experts, device="cuda")
    return {
        "logits": lambda w: torch.ops.cleave.moe_router_logits(x, w),
        "static": lambda w: torch.ops.cleave.moe_router_logits(x, w, True),
        "torch": lambda w: torch.mm(wide, w.t(), out=out),
        "parts": lambda w: cleave.gemm(wide, w.t(), out=out, precision="tf32x3"),
    }


def main() -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    between = Between()
    print(f"{'N x K':14}{'tokens':>7}{'logits':>9}{'static':>9}{'torch':>9}{'ratio':>7}{'parts':>9}   us")
    for experts, features in SHAPES:
        count = min(set_count(4 * experts * features), MOST_SETS)
        weights = [torch.randn(experts, features, device="cuda") for _ in range(count)]
        for tokens in TOKENS:
            samples, expected = {}, None
            for name, form in forms(tokens, experts, features).items():
                made = form(weights[0]).double()
                expected = made if expected is None else expected
                torch.testing.assert_close(made, expected, rtol=1e-4, atol=1e-3)
                samples[name] = between.timed(lambda i, form=form, weights=weights: form(weights[i % len(weights)]))
            us = medians(samples, ROUNDS)
            row = f"{f'{experts} x {features}':14}{tokens:7}{us['logits']:9.2f}{us['static']:9.2f}{us['torch']:9.2f}"
            print(f"{row}{us['torch'] / us['logits']:7.2f}{us['parts']:9.2f}", flush=True)


if __name__ == "__main__":
    main()
