"""A small language model as Llama's: attention and gated layers, or experts; and how it is dealt to ranks."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import parallelize_module
from torch.nn import functional

from cleave.torch import MoE, parallel

VOCABULARY, FEATURES, HEADS, HIDDEN, EXPERTS, TOP_K = 32, 64, 4, 128, 4, 2


class Attention(nn.Module):
    """Causal. Rows of qkv's weight are head by head, so that ranks have whole heads."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(FEATURES, 3 * FEATURES, bias=False)
        self.out = nn.Linear(FEATURES, FEATURES, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (-1, 3, FEATURES // HEADS)).transpose(1, 2).unbind(-2)
        heads = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(heads.transpose(1, 2).flatten(2))


class Gated(nn.Module):
    """down(silu(gate) * up), gates and ups in turn."""

    def __init__(self) -> None:
        super().__init__()
        self.gate_up = nn.Linear(FEATURES, 2 * HIDDEN, bias=False)
        self.down = nn.Linear(HIDDEN, FEATURES, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up(x).unflatten(-1, (-1, 2)).unbind(-1)
        return self.down(functional.silu(gate) * up)


class Block(nn.Module):
    def __init__(self, experts: bool) -> None:
        super().__init__()
        self.before_attention, self.before_feed = nn.RMSNorm(FEATURES), nn.RMSNorm(FEATURES)
        self.attention = Attention()
        self.feed = MoE(EXPERTS, TOP_K, FEATURES, HIDDEN) if experts else Gated()

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.before_attention(x))
        return x + self.feed(self.before_feed(x))


class Model(nn.Module):
    """Logits of the next token. Dealt, a rank is given, and gives, its own part of each sequence."""

    def __init__(self, experts: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, FEATURES)
        self.blocks = nn.Sequential(*(Block(experts) for _ in range(2)))
        self.norm, self.head = nn.RMSNorm(FEATURES), nn.Linear(FEATURES, VOCABULARY, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.embedding(tokens))))


def deal(model: Model, mesh: DeviceMesh) -> Model:
    """Heads, hidden features and experts to ranks, and between them the sequence: tensor, expert and sequence
    parallelism on the same ranks. Embedding, norms, router and head stay whole."""
    gathers = parallel.ColwiseParallel(input_layouts=Shard(1))
    scatters = parallel.RowwiseParallel(output_layouts=Shard(1))
    styles = {"blocks.*.attention.qkv": gathers, "blocks.*.attention.out": scatters}
    if isinstance(model.blocks[0].feed, MoE):
        styles["blocks.*.feed"] = parallel.ExpertParallel()
    else:
        styles |= {"blocks.*.feed.gate_up": gathers, "blocks.*.feed.down": scatters}
    return parallelize_module(model, mesh, styles)


def loss_of(logits: Tensor, targets: Tensor, tokens: int) -> Tensor:
    """These tokens' part of the mean over `tokens`."""
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum") / tokens


def sequences(count: int, length: int, generator: torch.Generator) -> Tensor:
    """Each token follows from the two before it."""
    made = torch.randint(VOCABULARY, (count, length + 1), generator=generator)
    for i in range(2, length + 1):
        made[:, i] = (3 * made[:, i - 1] + made[:, i - 2] + 1) % VOCABULARY
    return made
