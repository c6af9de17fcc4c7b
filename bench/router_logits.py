"""A router's product, bfloat16 tokens times float32 weights, after an ordinary kernel of the same graph.

    python -m bench.router_logits        # a table: marginal microseconds with cold weights

Every call has weights of its own, together more than the second-level cache holds. torch multiplies
tokens that are float32 already, by cuBLAS with allow_tf32 off; `parts` is cleave.gemm of the same
with precision="tf32x3".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import cleave
import cleave.torch

from .route import CALLS, timed

SHAPES = ((8, 6144), (128, 2048), (128, 6144), (256, 7168), (512, 4096))  # experts, features
TOKENS = (1, 2, 4, 8, 16, 64, 256, 512)
CACHE = 80 << 20


def in_graph(call: Callable[[int], Any], noise: torch.Tensor) -> float:
    """Microseconds that call(i) adds to a kernel before it."""

    def run(with_call: bool) -> float:
        call(0)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for i in range(CALLS):
                noise.add_(1.0)
                if with_call:
                    call(i)
        return timed(graph.replay) / CALLS

    return run(True) - run(False)


def main() -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    print(f"{'N x K':14}{'tokens':>7}{'logits':>9}{'static':>9}{'torch':>9}{'ratio':>7}{'parts':>9}   us")
    for experts, features in SHAPES:
        sets = min(max(CACHE // (4 * experts * features), 1), CALLS)
        weights = [torch.randn(experts, features, device="cuda") for _ in range(sets)]
        for tokens in TOKENS:
            x = torch.randn(tokens, features, device="cuda").bfloat16()
            wide, noise = x.float(), torch.zeros(1 << 16, device="cuda")
            out = torch.empty(tokens, experts, device="cuda")
            forms: tuple[Callable[[torch.Tensor], Any], ...] = (
                lambda w: torch.ops.cleave.moe_router_logits(x, w),  # noqa: B023
                lambda w: torch.ops.cleave.moe_router_logits(x, w, True),  # noqa: B023
                lambda w: torch.mm(wide, w.t(), out=out),  # noqa: B023
                lambda w: cleave.gemm(wide, w.t(), out=out, precision="tf32x3"),  # noqa: B023
            )
            expected = forms[0](weights[0]).double()
            for form in forms:
                torch.testing.assert_close(form(weights[0]).double(), expected, rtol=1e-4, atol=1e-3)
            logits, static, theirs, parts = (
                in_graph(lambda i: form(weights[i % sets]), noise)  # noqa: B023
                for form in forms
            )
            row = f"{f'{experts} x {features}':14}{tokens:7}{logits:9.2f}{static:9.2f}{theirs:9.2f}"
            print(f"{row}{theirs / logits:7.2f}{parts:9.2f}", flush=True)


if __name__ == "__main__":
    main()
