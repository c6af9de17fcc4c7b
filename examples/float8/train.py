"""Trains a small language model in 8-bit floats, and beside it the same one in bfloat16.

    python examples/float8/train.py
    python examples/float8/train.py --recipe rowwise --width 512 --layers 8 --batch 64 --compile

The text is Python's own reference, as `help()` prints it; the model is a decoder of Llama's kind that reads
characters. Both models begin with the same float32 weights and see the same batches under torch.autocast: in one
cleave.torch.convert_to_float8_training has made the linear layers but the head multiply 8-bit floats, forward and
backward. Prints both losses, averaged over a twentieth of the steps at a time, and fails if the averages of the last
one differ by more than TOLERANCE.
"""

from __future__ import annotations

import argparse
import pydoc_data.topics
import time
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

import cleave.torch

# A share of bfloat16's loss.
TOLERANCE = 0.03


class Block(nn.Module):
    """Attention, then SwiGLU, each after a norm and added to what it read."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.attention_norm, self.mlp_norm = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.gate_up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(2 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        split = self.qkv(self.attention_norm(x)).unflatten(-1, (3, self.heads, -1))
        q, k, v = split.transpose(1, 3).unbind(2)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        gate, up = self.gate_up(self.mlp_norm(x)).chunk(2, -1)
        return x + self.down(functional.silu(gate) * up)


class Model(nn.Module):
    def __init__(self, characters: int, context: int, width: int, layers: int, heads: int):
        super().__init__()
        self.characters = nn.Embedding(characters, width)
        self.places = nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm = nn.RMSNorm(width)
        self.head = nn.Linear(width, characters, bias=False)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, text: Tensor, next_text: Tensor) -> Tensor:
        """The loss."""
        x = self.characters(text) + self.places.weight[: text.shape[1]]
        scores = self.head(self.norm(self.blocks(x)))
        return functional.cross_entropy(scores.flatten(0, 1).float(), next_text.flatten())


def read_text() -> tuple[Tensor, int]:
    """Python's reference by topics, as numbers of its characters, and how many there are."""
    text = "\n".join(pydoc_data.topics.topics[name] for name in sorted(pydoc_data.topics.topics))
    number = {character: i for i, character in enumerate(sorted(set(text)))}
    return torch.tensor([number[character] for character in text]), len(number)


def batches(text: Tensor, options: argparse.Namespace, device: str) -> Iterator[tuple[Tensor, Tensor]]:
    """Pieces of the text, and the same one character later; the same ones in every run."""
    generator = torch.Generator().manual_seed(1)
    for _ in range(options.steps):
        begins = torch.randint(len(text) - options.context, (options.batch, 1), generator=generator)
        pieces = text[begins + torch.arange(options.context + 1)].to(device)
        yield pieces[:, :-1], pieces[:, 1:]


class Trainer:
    def __init__(self, model: Model, options: argparse.Namespace, device: str):
        self._device = device
        self._model = torch.compile(model, fullgraph=True) if options.compile else model
        self._optimizer = torch.optim.AdamW(model.parameters(), lr=options.rate)
        self._schedule = torch.optim.lr_scheduler.OneCycleLR(self._optimizer, options.rate, options.steps)
        self.seconds = 0.0

    def step(self, text: Tensor, next_text: Tensor) -> float:
        """The loss before the step."""
        begun = time.perf_counter()
        with torch.autocast(self._device, torch.bfloat16):
            loss = self._model(text, next_text)
        loss.backward()
        self._optimizer.step()
        self._schedule.step()
        self._optimizer.zero_grad()
        value = loss.item()
        self.seconds += time.perf_counter() - begun
        return value


def main(arguments: Sequence[str] | None = None) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    parser = argparse.ArgumentParser(description="Trains a small language model in 8-bit floats.")
    parser.add_argument("--recipe", default="blockwise", help="of cleave.torch.Float8Linear")
    parser.add_argument("--grad-dtype", choices=("float8_e4m3fn", "float8_e5m2"))
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--compile", action="store_true", help="by torch.compile, both")
    options = parser.parse_args(arguments)

    text, characters = read_text()
    models = []
    for _ in range(2):
        torch.manual_seed(0)
        models.append(Model(characters, options.context, options.width, options.layers, options.heads).to(device))
    converted = cleave.torch.convert_to_float8_training(
        models[0], options.recipe, grad_dtype=options.grad_dtype, skip="head"
    )
    ours, beside = (Trainer(model, options, device) for model in models)
    print(f"{len(text)} characters; {len(converted)} layers in 8 bits, {options.recipe}")
    print("  steps    float8  bfloat16  difference")
    piece = max(1, options.steps // 20)
    losses = torch.zeros(2)
    for step, batch in enumerate(batches(text, options, device)):
        losses += torch.tensor([ours.step(*batch), beside.step(*batch)])
        if (step + 1) % piece == 0:
            loss, expected = (losses / piece).tolist()
            difference = loss / expected - 1
            print(f"{step + 1:7}  {loss:8.4f}  {expected:8.4f}  {difference:+10.2%}", flush=True)
            losses.zero_()
    print(f"a step took {ours.seconds / options.steps:.2e} s in 8 bits, {beside.seconds / options.steps:.2e} s beside")
    if not abs(difference) <= TOLERANCE:  # NaN, too
        raise SystemExit(f"the losses of the last {piece} steps differ by more than {TOLERANCE:.0%}")


if __name__ == "__main__":
    main()
