"""What a MoE layer keeps for its backward pass: the counts, and the figures that docs/moe.md has of them."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch", minversion="2.10")

from bench.activation_memory import Layer, kept, table

ROOT = Path(__file__).parents[3]


def test_the_page_has_what_is_counted() -> None:
    page = (ROOT / "docs" / "moe.md").read_text(encoding="utf-8").splitlines()
    assert [line for line in table(Layer()) if line not in page] == []


@pytest.mark.parametrize("sizes", [(8, 2, 256, 128, 300), (4, 3, 128, 384, 64)])
def test_16_bits_keep_rows_gates_ups_and_results(sizes: tuple[int, ...]) -> None:
    layer = Layer(*sizes)
    moe = layer.made(None)
    rows = 2 * layer.top_k * (2 * layer.features + 2 * layer.hidden)
    # By the router: x, logits, and for each choice its weight, its expert and its place.
    of_router = 2 * layer.features + 4 * layer.experts + 12 * layer.top_k
    found = kept(layer, moe, moe)
    assert found.of_token == pytest.approx(rows + of_router, abs=1) and found.of_weights == 0


def test_8_bits_keep_weights_too() -> None:
    layer = Layer(4, 2, 256, 128, 64)
    moe = layer.made("blockwise")
    elements = moe.gate_up.weight.numel() + moe.down.weight.numel()
    assert elements <= kept(layer, moe, moe).of_weights <= 1.01 * elements
