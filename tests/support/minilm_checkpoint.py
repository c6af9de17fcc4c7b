"""A MiniLM so small that a test can make it up: random weights, letters for a vocabulary."""

from __future__ import annotations

import string

import numpy as np

from examples.minilm.weights import Checkpoint

FEATURES, INNER, HEADS, LAYERS, MAX_TOKENS = 64, 128, 4, 2, 128
_LETTERS = string.ascii_lowercase + string.digits
VOCABULARY = [
    "[PAD]", "[UNK]", "[CLS]", "[SEP]",
    *string.punctuation, *_LETTERS, *(f"##{letter}" for letter in _LETTERS),
]  # fmt: skip


def checkpoint() -> Checkpoint:
    rng = np.random.default_rng(0)
    tensors = {}

    def tensor(name: str, *shape: int, mean: float = 0, deviation: float = 1) -> None:
        tensors[name] = rng.normal(mean, deviation, shape).astype(np.float32)

    def norm(name: str) -> None:
        tensor(f"{name}.LayerNorm.weight", FEATURES, mean=1, deviation=0.2)
        tensor(f"{name}.LayerNorm.bias", FEATURES, deviation=0.2)

    def linear(name: str, outputs: int, inputs: int) -> None:
        tensor(f"{name}.weight", outputs, inputs, deviation=inputs**-0.5)
        tensor(f"{name}.bias", outputs)

    tensor("embeddings.word_embeddings.weight", len(VOCABULARY), FEATURES)
    tensor("embeddings.position_embeddings.weight", MAX_TOKENS, FEATURES)
    tensor("embeddings.token_type_embeddings.weight", 2, FEATURES)
    norm("embeddings")
    for i in range(LAYERS):
        layer = f"encoder.layer.{i}"
        for name in ("query", "key", "value"):
            linear(f"{layer}.attention.self.{name}", FEATURES, FEATURES)
        linear(f"{layer}.attention.output.dense", FEATURES, FEATURES)
        norm(f"{layer}.attention.output")
        linear(f"{layer}.intermediate.dense", INNER, FEATURES)
        linear(f"{layer}.output.dense", FEATURES, INNER)
        norm(f"{layer}.output")
    return Checkpoint(tensors, VOCABULARY, LAYERS, HEADS, 1e-12, MAX_TOKENS)
