"""Scales of masked groups' rows, wherever those of a group lie: DeepGEMM's pipelines have them column by column."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import cleave

GROUPS, ROOM, N, K = 3, 20, 24, 256
COUNTS = np.array([20, 0, 7], np.int32)
DRAW = np.random.default_rng(3)
A, B = (DRAW.integers(-9, 9, size, np.int8) for size in ((GROUPS, ROOM, K), (GROUPS, K, N)))


def spaced(scales: np.ndarray, *lead: int) -> np.ndarray:
    """A view of more, of which each group's matrix is a corner."""
    groups, *sizes = scales.shape
    whole = np.full((groups, *(size + more for size, more in zip(sizes, lead, strict=True))), np.nan, np.float32)
    view = whole[(slice(None), *map(slice, sizes))]
    view[:] = scales
    return view


PLACES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "one behind the other": np.ascontiguousarray,
    "columns of a group": lambda x: np.ascontiguousarray(x.swapaxes(1, 2)).swapaxes(1, 2),
    "columns that are padded": lambda x: spaced(x.swapaxes(1, 2), 1, 4).swapaxes(1, 2),
    "rows that are padded": lambda x: spaced(x, 5, 3),
    "groups between each other": lambda x: np.ascontiguousarray(x.swapaxes(0, 1)).swapaxes(0, 1),
}


@pytest.mark.parametrize("place", PLACES)
def test_of_blocks(place: str) -> None:
    scale_a = DRAW.uniform(0.5, 2, (GROUPS, ROOM, K // 128)).astype(np.float32)
    scale_b = DRAW.uniform(0.5, 2, (GROUPS, K // 128, N)).astype(np.float32)
    result = cleave.grouped_gemm(
        A, B, counts=COUNTS, scale_a=PLACES[place](scale_a), scale_b=scale_b, out_dtype="float32"
    )
    a, b = A * scale_a.repeat(128, 2).astype(np.float64), B * scale_b.repeat(128, 1)
    for group, count in enumerate(COUNTS):
        np.testing.assert_allclose(result[group, :count], (a @ b)[group, :count], rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("step", [1, 2])
def test_of_rows(step: int) -> None:
    values = DRAW.uniform(0.5, 2, (GROUPS, ROOM)).astype(np.float32)
    scale_a = np.zeros((GROUPS, 2 * ROOM + 3), np.float32)[:, ::step][:, :ROOM]
    scale_a[:] = values
    scale_b = DRAW.uniform(0.5, 2, (GROUPS, N)).astype(np.float32)
    result = cleave.grouped_gemm(A, B, counts=COUNTS, scale_a=scale_a, scale_b=scale_b, out_dtype="float32")
    expected = (A.astype(np.float64) @ B) * values[:, :, None] * scale_b[:, None]
    for group, count in enumerate(COUNTS):
        np.testing.assert_allclose(result[group, :count], expected[group, :count], rtol=1e-6)


def test_all_groups_may_share_them() -> None:
    values = DRAW.uniform(0.5, 2, (1, ROOM)).astype(np.float32)
    options = {"counts": COUNTS, "scale_b": np.ones((GROUPS, N), np.float32), "out_dtype": "float32"}
    shared = cleave.grouped_gemm(A, B, scale_a=np.broadcast_to(values, (GROUPS, ROOM)), **options)
    assert np.array_equal(shared, cleave.grouped_gemm(A, B, scale_a=values.repeat(GROUPS, 0), **options))


def test_rows_themselves_go_on_from_group_to_group() -> None:
    a = np.ones((GROUPS, ROOM + 2, K), np.float32)[:, :ROOM]
    with pytest.raises(ValueError, match="with counts, a group must begin where the one before has its last row"):
        cleave.grouped_gemm(a, B.astype(np.float32), counts=COUNTS)


def test_groups_from_the_last_to_the_first_are_refused() -> None:
    scales = np.ones((GROUPS, ROOM, K // 128), np.float32)[::-1]
    with pytest.raises(ValueError, match="strides must not be negative"):
        cleave.grouped_gemm(A, B, counts=COUNTS, scale_a=scales, scale_b=np.ones((GROUPS, K // 128, N), np.float32))


@pytest.mark.parametrize(
    "shape", [(ROOM, GROUPS), (2 * GROUPS, ROOM // 2), (ROOM, GROUPS, K // 128), (1, GROUPS * ROOM)]
)
def test_scales_of_other_groups_are_refused(shape: tuple[int, ...]) -> None:
    scale_b = np.ones((GROUPS, K // 128, N) if len(shape) == 3 else (GROUPS, N), np.float32)
    for scale_a in (np.ones(shape, np.float32), np.ones(shape[::-1], np.float32).T):
        with pytest.raises(ValueError, match=rf"must have scales for each group's rows, \({GROUPS}, {ROOM}\)"):
            cleave.grouped_gemm(A, B, counts=COUNTS, scale_a=scale_a, scale_b=scale_b)


def test_d_may_lie_behind_the_scales_and_not_on_them() -> None:
    """Whose extent is not that of rows which go on from group to group."""
    a, b, count = A[..., :128], B[:, :128], GROUPS * ROOM
    options = {"counts": COUNTS, "scale_b": np.ones((GROUPS, 1, N), np.float32)}
    memory = np.ones(count * (N + 1), np.float32)
    scale_a = memory[:count].reshape(ROOM, GROUPS).T[..., None]
    cleave.grouped_gemm(a, b, scale_a=scale_a, out=memory[count:].reshape(GROUPS, ROOM, N), **options)
    with pytest.raises(ValueError, match="overlap"):
        cleave.grouped_gemm(a, b, scale_a=scale_a, out=memory[count - 1 : -1].reshape(GROUPS, ROOM, N), **options)
