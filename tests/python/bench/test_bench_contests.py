"""Contests of products and convolutions, on the CPU backend instead of a GPU."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from bench_rows import (
    suite_of,
)
from bench_stand_ins import (
    ABSENT,
    CASE,
    SCALED,
    SMALL,
    StandInGpu,
    TorchStandIn,
    grouped_cases,
    numpy_peer,
)

import cleave
from bench import contest, peers, report, steps, suites, summary
from bench.operations import expert_offsets, quantize, wgrad_step
from bench.operations.products import conv, grouped
from cleave.testing import arrays


@pytest.mark.parametrize("case", [CASE, SCALED], ids=["float16", "int8"])
def test_against_peers(short, case):
    (made,) = contest.against_peers(StandInGpu(), case, suite_of("peers"), [ABSENT, numpy_peer(lambda case: case)], 7)
    assert made["verified"]
    assert made["without"] == {}
    assert list(made["peers"]) == ["numpy"]
    numpy = made["peers"]["numpy"]
    assert numpy["ratio"] == pytest.approx(numpy["us"] / made["us"])
    assert 0 < made["rms_error"] < 1
    assert 0 < numpy["rms_error"] < 1
    assert 0 < made["row_error"] < 1
    assert "case" not in numpy


def test_a_peer_may_compute_the_nearest_it_has(short):
    tensorwise = numpy_peer(lambda case: replace(case, scaling="tensor"))
    (made,) = contest.against_peers(StandInGpu(), SCALED, suite_of("peers"), [tensorwise], 7)
    assert made["peers"]["numpy"]["case"] == "32x24x512 int8 tn scales tensor to float32"
    # Its errors are against what it was given, which is not what we were.
    assert 0 < made["peers"]["numpy"]["row_error"] < 1e-3


def test_a_peer_that_refuses_is_left_out(short):
    def refuse(case, operands):
        def call():
            raise RuntimeError("M must be\n  a multiple of 4")

        return {"call": call}

    peer = peers.Peer("strict", lambda case: case, refuse)
    (made,) = contest.against_peers(StandInGpu(), CASE, suite_of("peers"), [peer], 7)
    assert made["without"] == {"strict": "M must be a multiple of 4"}
    assert made["peers"] == {}
    assert made["us"] > 0


def test_against_auto(short):
    splits = [("none", 1), ("serial", 2), ("cluster", 17)]
    made = contest.against_auto(StandInGpu(), CASE, suite_of("modes", [CASE], splits), 7)
    assert [row["requested_mode"] for row in made] == ["auto", "none", "serial", "cluster"]
    assert made[0]["ratio"] == 1
    assert (made[2]["mode"], made[2]["slices"]) == ("serial", 2)
    assert all(row["verified"] and row["us"] > 0 for row in made[:3])
    assert made[3]["us"] is None
    assert "split_k_slices" in made[3]["refused"]
    assert summary.summarize_modes(made)["compared"] == 1


# Groups, and steps without graphs


@pytest.mark.parametrize("case", grouped_cases(), ids=lambda case: case.form)
def test_grouped_contest(short, case):
    pytest.importorskip("torch")
    found, missing = peers.load(["torch_grouped"])
    assert not missing
    (made,) = contest.against_peers(TorchStandIn("cpu"), case, suite_of("peers", operation=grouped), found, 7)
    assert made["verified"]
    assert made["tflops"] > 0
    theirs = made["peers"]["torch_grouped"]
    assert theirs["rms_error"] == pytest.approx(made["rms_error"], rel=0.01)
    assert made["groups"] == 4


def test_groups_contend_with_our_own_other_cases(short):
    pytest.importorskip("torch")
    case = grouped.Case(3, 400, 32, 48, form="wgrad", sizes="zipf", dtype="float8_e4m3fn", scaling="block_1x128")
    found, _ = peers.load(["cleave_bfloat16", "cleave_uniform"])
    (made,) = contest.against_peers(TorchStandIn("cpu"), case, suite_of("peers", operation=grouped), found, 7)
    assert made["verified"]
    assert {name: theirs["case"] for name, theirs in made["peers"].items()} == {
        "cleave_bfloat16": "wgrad 400x32x48 in 3 zipf groups bfloat16 nt",
        "cleave_uniform": "wgrad 400x32x48 in 3 uniform groups float8_e4m3fn tn scales block_1x128",
    }
    assert all(0 < theirs["row_error"] < 0.02 for theirs in made["peers"].values())


@pytest.mark.parametrize(
    ("operation", "case", "names"),
    [
        (
            wgrad_step,
            wgrad_step.Case(5, 90, 32, 48, sizes="zipf", form="wgrad"),
            ["expert_loop", "torch_grouped_step"],
        ),
        (expert_offsets, expert_offsets.Case(64, 2, 7, "zipf"), ["torch_bincount"]),
    ],
    ids=["wgrad_step", "expert_offsets"],
)
def test_steps(short, operation, case, names):
    pytest.importorskip("torch")
    found, missing = peers.load(names)
    assert not missing
    (made,) = contest.against_peers(
        TorchStandIn("cpu"), case, suite_of("steps", operation=operation), found, 7, steps.called
    )
    assert made["verified"]
    assert made["without"] == {}
    assert list(made["peers"]) == names
    for measured in (made, *made["peers"].values()):
        assert 0 < measured["host_us"] <= measured["us"]
    assert summary.summarize_peers([made])[names[0]]["compared"] == 1


def test_steps_rotate_over_the_operands():
    calls = []
    steps.called(StandInGpu(), [[lambda: calls.append(0), lambda: calls.append(1)]], 1)
    assert calls == [0, 1] * steps.STEPS


def test_wrong_offsets_are_detected():
    library, case = arrays.NumpyArrays(), expert_offsets.Case(64, 2, 7, "zipf")
    operands = expert_offsets.make_operands(library, case, 0)
    counts = np.bincount(operands.expert_ids.flatten(), minlength=7)
    operands.offs = counts.cumsum().astype(np.int32)
    assert expert_offsets.errors(library, case, operands).acceptable
    operands.offs[3] += 1
    assert not expert_offsets.errors(library, case, operands).acceptable
    expert_offsets.poison(library, operands)
    assert not expert_offsets.errors(library, case, operands).acceptable


# Convolutions


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.kind)
def test_conv_contest(short, case):
    pytest.importorskip("torch")
    found, missing = peers.load(["cudnn"])
    assert not missing
    (made,) = contest.against_peers(TorchStandIn("cpu"), case, suite_of("peers", operation=conv), found, 7)
    assert made["verified"]
    assert made["without"] == {}
    assert (made["kind"], made["tflops"] > 0) == (case.kind, True) and "stride 2" in made["case"]
    assert 0 < made["peers"]["cudnn"]["row_error"] < 0.01


def test_every_way_to_divide_is_measured(short, monkeypatch):
    asked = []

    def plan_for(case, operands):
        asked.append(case.division)
        return plan_of(case, operands)

    plan_of = conv.testing.plan_for
    monkeypatch.setattr(conv.testing, "plan_for", plan_for)
    found, missing = peers.load(suites.load("division").peers)
    assert not missing
    case = replace(SMALL[1], kernel="auto")
    suite = suite_of("peers", operation=conv)
    (made,) = contest.against_peers(StandInGpu(), case, suite, found, 7)
    ways = ("plain", "fast_load", "fast_store")
    assert asked[0] == "auto" and set(asked[1:]) == set(ways)
    assert set(made["peers"]) == {f"cleave_{way}" for way in ways}
    assert all("case" not in theirs for theirs in made["peers"].values())  # the same product
    assert all(theirs["rms_error"] == made["rms_error"] for theirs in made["peers"].values())
    columns, _ = report._peers_table([made])
    assert "cleave_plain / ours" in columns and "cleave_plain us" not in columns


# Quantisation


QUANTIZED = [
    quantize.Case(48, 256, to=to, granularity=granularity)
    for to in ("int8", "float8_e4m3fn", "float8_e5m2")
    for granularity in ("tensor", "row", "block_1x128", "block_128x128")
]


@pytest.mark.parametrize("case", QUANTIZED, ids=lambda case: case.title)
def test_quantize_contest(short, monkeypatch, case):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(cleave, "device_info", lambda device: {"memory_gb_per_s": 3000.0})
    found, _ = peers.load(["torch_eager"])
    (made,) = contest.against_peers(TorchStandIn("cpu"), case, suite_of("peers", operation=quantize), found, 7)
    assert made["verified"]
    assert made["floor_us"] == pytest.approx(case.bytes / 3e6)
    assert "tflops" not in made
    eager = made["peers"].get("torch_eager")
    if case.rows % (case.block[0] or 1):
        assert eager is None  # it has no partial blocks
    else:
        assert eager["rms_error"] == pytest.approx(made["rms_error"], rel=0.01)
    assert torch.isfinite(torch.tensor(made["row_error"]))


def test_quantize_case_counts():
    case = quantize.Case(200, 300, to="int8", granularity="block_128x128")
    assert case.bytes == 200 * 300 * 3 + 2 * 3 * 4
    assert quantize.Case(200, 300, granularity="row").bytes == 200 * 300 * 3 + 200 * 4
    assert quantize.Case(200, 300, granularity="tensor").bytes == 200 * 300 * 3 + 4
    assert case.title == "200x300 bfloat16 to int8 block_128x128"
