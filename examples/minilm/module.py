"""The same network as a torch.nn.Module, as one writes it in PyTorch: without a trace of cleave."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from .weights import Checkpoint, Parameters

# linear(x), with a residual added and then gelu applied if asked for.
Product = Callable[..., Tensor]


def separate(linear: nn.Module, x: Tensor, *, gelu: bool = False, residual: Tensor | None = None) -> Tensor:
    """A Product of any linear layer, with a launch for each step."""
    y = linear(x)
    if residual is not None:
        y = residual + y
    return functional.gelu(y) if gelu else y


class Layer(nn.Module):
    """Attention, then two linear layers; x [sentences, tokens, features] to the same."""

    product: Product = staticmethod(separate)

    def __init__(self, features: int, inner: int, heads: int, epsilon: float):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(features, 3 * features)
        self.out = nn.Linear(features, features)
        self.norm_attention = nn.LayerNorm(features, epsilon)
        self.up = nn.Linear(features, inner)
        self.down = nn.Linear(inner, features)
        self.norm = nn.LayerNorm(features, epsilon)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        qkv = self.product(self.qkv, x)
        x = self.norm_attention(self.product(self.out, self.attend(qkv, mask), residual=x))
        inner = self.product(self.up, x, gelu=True)
        return self.norm(self.product(self.down, inner, residual=x))

    def attend(self, qkv: Tensor, mask: Tensor | None) -> Tensor:
        q, k, v = qkv.unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return functional.scaled_dot_product_attention(q, k, v, mask).transpose(1, 2).flatten(2)


class Encoder(nn.Module):
    """Sentences as unit vectors, of the parameters' dtype inside and float32 outside."""

    def __init__(self, checkpoint: Checkpoint):
        super().__init__()
        features, epsilon = checkpoint.words.shape[1], checkpoint.epsilon
        parts = [checkpoint.layer(i) for i in range(checkpoint.layers)]
        inner = len(parts[0]["up"][1])
        self.words = nn.Embedding.from_pretrained(torch.tensor(checkpoint.words))
        self.positions = nn.Parameter(torch.tensor(checkpoint.positions), requires_grad=False)
        self.norm = nn.LayerNorm(features, epsilon)
        self.layers = nn.ModuleList(Layer(features, inner, checkpoint.heads, epsilon) for _ in parts)
        _fill(self.norm, checkpoint.parameters("embeddings.LayerNorm"))
        for layer, named in zip(self.layers, parts, strict=True):
            for name, parameters in named.items():
                _fill(getattr(layer, name), parameters)
        self.requires_grad_(False)

    def use(self, product: Product) -> None:
        """Makes all layers compute their products so."""
        for layer in self.layers:
            layer.product = product

    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        """ids, mask [sentences, tokens], of a Tokenizer's batch; no mask: there is no padding."""
        x = self.norm(self.words(ids) + self.positions[: ids.shape[1]])
        for layer in self.layers:
            x = layer(x, None if mask is None else mask[:, None, None, :])
        if mask is not None:
            x = x * mask[:, :, None]
        # The length of the sum is no matter: it becomes 1.
        return functional.normalize(x.sum(dim=1, dtype=torch.float32), dim=1)


def _fill(target: nn.Linear | nn.LayerNorm, parameters: Parameters) -> None:
    target.weight.data, target.bias.data = map(torch.tensor, parameters)
