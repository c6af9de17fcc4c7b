"""The network in NumPy: embeddings, layers of attention and two linear ones, mean, unit length."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

import cleave
from cleave.testing.arrays import NumpyArrays

from .weights import Checkpoint


class Linear(Protocol):
    """x [rows, inputs] to gelu(x @ weight.T + bias + residual), without gelu unless asked for."""

    def __call__(self, x: np.ndarray, *, gelu: bool = False, residual: np.ndarray | None = None) -> np.ndarray: ...


class Float32Linear:
    """The reference: NumPy, in float32."""

    def __init__(self, weight: np.ndarray, bias: np.ndarray):
        self._weight, self._bias = weight, bias

    def __call__(self, x: np.ndarray, *, gelu: bool = False, residual: np.ndarray | None = None) -> np.ndarray:
        y = x @ self._weight.T + self._bias
        if residual is not None:
            y += residual
        return _gelu(y) if gelu else y


class Int8Linear:
    """W8A8: int8 weights with a scale per output, int8 x with a scale per row, sums exact in int32.

    Scales, bias, residual and gelu are applied to the sums in the product's epilogue.
    """

    def __init__(self, weight: np.ndarray, bias: np.ndarray):
        self._weight, self._scale = cleave.quantize(weight, "int8", "row")
        self._bias = bias

    def __call__(self, x: np.ndarray, *, gelu: bool = False, residual: np.ndarray | None = None) -> np.ndarray:
        x, scale = cleave.quantize(x, "int8", "row")
        return cleave.scaled_gemm(
            x,
            self._weight.T,
            scale,
            self._scale.T,
            bias=self._bias,
            c=residual,
            activation="gelu" if gelu else "none",
            out_dtype="float32",
        )


class Layer:
    """One of the network's layers, of hidden states [sentences * tokens, features]."""

    def __init__(self, checkpoint: Checkpoint, index: int, linear: Callable[..., Linear]):
        parts = checkpoint.layer(index)
        self._heads, self._epsilon = checkpoint.heads, checkpoint.epsilon
        self._qkv, self._out, self._up, self._down = (linear(*parts[name]) for name in ("qkv", "out", "up", "down"))
        self._norm_attention, self._norm = parts["norm_attention"], parts["norm"]

    def __call__(self, x: np.ndarray, mask: np.ndarray) -> np.ndarray:
        x = self._out(self._attend(self._qkv(x), mask), residual=x)
        x = normalize(x, *self._norm_attention, self._epsilon)
        x = self._down(self._up(x, gelu=True), residual=x)
        return normalize(x, *self._norm, self._epsilon)

    def _attend(self, qkv: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """qkv: queries, keys and values side by side. mask [sentences, tokens]: whom to look at."""
        split = qkv.reshape(*mask.shape, 3, self._heads, -1)
        q, k, v = split.transpose(2, 0, 3, 1, 4)  # each [sentences, heads, tokens, head's features]
        scores = q @ k.swapaxes(-1, -2) / np.sqrt(np.float32(q.shape[-1]))
        scores[np.broadcast_to(~mask[:, None, None, :], scores.shape)] = -np.inf
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        return (weights @ v).swapaxes(1, 2).reshape(len(qkv), -1)


class Encoder:
    """Sentences as unit vectors: Encoder(load(), Int8Linear)(ids, mask)."""

    def __init__(self, checkpoint: Checkpoint, linear: Callable[..., Linear] = Float32Linear):
        """linear: what makes a layer of a weight [outputs, inputs] and a bias [outputs]."""
        self._words, self._positions = checkpoint.words, checkpoint.positions
        self._norm = checkpoint.parameters("embeddings.LayerNorm")
        self._epsilon = checkpoint.epsilon
        self._layers = [Layer(checkpoint, i, linear) for i in range(checkpoint.layers)]

    def __call__(self, ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """ids, mask [sentences, tokens], of a Tokenizer's batch; float32 [sentences, features]."""
        x = self._words[ids] + self._positions[: ids.shape[1]]
        x = normalize(x.reshape(ids.size, -1), *self._norm, self._epsilon)
        for layer in self._layers:
            x = layer(x, mask)
        mean = (x.reshape(*ids.shape, -1) * mask[:, :, None]).sum(axis=1)
        return mean / np.linalg.norm(mean, axis=1, keepdims=True)


def normalize(x: np.ndarray, weight: np.ndarray, bias: np.ndarray, epsilon: float) -> np.ndarray:
    """Layer normalisation: rows of mean 0 and variance 1, then weighted and shifted."""
    x = x - x.mean(axis=-1, keepdims=True)
    deviation = np.sqrt((x * x).mean(axis=-1, keepdims=True) + np.float32(epsilon))
    return x / deviation * weight + bias


def _gelu(x: np.ndarray) -> Any:
    half = np.float32(0.5)
    return half * x * (1 + NumpyArrays().erf(x * np.sqrt(half)).astype(np.float32))
