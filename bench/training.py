"""python -m bench.training: a decoder layer's step in 8-bit floats, forward and backward, beside bfloat16.

Norms, linear layers and gates of two models' layers, 16384 tokens, all under torch.compile and in CUDA graphs, in
turns. Attention is left out: the first columns of the product with q, k and v stand for what it gives. Gradients are of
the tokens and of all parameters, which are in bfloat16. With --whole, whole steps, too: embedding, two layers with
attention (2048 tokens a sequence, without rotation of places), head, loss and AdamW.

Results in 8 bits are compared with those in bfloat16 before they are timed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from cleave.testing import measure
from cleave.testing.arrays import TorchArrays
from cleave.torch import Float8Linear, convert_to_float8_training

from . import pairs
from .chain import Sizes
from .kept_rows import KeptRows

# Those of Llama-3.2-1B and Llama-3-8B, by hidden features, and how far ahead of bfloat16 the layer should be.
SIZES = {2048: Sizes(2048, 3072, 8192), 4096: Sizes(4096, 6144, 14336)}
BARS = {2048: 1.20, 4096: 1.30}
TOKENS = 16384
RECIPES = ("blockwise", "rowwise")
BFLOAT16 = "bfloat16"

# What the whole step has.
LAYERS, HEADS, SEQUENCE, VOCABULARY = 2, 32, 2048, 32000

MOST_ERROR = 0.12  # in the norm of each gradient

Compile = Callable[[nn.Module], Callable[..., Any]]


class Layer(nn.Module):
    """attends: with attention in it."""

    def __init__(self, sizes: Sizes, attends: bool = False):
        super().__init__()
        self.sizes, self.attends = sizes, attends
        self.attention_norm, self.mlp_norm = nn.RMSNorm(sizes.hidden), nn.RMSNorm(sizes.hidden)
        self.linears = nn.ModuleDict({name: nn.Linear(k, n, bias=False) for name, (n, k) in sizes.linears.items()})

    def forward(self, x: Tensor) -> Tensor:
        qkv = self.linears["qkv"](self.attention_norm(x))
        x = x + self.linears["o"](self._attention(qkv) if self.attends else qkv[:, : self.sizes.hidden])
        gate, up = self.linears["gate_up"](self.mlp_norm(x)).chunk(2, -1)
        return x + self.linears["down"](functional.silu(gate) * up)

    def _attention(self, qkv: Tensor) -> Tensor:
        """Several heads of q share one of k and v; each SEQUENCE of tokens is by itself."""
        size = self.sizes.hidden // HEADS
        sequences = qkv.unflatten(0, (-1, min(SEQUENCE, len(qkv)))).unflatten(-1, (-1, size)).transpose(1, 2)
        shared = (sequences.shape[1] - HEADS) // 2
        q, k, v = sequences.split((HEADS, shared, shared), 1)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return mixed.transpose(1, 2).flatten(2).flatten(0, 1)


class Model(nn.Module):
    def __init__(self, sizes: Sizes, vocabulary: int):
        super().__init__()
        self.words = nn.Embedding(vocabulary, sizes.hidden)
        self.layers = nn.Sequential(*(Layer(sizes, attends=True) for _ in range(LAYERS)))
        self.norm = nn.RMSNorm(sizes.hidden)
        self.head = nn.Linear(sizes.hidden, vocabulary, bias=False)

    def forward(self, words: Tensor) -> Tensor:
        """The loss: each word is to be found again."""
        scores = self.head(self.norm(self.layers(self.words(words))))
        return functional.cross_entropy(scores.float(), words)


def made(make: Callable[[], nn.Module], recipe: str, device: str) -> nn.Module:
    """The same parameters for each recipe; heads keep their 16 bits."""
    torch.manual_seed(0)
    with torch.device(device):
        model = make().bfloat16()
    if recipe != BFLOAT16:
        convert_to_float8_training(model, recipe, skip=lambda name, _: name == "head")
    return model


class LayerStep:
    """Gradients of the tokens and of the layer's parameters."""

    def __init__(self, arrays: TorchArrays, sizes: Sizes, tokens: int, recipe: str, compiled: Compile):
        layer = made(lambda: Layer(sizes), recipe, str(arrays.device))
        self._x = arrays.normal((tokens, sizes.hidden), "bfloat16", 1).requires_grad_()
        self._dy = arrays.normal((tokens, sizes.hidden), "bfloat16", 2)
        self._of = [self._x, *layer.parameters()]
        self._layer = compiled(layer)

    def __call__(self, _: int = 0) -> tuple[Tensor, ...]:
        return torch.autograd.grad(self._layer(self._x), self._of, self._dy)


class WholeStep:
    """The loss, and new parameters."""

    def __init__(self, arrays: TorchArrays, sizes: Sizes, tokens: int, recipe: str, compiled: Compile):
        model = made(lambda: Model(sizes, VOCABULARY), recipe, str(arrays.device))
        draw = torch.Generator().manual_seed(1)
        self._words = torch.randint(VOCABULARY, (tokens,), generator=draw).to(arrays.device)
        on_gpu = {"fused": True, "capturable": True} if arrays.on_gpu else {}
        self._optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, **on_gpu)
        self._model = compiled(model)

    def __call__(self, _: int = 0) -> tuple[Tensor]:
        self._optimizer.zero_grad(set_to_none=True)
        loss = self._model(self._words)
        loss.backward()
        self._optimizer.step()
        return (loss.detach(),)


STEPS = {"layer": LayerStep, "whole step": WholeStep}


def errors_of(steps: dict[str, Callable[[], Sequence[Tensor]]]) -> dict[str, float]:
    """Those of all but bfloat16's own step, against that."""
    expected = steps[BFLOAT16]()
    return {name: error(step(), expected) for name, step in steps.items() if name != BFLOAT16}


def error(found: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """The largest of all tensors, relative to its norm."""
    both = zip(found, expected, strict=True)
    return max(float((x.float() - y.float()).norm() / y.float().norm()) for x, y in both)


def measured(
    arrays: TorchArrays, job: str, hidden: int, tokens: int, recipes: Sequence[str], compiled: Compile, rounds: int
) -> dict[str, Any]:
    """One row. RuntimeError if a recipe's results are far from bfloat16's."""
    steps = {name: STEPS[job](arrays, SIZES[hidden], tokens, name, compiled) for name in (BFLOAT16, *recipes)}
    errors: dict[str, float] = {}
    measure.run_to_completion(arrays, lambda: arrays.on_stream(lambda: errors.update(errors_of(steps))))
    wrong = [f"{name} ({far:.2g})" for name, far in errors.items() if not far <= MOST_ERROR]
    if wrong:
        raise RuntimeError(f"{job}, hidden {hidden}: far from bfloat16 are {', '.join(wrong)}")
    graphs = measure.rotating_graphs(arrays, list(steps.values()), sets=1)
    us = dict(zip(steps, measure.interleaved(graphs, rounds), strict=True))
    return {
        "job": job,
        "case": title(hidden, tokens),
        "hidden": hidden,
        "us": us.pop(BFLOAT16),
        "recipes": {name: {"us": time, "error": errors[name]} for name, time in us.items()},
    }


def title(hidden: int, tokens: int) -> str:
    return f"hidden {hidden}, {tokens} tokens"


def lines(row: dict[str, Any]) -> Iterator[str]:
    yield f"{row['job']}, {row['case']}: bfloat16 {row['us']:.0f} us"
    ahead = {name: row["us"] / of["us"] for name, of in row["recipes"].items()}
    for name, of in row["recipes"].items():
        yield f"  {name:20} {of['us']:8.0f} us, {ahead[name]:.3f} of bfloat16's speed, error {of['error']:.3f}"
    if row["job"] == "layer":
        bar = BARS[row["hidden"]]
        yield f"  asked {bar:.2f}: {'met' if max(ahead.values()) >= bar else 'missed'}"


def multiply_once(hidden: int, name: str, tokens: int, recipe: str, device: str = "cuda") -> None:
    """Compiles the three products of one linear layer, into the cache on disk."""
    n, k = SIZES[hidden].linears[name]
    layer = Float8Linear(k, n, bias=False, device=device, dtype=torch.bfloat16, recipe=recipe)
    x = torch.ones(tokens, k, device=device, dtype=torch.bfloat16, requires_grad=True)
    layer(x).backward(torch.ones(tokens, n, device=device, dtype=torch.bfloat16))


def compile_products(hiddens: Sequence[int], tokens: int, recipes: Sequence[str]) -> None:
    """Side by side, before they are wanted."""
    with pairs.compilers() as pool:
        wanted = [
            pool.submit(multiply_once, hidden, name, tokens, recipe)
            for hidden in hiddens
            for name in SIZES[hidden].linears
            for recipe in recipes
        ]
        for each in wanted:
            each.result()


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.training", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hidden", type=int, nargs="+", default=list(SIZES), choices=SIZES)
    parser.add_argument("--recipes", default=",".join(RECIPES), help="of cleave.torch.Float8Linear")
    parser.add_argument("--tokens", type=int, default=TOKENS)
    parser.add_argument("--whole", action="store_true", help="whole steps, too")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=540, help="start no row after this long")
    parser.add_argument("--out", type=Path, default=Path("bench/results/training.json"))
    arguments = parser.parse_args(argv)
    kept, recipes = KeptRows(arguments.out, arguments.seconds), arguments.recipes.split(",")
    cases = [(title(hidden, arguments.tokens), hidden) for hidden in arguments.hidden]
    missing = {job: kept.missing(job, cases) for job in list(STEPS)[: 2 if arguments.whole else 1]}
    compile_products(sorted({hidden for of_job in missing.values() for hidden in of_job}), arguments.tokens, recipes)
    arrays = TorchArrays("cuda:0")
    for job, hidden in [(job, hidden) for job, of_job in missing.items() for hidden in of_job]:
        if kept.time_is_up:
            continue
        torch._dynamo.reset()  # another layer is not another shape of the last one
        compiled = lambda model: torch.compile(model, fullgraph=True, dynamic=False)  # noqa: E731
        kept.add(measured(arrays, job, hidden, arguments.tokens, recipes, compiled, arguments.rounds))
        print(*lines(kept.rows[-1]), sep="\n", flush=True)
        torch.cuda.empty_cache()  # graphs have memory of their own
    return 0


if __name__ == "__main__":
    sys.exit(main())
