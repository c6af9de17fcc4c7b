"""Shapes for fitting, validation and test: the same weights are never on two sides."""

import re
from collections import Counter
from pathlib import Path

import pytest

from bench import shapes
from bench.jobs import JOBS
from bench.jobs.conv import CONV_JOBS
from bench.jobs.every import EVERY_JOB
from bench.jobs.grouped import GROUPED_JOBS
from bench.shapes import networks

TUNED = Path(__file__).parents[3] / "src" / "plan" / "measured" / "tuned"


def test_models_have_many_layers() -> None:
    assert len(shapes.models()) >= 30
    assert len(shapes.layers()) >= 400


def test_networks_have_many_layers() -> None:
    assert len(networks.networks()) >= 25
    assert len(networks.layers()) >= 300
    assert any(layer.depth for layer in networks.layers())


@pytest.mark.parametrize("job", EVERY_JOB.values(), ids=lambda job: job.name)
def test_parts_share_no_weights(job) -> None:
    weights = {part: {job.weights(shape) for shape in job.shapes(part, 60)} for part in shapes.PARTS}
    for part, own in weights.items():
        assert own, part
        if job.name in JOBS:
            assert all(shapes.part_of(job.name, *layer) == part for layer in own)
    assert not weights["fit"] & weights["test"]
    assert not weights["fit"] & weights["validation"]
    assert not weights["validation"] & weights["test"]


@pytest.mark.parametrize("job", EVERY_JOB.values(), ids=lambda job: job.name)
def test_shapes_are_repeatable_and_served(job) -> None:
    drawn = job.shapes("test", 40)
    assert drawn == job.shapes("test", 40) != job.shapes("test", 40, seed=1)
    assert len(set(drawn)) == 40
    for shape in drawn[:10]:
        assert job.case(shape).plan("h100").kernel_name


@pytest.mark.parametrize("job", GROUPED_JOBS.values(), ids=lambda job: job.name)
def test_shapes_of_groups_are_their_cases(job) -> None:
    for shape in job.shapes("validation", 5):
        case = job.case(shape)
        assert (case.groups, case.n, case.k) == (shape[0], *shape[2:])
        assert 0 <= case.tokens - shape[1] < case.groups * job.padded


@pytest.mark.parametrize("job", CONV_JOBS.values(), ids=lambda job: job.name)
def test_shapes_of_convolutions_are_their_cases(job) -> None:
    for shape in job.shapes("validation", 30):
        case, layer = job.case(shape), networks.Layer(*shape[1:])
        assert (case.kind, case.images, case.channels, case.filters) == (
            job.kind,
            shape[0],
            layer.channels,
            layer.filters,
        )
        assert case.size[-2:] == (layer.height, layer.width) and len(case.size) == (3 if layer.depth else 2)
        assert case.images == 1 or case.flops <= networks.MOST_FLOPS
        if layer.stride == 1 and layer.filter_size % 2:
            assert case.outputs == case.size


@pytest.mark.parametrize(
    "parts",
    [
        Counter(shapes.part_of("bf16 tn", *layer) for layer in shapes.layers()),
        Counter(networks.part_of(layer) for layer in networks.layers()),
    ],
    ids=["products", "convolutions"],
)
def test_every_part_has_its_share(parts) -> None:
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


def jobs_of(m: int, n: int, k: int, words: str) -> set[str]:
    """Those whose shapes a product of the table of measured choices may be."""
    if "blocks" in words:
        return {"fp8 blocks"}
    if "float8" in words or "int8" in words:
        return {"fp8 rows" if "float8" in words else "int8 rows"}
    return {f"bf16 {words.split()[0]}"} | ({"bf16 large K"} if k >= 16 * max(m, n) else set())


@pytest.mark.parametrize("table", sorted(TUNED.glob("*.txt")), ids=lambda table: table.stem)
def test_measured_choices_have_nothing_of_the_test_part(table: Path) -> None:
    products = re.findall(r"^[^#|]*\| (\d+)x(\d+)x(\d+)x1 ([^|:]*) \|", table.read_text(), re.MULTILINE)
    assert len(products) > 20
    for *sizes, words in products:
        m, n, k = map(int, sizes)
        assert all(shapes.part_of(job, n, k) != "test" for job in jobs_of(m, n, k, words)), (m, n, k, words)
