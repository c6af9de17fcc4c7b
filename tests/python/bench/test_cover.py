"""The covering sets against the pairs that they were made from."""

from __future__ import annotations

import lzma

import numpy as np
import pytest

from bench import cover
from bench.measured_pairs import MEASURED, read_jobs

# Mean loss of the shipped sets' fastest kernels, on the shapes that they were made from: 0.01 to 0.02. Where pairs have
# come since, more: `python -m bench.cover` makes the sets anew.
MOST_LOSS = 0.08


@pytest.fixture(scope="module")
def shipped() -> dict[str, set[str]]:
    return {job: set(kernels) for job, kernels in cover.read_table().items()}


def test_a_table_is_read_as_it_is_written() -> None:
    assert cover.table(cover.read_table()) == cover.TABLE.read_text()


def has_set(kernel: str) -> bool:
    """Neither direct ones nor products that convolutions are, which take the sets of products."""
    return kernel.startswith("sm90") and " product" not in kernel


def test_the_shipped_sets_cover_what_was_measured(shipped) -> None:
    measured = list(read_jobs(MEASURED))
    assert {job.name for job, _ in measured} == set(shipped)
    for job, every_shape in measured:
        timed = [{kernel: us for kernel, us in times.items() if has_set(kernel)} for _, times in every_shape]
        few = job.name.startswith("conv") or max(map(len, timed)) < cover.SIZE
        shapes = [times for times in timed if len(times) >= (12 if few else cover.SIZE)]
        losses = []  # with fewer, a shape may have none of a set
        for us in shapes:
            own = [time for kernel, time in us.items() if cover.kernel_of(kernel) in shipped[job.name]]
            losses += [min(own) / min(us.values()) - 1] if own else []
        assert len(losses) > 0.9 * len(shapes), job.name
        assert np.mean(losses) < MOST_LOSS, job.name


def test_slices_of_a_launch_are_no_kernels() -> None:
    assert cover.kernel_of("sm90 64x64 parallel 6 clusters 2") == "sm90 64x64 parallel 1 clusters 2"
    assert cover.kernel_of("sm90 64x64 stream_k 4") == "sm90 64x64 stream_k 1"
    assert cover.kernel_of("sm90 64x64 transposed cluster 4") == "sm90 64x64 transposed cluster 4"


def test_a_set_takes_what_helps_most_first(tmp_path) -> None:
    """Two kernels serve one shape each, a third serves both nearly as well."""
    lines = ["64 64 4096 | 1980 | 300 | 3.0", "10 sm90 64x64", "11 sm90 64x32", "40 sm90 128x128"]
    lines += ["4096 4096 4096 | 1980 | 300", "10 sm90 128x128", "11 sm90 64x32", "30 sm90 64x64"]
    with lzma.open(tmp_path / "bf16_tn.txt.xz", "wt") as file:
        file.write("\n".join(lines) + "\n")
    ((job, shapes),) = read_jobs(tmp_path)
    assert [shape for shape, _ in shapes] == [(64, 64, 4096), (4096, 4096, 4096)]
    known = [cover.Measured(0, [cover.Pair(kernel, time, time) for kernel, time in us.items()]) for _, us in shapes]
    assert cover.covering(known, [], 3) == ["sm90 64x32", "sm90 128x128", "sm90 64x64"]
    assert known[0].of({"sm90 64x32", "sm90 128x128"}) == pytest.approx((0.1, 0.1))
    assert np.isnan(known[0].of({"sm90 64x16"})).all()
    beside = [(0, {"sm90 128x128": 0.0, "sm90 64x32": 0.5, "sm90 64x64": 1.0})]
    assert cover.covering(known, beside * 100, 2) == ["sm90 64x32", "sm90 128x128"]
    assert job.name == "bf16 tn"
