"""The same network as a torch.nn.Module, as one writes it in PyTorch: without a trace of cleave."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from .weights import Checkpoint

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
        tensors = {name: torch.from_numpy(array) for name, array in checkpoint.tensors.items()}
        words = tensors["embeddings.word_embeddings.weight"]
        # Every sentence is a first one, the model's "token type" 0.
        positions = (
            tensors["embeddings.position_embeddings.weight"] + tensors["embeddings.token_type_embeddings.weight"][0]
        )
        features = words.shape[1]
        inner = len(tensors["encoder.layer.0.intermediate.dense.bias"])
        self.words = nn.Embedding.from_pretrained(words.clone())
        self.positions = nn.Parameter(positions, requires_grad=False)
        self.norm = nn.LayerNorm(features, checkpoint.epsilon)
        self.layers = nn.ModuleList(
            Layer(features, inner, checkpoint.heads, checkpoint.epsilon) for _ in range(checkpoint.layers)
        )
        _copy(self.norm, tensors, "embeddings.LayerNorm")
        for i, layer in enumerate(self.layers):
            prefix = f"encoder.layer.{i}."
            attention = [f"{prefix}attention.self.{name}" for name in ("query", "key", "value")]
            _copy(layer.qkv, tensors, *attention)
            _copy(layer.out, tensors, f"{prefix}attention.output.dense")
            _copy(layer.norm_attention, tensors, f"{prefix}attention.output.LayerNorm")
            _copy(layer.up, tensors, f"{prefix}intermediate.dense")
            _copy(layer.down, tensors, f"{prefix}output.dense")
            _copy(layer.norm, tensors, f"{prefix}output.LayerNorm")
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


def _copy(target: nn.Linear | nn.LayerNorm, tensors: dict[str, Tensor], *names: str) -> None:
    """weight and bias of the named tensors, stacked."""
    target.weight.data = torch.cat([tensors[f"{name}.weight"] for name in names])
    target.bias.data = torch.cat([tensors[f"{name}.bias"] for name in names])
