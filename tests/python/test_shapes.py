"""Shapes for fitting, validation and test: the same weights are never on two sides."""

from collections import Counter

import pytest

from bench import shapes
from bench.jobs import JOBS


def test_models_have_many_layers() -> None:
    assert len(shapes.models()) >= 30
    assert len(shapes.layers()) >= 400


@pytest.mark.parametrize("job", JOBS.values(), ids=lambda job: job.name)
def test_parts_share_no_weights(job) -> None:
    weights = {part: {shape[1:] for shape in job.shapes(part, 60)} for part in shapes.PARTS}
    for part, own in weights.items():
        assert own, part
        assert all(shapes.part_of(job.name, *layer) == part for layer in own)
    assert not weights["fit"] & weights["test"]
    assert not weights["fit"] & weights["validation"]
    assert not weights["validation"] & weights["test"]


@pytest.mark.parametrize("job", JOBS.values(), ids=lambda job: job.name)
def test_shapes_are_repeatable_and_served(job) -> None:
    drawn = job.shapes("test", 40)
    assert drawn == job.shapes("test", 40)
    assert len(set(drawn)) == 40
    for shape in drawn[:10]:
        assert job.case(shape).plan("h100").kernel_name


def test_every_part_has_its_share() -> None:
    parts = Counter(shapes.part_of("bf16 tn", *layer) for layer in shapes.layers())
    total = sum(parts.values())
    assert 0.5 < parts["fit"] / total < 0.7
    assert 0.18 < parts["test"] / total < 0.32


def test_tokens_are_odd_too() -> None:
    tokens = [m for m, _, _ in JOBS["bf16 tn"].shapes("fit", 200)]
    assert min(tokens) < 8
    assert max(tokens) > 8000
    assert any(m % 2 for m in tokens)


def test_large_k_is_large() -> None:
    assert all(k >= 16 * max(m, n) for m, n, k in JOBS["bf16 large K"].shapes("test", 40))
