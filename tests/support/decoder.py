"""A small decoder of Llama's kind, for tests of what is done to models."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTH, HIDDEN, HEADS, LAYERS = 64, 96, 4, 3


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))

    def forward(self, x: Tensor, rotation: Tensor, mask: Tensor | None = None) -> Tensor:
        batch, tokens, _ = x.shape
        q, k, v = (linear(x).view(batch, tokens, HEADS, -1).transpose(1, 2) for linear in (self.q, self.k, self.v))
        mixed = functional.scaled_dot_product_attention(q * rotation, k * rotation, v, attn_mask=mask)
        return self.o(mixed.transpose(1, 2).reshape(batch, tokens, WIDTH))


class MLP(nn.Module):
    def __init__(self, hidden: int = HIDDEN, bias: bool = False) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(WIDTH, hidden, bias=bias), nn.Linear(WIDTH, hidden, bias=bias)
        self.down = nn.Linear(hidden, WIDTH, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class Layer(nn.Module):
    """attention and its argument by position, others by name."""

    def __init__(self, mlp: nn.Module | None = None) -> None:
        super().__init__()
        self.first_norm, self.second_norm = nn.RMSNorm(WIDTH, 1e-5), nn.RMSNorm(WIDTH, 1e-5)
        for norm in (self.first_norm, self.second_norm):
            nn.init.normal_(norm.weight, 1.0, 0.3)
        self.attention, self.mlp = Attention(), mlp or MLP()

    def forward(self, x: Tensor, rotation: Tensor, mask: Tensor | None = None) -> Tensor:
        x = x + self.attention(self.first_norm(x), rotation, mask=mask)
        return x + self.mlp(self.second_norm(x))


class Model(nn.Module):
    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers or (Layer() for _ in range(LAYERS)))
        self.rotation = nn.Parameter(torch.randn(WIDTH // HEADS))
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        for layer in self.layers:
            x = layer(x, self.rotation, mask=mask)
        return self.head(x)
