"""What a MoE layer keeps of a step for its backward pass, in bytes a token: python -m bench.activation_memory.

Counted by torch's hooks of saved tensors, on the CPU, which keeps what a GPU does. Parameters are not counted, but
8-bit copies of weights are, apart from what is kept of tokens. Beside ours: the same experts as torch.nn.functional
has them, one by one, of the same router.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

import cleave.torch


@dataclass(frozen=True)
class Layer:
    """Sizes of a layer, and of a step."""

    experts: int = 16
    top_k: int = 8
    features: int = 2048
    hidden: int = 768
    tokens: int = 256

    def made(self, recipe: str | None) -> cleave.torch.MoE:
        torch.manual_seed(0)
        sizes = self.experts, self.top_k, self.features, self.hidden
        return cleave.torch.MoE(*sizes, recipe=recipe, dtype=torch.bfloat16)

    def input(self) -> torch.Tensor:
        return torch.randn(self.tokens, self.features).bfloat16().requires_grad_()


@dataclass(frozen=True)
class Kept:
    """Bytes: for each token, and of weights."""

    of_token: float
    of_weights: int


def kept(layer: Layer, moe: cleave.torch.MoE, run: Callable[[torch.Tensor], torch.Tensor]) -> Kept:
    """What a forward pass keeps; tensors that share memory count once."""
    known = {parameter.untyped_storage().data_ptr() for parameter in moe.parameters()}
    found: dict[int, torch.Tensor] = {}

    def keep(x: torch.Tensor) -> torch.Tensor:
        if x.untyped_storage().data_ptr() not in known:
            found.setdefault(x.untyped_storage().data_ptr(), x)
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        assert run(layer.input()).requires_grad
    # A matrix, or scales, for each expert are its weight's; the ends of groups are nobody's.
    of_weights = sum(x.untyped_storage().nbytes() for x in found.values() if x.dim() == 3 and len(x) == layer.experts)
    rest = sum(x.untyped_storage().nbytes() for x in found.values() if x.numel() > layer.experts)
    return Kept((rest - of_weights) / layer.tokens, of_weights)


def one_by_one(moe: cleave.torch.MoE, top_k: int, x: torch.Tensor) -> torch.Tensor:
    """The layer by torch's own operations."""
    weights, choices = moe.router(x).softmax(-1).topk(top_k)
    weights = weights / weights.sum(-1, keepdim=True)
    y = torch.zeros_like(x, dtype=torch.float32)
    for expert, (gate_up, down) in enumerate(zip(moe.gate_up.weight, moe.down.weight, strict=True)):
        token, place = (choices == expert).nonzero(as_tuple=True)
        gate, up = torch.nn.functional.linear(x[token], gate_up).chunk(2, -1)
        made = torch.nn.functional.linear(torch.nn.functional.silu(gate) * up, down)
        y = y.index_add(0, token, made * weights[token, place, None])
    return y.to(x.dtype)


def table(layer: Layer) -> list[str]:
    """A table of Markdown."""
    plain, in_8_bits = layer.made(None), layer.made("blockwise")
    rows = {
        "torch's operations, expert by expert, bf16": kept(layer, plain, lambda x: one_by_one(plain, layer.top_k, x)),
        "`MoE`, bf16": kept(layer, plain, plain),
        '`MoE(recipe="blockwise")`, fp8': kept(layer, in_8_bits, in_8_bits),
    }
    lines = [
        "| | bytes a token | of it, of `top_k` rows of `features` in bf16 | weights in 8 bits |",
        "|---|---|---|---|",
    ]
    row_bytes = 2 * layer.top_k * layer.features
    for name, found in rows.items():
        weights = f"{found.of_weights / layer.experts / 1e6:.1f} MB an expert" if found.of_weights else ""
        lines.append(f"| {name} | {found.of_token:,.0f} | {found.of_token / row_bytes:.2f} | {weights} |")
    return lines


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sizes: dict[str, Any] = vars(Layer())
    for name, value in sizes.items():
        parser.add_argument("--" + name.replace("_", "-"), type=int, default=value)
    print("\n".join(table(Layer(**vars(parser.parse_args(arguments))))))


if __name__ == "__main__":
    main()
