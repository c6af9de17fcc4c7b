"""bench.second_opinion, with a stand-in for NVIDIA's heuristics: which of our kernels do as they say."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

from bench.jobs.every import EVERY_JOB


@pytest.fixture
def second_opinion(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    stand_in: Any = ModuleType("nvMatmulHeuristics")
    stand_in.NvMatmulHeuristicsInterface = object
    monkeypatch.setitem(sys.modules, "nvMatmulHeuristics", stand_in)
    monkeypatch.delitem(sys.modules, "bench.second_opinion", raising=False)
    from bench import second_opinion

    return second_opinion


@pytest.mark.parametrize(
    ("kernel", "fits", "shares"),
    [
        ("sm90 128x64 multicast 2x1", True, True),
        ("sm90 64x128 transposed pingpong multicast 1x2", True, True),
        ("sm90 128x64 multicast 1x2", True, False),
        ("sm90 128x64", True, False),
        ("sm90 64x128", False, False),
        ("sm90 128x64 transposed", False, False),
        ("sm90 128x64 parallel 2", False, False),
        ("sm90 128x64 stream_k 1", False, False),
        ("portable 128x64", False, False),
    ],
)
def test_a_kernel_has_their_tile_either_way_round(second_opinion, kernel: str, fits: bool, shares: bool) -> None:
    opinion = second_opinion.Opinion((128, 64), (2, 1), 1)
    assert opinion.fits(kernel) == fits
    assert not fits or opinion.shares(kernel) == shares


def test_candidates_are_read(second_opinion) -> None:
    """Those with their tile and slices, and the cluster where one has it."""
    job = EVERY_JOB["bf16 tn"]
    planned = job.case((4101, 768, 2560)).plan("h100")
    chosen, *theirs = second_opinion.kernels_of(planned, second_opinion.Opinion((128, 128), (2, 1), 1))
    assert chosen == planned.kernel_name
    assert len(theirs) == second_opinion.KERNELS
    assert all("multicast" in kernel for kernel in theirs)
    assert second_opinion.kernels_of(planned, second_opinion.Opinion((128, 128), (4, 2), 1))[1:]
    assert second_opinion.kernels_of(planned, second_opinion.Opinion((128, 120), (1, 1), 1)) == []


def test_measured_choices_are_left_out(second_opinion, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(second_opinion, "_core", SimpleNamespace(is_tuned=lambda planned: True))
    assert second_opinion.kernels_of(None, second_opinion.Opinion((128, 128), (1, 1), 1)) == []


def test_the_summary(second_opinion) -> None:
    assert second_opinion.summary([0.5, 2.0]) == "2 shapes: geomean 1.00, least 0.50, most 2.00"
    assert second_opinion.summary([]) == "Nothing measured."
