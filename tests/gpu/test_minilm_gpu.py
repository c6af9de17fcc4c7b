"""The demo's model on the GPU: every variant embeds as float32 does, and is timed."""

from __future__ import annotations

import io

import minilm_checkpoint
import pytest

pytest.importorskip("torch")
pytest.importorskip("cleave.torch", exc_type=ImportError)

from cleave.cli.console import Console
from examples.demo import embeddings
from examples.minilm import weights

VARIANTS = ("float16", "int8", "int8, fused", "float8_e4m3fn", "float8_e4m3fn, fused")


@pytest.mark.parametrize("real", [False, True], ids=["small", "real"])
def test_embeddings_section(monkeypatch: pytest.MonkeyPatch, real: bool) -> None:
    """It raises if a cosine is too low."""
    if not real:
        monkeypatch.setattr(weights, "load", minilm_checkpoint.checkpoint)
    elif weights.package_folder() is None:
        pytest.skip(f"needs the package {weights.PACKAGE}")
    stream = io.StringIO()
    embeddings.run("cuda:0", Console(stream))
    _, latencies = stream.getvalue().split("\nLatency on ")
    for batch in ("1", "32"):
        for variant in VARIANTS:
            start = f"{batch:<5}  {variant:<20}  "
            (row,) = [line for line in latencies.splitlines() if line.startswith(start)]
            eager, graph, ratio = map(float, row.removeprefix(start).split())
            assert eager > 0 and graph > 0
            assert (ratio == 1) if variant == "float16" else ratio > 0
