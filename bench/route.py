"""A router's step: from logits to expert ids and weights, cleave.moe.route against torch's operators.

    python -m bench.route        # a table: eager calls, and graphs with a small kernel between them (between.py)

Both sides take turns. They start from the same logits and end with ids and weights of the same experts, which is
checked before anything is timed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import cleave.torch  # noqa: F401 - torch.ops.cleave

from .between import Between, medians

CALLS = 20
ROUNDS = 15
SHAPES = (  # title, experts, top_k, options
    ("softmax, top 8 of 128", 128, 8, {}),
    ("softmax, top 4 of 32", 32, 4, {}),
    ("softmax before top 6 of 64", 64, 6, {"renormalize": False}),
    (
        "DeepSeek-V3, top 8 of 256",
        256,
        8,
        {"scoring_func": "sigmoid", "n_group": 8, "topk_group": 4, "routed_scaling_factor": 2.5},
    ),
)
TOKENS = (1, 16, 64, 256, 1024, 4096, 16384)


def of_torch(logits: torch.Tensor, top_k: int, bias: torch.Tensor | None, options: dict[str, Any]) -> tuple[Any, Any]:
    """As models write it: transformers' mixtures, or its DeepSeek-V3."""
    if "n_group" in options:
        scores = logits.sigmoid()
        choice = scores + bias
        groups = choice.view(len(logits), options["n_group"], -1)
        best = groups.topk(2, dim=-1)[0].sum(-1)
        kept = best.topk(options["topk_group"], dim=-1, sorted=False)[1]
        mask = torch.zeros_like(best).scatter_(1, kept, 1)
        mask = mask.unsqueeze(-1).expand_as(groups).reshape(choice.shape)
        ids = choice.masked_fill(~mask.bool(), float("-inf")).topk(top_k, dim=-1, sorted=False)[1]
        weights = scores.gather(1, ids)
        return weights / (weights.sum(-1, keepdim=True) + 1e-20) * options["routed_scaling_factor"], ids
    if options.get("renormalize", True):
        best, ids = logits.topk(top_k, dim=-1)
        return best.softmax(-1), ids
    return logits.softmax(-1).topk(top_k, dim=-1)


def eager(call: Callable[[], Any]) -> Callable[[], float]:
    """A function that returns microseconds of a call, of several that are made one after the other."""

    def sample() -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        start.record()
        for _ in range(CALLS):
            call()
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end) * 1e3 / CALLS

    sample()
    return sample


def main() -> None:
    between = Between()
    print(f"{'router':28}{'tokens':>7}  eager us: cleave, torch, ratio     graph us: cleave, torch, ratio")
    for title, experts, top_k, options in SHAPES:
        for tokens in TOKENS:
            torch.manual_seed(0)
            logits = torch.randn(tokens, experts, device="cuda")
            bias = torch.randn(experts, device="cuda") * 0.1 if "n_group" in options else None
            form = {"bias": bias, **options}
            ours = lambda: torch.ops.cleave.moe_route(logits, top_k, **form)  # noqa: B023, E731
            theirs = lambda: of_torch(logits, top_k, bias, options)  # noqa: B023, E731
            weights, ids = ours()
            expected, expected_ids = theirs()
            places, expected_places = ids.long().sort(1), expected_ids.sort(1)
            same = (places[0] == expected_places[0]).all(1)
            assert same.float().mean() > 0.98
            pairs = weights.gather(1, places[1])[same], expected.gather(1, expected_places[1])[same]
            torch.testing.assert_close(*pairs, rtol=1e-5, atol=1e-7)
            calls = {"cleave": ours, "torch": theirs}
            row = []
            for timed in (eager, lambda call: between.timed(lambda i: call())):
                a, b = medians({name: timed(call) for name, call in calls.items()}, ROUNDS).values()
                row.append(f"{a:9.2f} {b:9.2f} {b / a:7.2f}")
            print(f"{title:28}{tokens:7}  {'      '.join(row)}", flush=True)


if __name__ == "__main__":
    main()
