"""Sentence embeddings: what 8-bit weights and activations (W8A8) do to a real model.

MiniLM embeds pairs of paraphrases in float32, then with its linear layers quantised. On a GPU the
layers of a torch module are replaced, and every variant is timed, also as a CUDA graph; those that
are "fused" leave gelu and the residuals to the products' epilogues. Elsewhere the network is
NumPy's, and its products are the CPU backend's.
"""

from __future__ import annotations

import copy
import importlib.util
import time
from typing import Any

import numpy as np

from cleave.cli.console import Console
from cleave.testing.arrays import TorchArrays
from examples.minilm import weights
from examples.minilm.encoder import Encoder, Int8Linear
from examples.minilm.sentences import SENTENCES
from examples.minilm.tokenizer import Tokenizer

TITLE = "Sentence embeddings: MiniLM with 8-bit weights and activations"

# What quantisation may cost: the cosine between a sentence's embedding and its float32 one.
LEAST_COSINE = 0.99

_FLOAT16 = "float16"  # torch's own layers
_QUANTISED = ("int8", "float8_e4m3fn")


def run(device: str, console: Console) -> None:
    """Embeds the sentences; ValueError if a quantised embedding points elsewhere."""
    try:
        checkpoint = weights.load()
    except ModuleNotFoundError as missing:
        console.print(f"skipped: {missing}")
        return
    batch = Tokenizer(checkpoint.vocabulary, checkpoint.max_tokens).batch(SENTENCES)
    console.print(
        f"{len(SENTENCES)} sentences of {batch[1].sum()} tokens, {checkpoint.layers} layers; "
        f"the weights of {weights.PACKAGE}"
    )
    expected = Encoder(checkpoint)(*batch)

    if device != "cpu" and not _torch_has_cuda():
        console.print(f"{device} needs torch with CUDA: here is the CPU backend instead")
        device = "cpu"
    if device == "cpu":
        encoder, start = Encoder(checkpoint, Int8Linear), time.perf_counter()
        embeddings = encoder(*batch)
        console.print(f"int8 on the CPU backend: {time.perf_counter() - start:.2f} s")
        _report(console, expected, {"int8": embeddings})
        return
    arrays = TorchArrays(device)
    models = _models(checkpoint, arrays)
    ids, mask = (arrays.xp.from_numpy(array).to(arrays.device) for array in batch)
    with arrays.xp.inference_mode():
        _report(console, expected, {name: arrays.to_numpy(model(ids, mask)) for name, model in models.items()})
    _time(console, arrays, models, ids, mask)


def nearest(embeddings: np.ndarray) -> np.ndarray:
    """For each the index of the most similar other one."""
    similarity = embeddings @ embeddings.T
    np.fill_diagonal(similarity, -np.inf)
    return similarity.argmax(axis=1)


def _torch_has_cuda() -> bool:
    if importlib.util.find_spec("torch") is None:
        return False
    import torch

    return torch.cuda.is_available()


def _models(checkpoint: weights.Checkpoint, arrays: TorchArrays) -> dict[str, Any]:
    """torch's float16 module, and copies of it whose linear layers are 8-bit."""
    from cleave.torch import replace_linears
    from examples.minilm import module
    from examples.minilm.fused import fused

    models = {_FLOAT16: module.Encoder(checkpoint).to(arrays.device, arrays.xp.float16)}
    for dtype in _QUANTISED:
        models[dtype] = copy.deepcopy(models[_FLOAT16])
        replace_linears(models[dtype], dtype=dtype)
        models[f"{dtype}, fused"] = copy.deepcopy(models[dtype])
        models[f"{dtype}, fused"].use(fused)
    return models


def _report(console: Console, expected: np.ndarray, embeddings: dict[str, np.ndarray]) -> None:
    cosines = {name: (ours * expected).sum(axis=1) for name, ours in embeddings.items()}
    console.heading("Cosine between each sentence's embedding and its float32 one")
    console.table(
        ("sentence", *cosines),
        [(sentence, *(f"{cosine[i]:.4f}" for cosine in cosines.values())) for i, sentence in enumerate(SENTENCES)],
    )
    console.heading("Is a sentence's nearest neighbour the one that says the same?")
    console.table(
        ("", "nearest", "lowest cosine", "mean cosine"),
        [
            (name, f"{_paraphrases_found(ours)} of {len(SENTENCES)}", f"{cosine.min():.4f}", f"{cosine.mean():.4f}")
            for name, ours, cosine in (
                ("float32", expected, (expected * expected).sum(axis=1)),
                *((name, ours, cosines[name]) for name, ours in embeddings.items()),
            )
        ],
    )
    for name, cosine in cosines.items():
        if not cosine.min() >= LEAST_COSINE:  # NaN, too
            raise ValueError(
                f"{name}: the embedding of '{SENTENCES[cosine.argmin()]}' has a cosine of "
                f"{cosine.min():.4f} with float32; at least {LEAST_COSINE} was expected"
            )


def _paraphrases_found(embeddings: np.ndarray) -> int:
    return int((nearest(embeddings) == np.arange(len(embeddings)) ^ 1).sum())


def _time(console: Console, arrays: TorchArrays, models: dict[str, Any], ids: Any, mask: Any) -> None:
    """One sentence, which needs no padding, and all of them."""
    from examples.minilm.latency import measure_all

    rows = []
    for count, inputs in ((1, (ids[:1, mask[0]],)), (len(ids), (ids, mask))):
        latencies = measure_all(arrays, models, *inputs)
        for model, latency in latencies.items():
            ratio = f"{latencies[_FLOAT16].graph / latency.graph:.2f}"
            rows.append((str(count), model, latency.eager, latency.graph, ratio))
    gpu = arrays.xp.cuda.get_device_name(arrays.device)
    console.heading(f"Latency on {gpu}, us per batch; float16 is torch's own")
    console.table(("batch", "linear layers", "eager", "in a graph", "float16 graph / this"), rows)
