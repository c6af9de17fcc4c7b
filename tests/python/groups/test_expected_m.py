"""`expected_m`: kernels are chosen for the rows that groups are expected to have, where there is room for more."""

from __future__ import annotations

import numpy as np
import pytest

import cleave

GROUPS, ROOM, N, K = 32, 1024, 4096, 7168


def planned(rows: int, **options: object) -> cleave.GemmPlan:
    """For masked groups of fp8 with room for so many rows each, on an H200."""
    return cleave.plan_problem(
        GROUPS * rows, N, K, batch=GROUPS, dtype="float8_e4m3fn", scaling="block_128x128", grouping="m",
        bounds="counts", spacing=rows, device="h200", **options,
    )  # fmt: skip


@pytest.mark.parametrize("rows", [1, 8, 32, 96])
def test_a_kernel_is_chosen_as_for_so_many_rows(rows: int) -> None:
    expected, small, full = planned(ROOM, expected_m=rows), planned(rows), planned(ROOM)
    assert expected.kernel_name == small.kernel_name
    assert expected.kernel_name != full.kernel_name
    assert expected.candidates[0] == small.candidates[0]
    assert expected.roofline_us == small.roofline_us < full.roofline_us
    assert f"for groups of {rows} rows on average (expected_m)" in expected.why


def test_all_kernels_serve_what_there_is_room_for() -> None:
    plan = planned(ROOM, expected_m=8)
    assert len(plan.candidates) > 4
    for candidate in plan.candidates:
        assert cleave._core.plan_as(plan, candidate["kernel"]).kernel_name == candidate["kernel"]


def test_numbers_in_between_have_the_plan_of_the_next() -> None:
    for given, chosen in ((3, 3), (15, 15), (17, 18), (24, 24), (33, 36), (300, 320)):
        assert f"groups of {chosen} rows" in planned(ROOM, expected_m=given).why
    for given in (740, 768, 1024, 5000):  # nearly all of the room
        plan = planned(768, expected_m=given)
        assert plan.kernel_name == planned(768).kernel_name
        assert "expected_m" not in plan.why


def test_groups_may_have_any_size() -> None:
    draw = np.random.default_rng(1)
    a, b = (draw.normal(size=shape).astype(np.float32) for shape in ((3, 16, 8), (3, 8, 4)))
    counts = np.array([0, 16, 5], np.int32)
    result = cleave.grouped_gemm(a, b, counts=counts, expected_m=2)
    for group, count in enumerate(counts):
        assert np.array_equal(result[group, :count], cleave.gemm(a[group, :count], b[group]))
        assert not result[group, count:].any()
    plan = cleave.plan_grouped_gemm(a, b, counts=counts, expected_m=2)
    assert np.array_equal(plan.run(a, b, counts=counts), result)


def test_what_is_expected_of_ends_is_less_than_there_are_rows() -> None:
    """As where the last rows of a buffer belong to no group."""
    a, b = np.ones((512, 64), np.float16), np.ones((4, 64, 64), np.float16)
    offs = np.array([3, 4, 4, 9], np.int32)
    result = cleave.grouped_gemm(a, b, offs, expected_m=2)
    assert (result[:9] == 64).all()
    assert not result[9:].any()


def test_a_promise_of_one_order_holds_for_any_expectation() -> None:
    """Which has slices, though rows that are not expected cost their partial tiles memory."""
    options = {"batch": 8, "dtype": "bfloat16", "grouping": "m", "bounds": "counts", "spacing": 512, "device": "h200"}
    options["deterministic"] = "batch_invariant"
    for more in ({}, {"expected_m": 4}, {"expected_m": 100}):
        assert cleave.plan_problem(4096, 128, 8192, **options, **more).split_k_slices == 4


@pytest.mark.parametrize("value", [0, -3])
def test_less_than_a_row_is_refused(value: int) -> None:
    a, b = np.ones((8, 4), np.float32), np.ones((2, 4, 4), np.float32)
    with pytest.raises(ValueError, match=rf"expected_m is {value}; pass the rows that a group has on average"):
        cleave.grouped_gemm(a, b, np.array([4, 8], np.int32), expected_m=value)


def test_it_is_of_groups_of_rows() -> None:
    a, b = np.ones((4, 8), np.float32), np.ones((8, 4), np.float32)
    with pytest.raises(ValueError, match="expected_m is 2, but k is grouped; it is for groups of rows of a"):
        cleave.grouped_gemm(a, b, np.array([4, 8], np.int32), expected_m=2)
    batches = np.ones((2, 4, 8), np.float32)
    with pytest.raises(ValueError, match="expected_m is 2, but no bounds of groups are given"):
        cleave.grouped_gemm(batches, np.ones((2, 8, 4), np.float32), expected_m=2)
    with pytest.raises(TypeError, match="expected_m"):
        cleave.grouped_gemm(a, b, np.array([4, 8], np.int32), expected_m="many")


def test_no_memory_is_taken_for_rows_that_are_not_expected() -> None:
    """Slices of K would have partial tiles for all rows, unless they are asked for."""
    options = {"batch": 2, "dtype": "bfloat16", "grouping": "m", "bounds": "counts", "spacing": 1024, "device": "h200"}
    plan = cleave.plan_problem(2048, 512, 8192, expected_m=4, **options)
    assert plan.split_k_slices == 1
    assert all(candidate["split_k_slices"] == 1 for candidate in plan.candidates)
    asked = cleave.plan_problem(2048, 512, 8192, expected_m=4, split_k_mode="parallel", split_k_slices=4, **options)
    assert asked.split_k_slices == 4


@pytest.mark.parametrize("batch", [0, -1])
def test_without_groups_nothing_is_expected(batch: int) -> None:
    with pytest.raises(ValueError, match="batch"):
        cleave.plan_problem(64, 64, 64, batch=batch, grouping="m", expected_m=4, device="h200")


def test_a_plan_that_expects_something_says_so_where_it_is_run_on_other_rows() -> None:
    a, b, counts = np.ones((2, 64, 8), np.float32), np.ones((2, 8, 4), np.float32), np.array([1, 2], np.int32)
    plan = cleave.plan_grouped_gemm(a, b, counts=counts, expected_m=4)
    with pytest.raises(ValueError, match="4 rows expected"):
        plan.run(a[:, :4].copy(), b, counts=counts)


def test_groups_are_tuned_for_what_is_expected() -> None:
    from cleave.testing import problem_operands
    from cleave.testing.arrays import NumpyArrays

    plan = cleave.plan_problem(
        256, 8, 8, batch=4, dtype="float32", grouping="m", bounds="counts", spacing=64, expected_m=6, device="cpu"
    )
    operands = problem_operands.make_operands(NumpyArrays(), plan)
    (counts,) = (array for array in operands.arrays if array.dtype == np.int32)
    assert 12 < counts.sum() <= 28
