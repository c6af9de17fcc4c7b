"""The benchmark's pure parts: suites, statistics, reports and plots. Measuring needs a GPU."""

from __future__ import annotations

import json
import math
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import cleave
from cleave.cli import arrays, measure
from cleave.cli.case import GemmCase

sys.path.insert(0, str(Path(__file__).parents[2]))

from bench import __main__ as harness
from bench import contest, machine, peers, plot, report, suites, summary

MACHINE = {"gpu": "a GPU", "driver": None, "commit": "abc"}


def row(case, us, peer_us=None, **changes):
    made = {
        "case": case, "us": us, "tflops": 1.0, "gb_per_s": 2.0, "floor_us": us / 2,
        "kernel": "tile", "mode": "parallel", "slices": 4, "workspace_bytes": 64,
        "max_error": 1e-3, "rms_error": 1e-4, "verified": True, "peers": {},
    }  # fmt: skip
    if peer_us:
        made["peers"] = {"cublas": {"us": peer_us, "max_error": 1e-3, "rms_error": 1e-4}}
        made |= {
            "peer": "cublas",
            "peer_us": peer_us,
            "ratio": peer_us / us,
            "peer_rms_error": 1e-4,
        }
    return made | changes


def split_row(case, mode, slices, us):
    asked = {"requested_mode": mode, "requested_slices": slices}
    if us is None:
        return {"case": case, "us": None, "refused": "too many slices"} | asked
    return row(case, us, ratio=5 / us, slices=slices or 8) | asked


PEER_ROWS = [row("x", 10.0, 12.0), row("y", 10.0, 9.0, rms_error=2e-4), row("z", 5.0)]
SPLIT_ROWS = [
    split_row("x", "auto", None, 5.0),
    split_row("x", "serial", 2, 8.0),
    split_row("x", "serial", 4, 4.0),
    split_row("x", "cluster", 64, None),
    split_row("y", "auto", None, 5.0),
    split_row("y", "none", 1, 10.0),
]


# Suites


@pytest.mark.parametrize("name", suites.names())
def test_suites_load(name):
    suite = suites.load(name)
    quick = suites.load(name, quick=True)
    assert suite.name == name
    assert suite.cases
    assert len(suite.cases) == len(set(suite.cases))
    assert 0 < len(quick.cases) <= len(suite.cases)
    assert set(quick.cases) <= set(suite.cases)
    for case in suite.cases:
        assert case.layout == "tn"
        assert case.dtype in ("float16", "bfloat16")


def test_the_suites_are_the_baselines_tables():
    dense = suites.load("dense").cases
    assert len(dense) == 4 + 5 * 7 + 1
    assert {case.m for case in dense} == {1, 16, 64, 128, 4096, 1024, 2048, 8192}
    large_k = suites.load("large_k").cases
    assert len(large_k) == 7
    assert all(case.k >= 16 * max(case.m, case.n) for case in large_k)
    modes = suites.load("split_k_modes")
    assert modes.cases == large_k
    assert {mode for mode, _ in modes.splits} == {
        "none",
        "serial",
        "parallel",
        "cluster",
        "stream_k",
    }


def test_unknown_suites_are_refused():
    with pytest.raises(ValueError, match="no suite 'nothing'; there are dense"):
        suites.load("nothing")
    with pytest.raises(ValueError, match="kind 'odd'"):
        suites.parse({"name": "s", "kind": "odd", "title": "", "groups": []})


# Statistics


def test_geomean():
    assert summary.geomean([1, 4]) == pytest.approx(2)
    assert math.isnan(summary.geomean([]))


def test_ratios():
    result = summary.summarize_ratios(PEER_ROWS)
    assert result["compared"] == 2
    assert result["geomean"] == pytest.approx(math.sqrt(1.2 * 0.9))
    assert (result["worst_case"], result["best_case"]) == ("y", "x")
    assert (result["wins"], result["losses"]) == (1, 1)
    assert result["less_accurate"] == ["y"]
    assert summary.summarize_ratios([]) == {"compared": 0}


def test_modes():
    result = summary.summarize_modes(SPLIT_ROWS)
    assert result["compared"] == 2
    assert result["worst"] == pytest.approx(5 / 4)
    assert result["worst_case"] == "x"
    assert result["geomean"] == pytest.approx(math.sqrt(5 / 4 * 5 / 10))
    assert summary.summarize_modes(SPLIT_ROWS[:1]) == {"compared": 0}


# Reports


CONTENTS = {
    "peers": PEER_ROWS,
    "modes": SPLIT_ROWS,
    "host": [{"case": "x", "call": "torch.mm", "us": 9.5}],
}


@pytest.mark.parametrize("kind", suites.KINDS)
def test_report(kind, tmp_path):
    suite = suites.Suite("some", kind, "Some title", [])
    rows = CONTENTS[kind]
    verdict = harness._summarize(kind, rows)
    paths = report.write(tmp_path, suite, MACHINE, rows, ["A note."], verdict)
    data = json.loads(paths[0].read_text())
    assert data["rows"] == rows
    assert data["machine"] == MACHINE
    text = paths[1].read_text()
    assert text.startswith("# Some title\n\ngpu a GPU, commit abc\n")
    assert "A note." in text
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len(lines) == 2 + len(rows)
    assert len({line.count("|") for line in lines}) == 1


@pytest.mark.parametrize("kind", suites.KINDS)
def test_lines_name_the_case(kind):
    for made in CONTENTS[kind]:
        assert harness._line(made).startswith(made["case"])


def test_wrong_results_are_marked():
    assert "WRONG" in harness._line(row("x", 1.0, verified=False))


@pytest.mark.parametrize("kind", suites.KINDS)
def test_plot(kind, tmp_path):
    pytest.importorskip("matplotlib")
    path = plot.write(tmp_path, suites.Suite("some", kind, "Some title", []), CONTENTS[kind])
    if kind == "host":
        assert path is None
    else:
        text = path.read_text()
        assert "Some title" in text
        again = plot.write(tmp_path, suites.Suite("some", kind, "Some title", []), CONTENTS[kind])
        assert again.read_text() == text


# Contests, on the CPU backend instead of a GPU


class StandInGpu(arrays.NumpyArrays):
    """Replays are calls, timed by the clock."""

    on_gpu = True

    def on_stream(self, enqueue):
        enqueue()

    def capture(self, enqueue):
        return enqueue

    def microseconds(self, replay):
        start = time.perf_counter()
        replay()
        return (time.perf_counter() - start) * 1e6


CASE = GemmCase(32, 24, 512, dtype="float16")


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr(measure, "COLD_BYTES", 1)
    monkeypatch.setattr(measure, "REPLAY_US", 1.0)


def test_against_peers(short):
    class NumpyPeer:
        NAME = "numpy"

        @staticmethod
        def bind(case, operands):
            return lambda: np.matmul(operands.a, operands.b, out=operands.out)

    class Absent:
        NAME = "absent"
        bind = staticmethod(lambda case, operands: None)

    (made,) = contest.against_peers(StandInGpu(), CASE, [Absent, NumpyPeer], 7)
    assert made["verified"]
    assert list(made["peers"]) == ["numpy"]
    assert made["peer"] == "numpy"
    assert made["ratio"] == pytest.approx(made["peer_us"] / made["us"])
    assert 0 < made["rms_error"] < made["max_error"] < 1
    assert 0 < made["peer_rms_error"] < 1


def test_against_auto(short):
    splits = [("none", 1), ("serial", 2), ("serial", 100_000)]
    suite = suites.Suite("some", "modes", "", [CASE], splits)
    made = contest.against_auto(StandInGpu(), CASE, suite, 7)
    assert [row["requested_mode"] for row in made] == ["auto", "none", "serial", "serial"]
    assert made[0]["ratio"] == 1
    assert (made[2]["mode"], made[2]["slices"]) == ("serial", 2)
    assert all(row["verified"] and row["us"] > 0 for row in made[:3])
    assert made[3]["us"] is None
    assert "split_k_slices" in made[3]["refused"]
    assert summary.summarize_modes(made)["compared"] == 1


# The harness


def test_commit_from_the_environment(monkeypatch):
    monkeypatch.setenv("CLEAVE_COMMIT", "1234")
    assert machine.commit() == "1234"


def test_peers_are_imported_or_explained():
    found, missing = peers.available()
    assert {peer.NAME for peer in found} | set(missing) == {"cublas", "deepgemm"}
    assert all(missing.values())


def test_time_budget_leaves_cases_out():
    suite = suites.load("large_k")
    rows, notes = harness._measure(suite, lambda case: [row(case.title, 1.0)], deadline=0.0)
    assert rows == []
    assert notes == ["7 of 7 cases left out: the time was up."]
    rows, notes = harness._measure(suite, lambda case: [row(case.title, 1.0)], deadline=math.inf)
    assert (len(rows), notes) == (7, [])


@pytest.mark.skipif(cleave.device_count() > 0, reason="there is a GPU")
def test_refuses_without_a_gpu(capsys):
    assert harness.main([]) == 1
    assert "needs an NVIDIA GPU" in capsys.readouterr().err


def test_refuses_the_cpu(capsys):
    assert harness.main(["--device", "cpu"]) == 1
    assert "measures GPUs" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--suite", "nothing"], ["--rounds", "3"], ["--bogus"]])
def test_wrong_usage(arguments):
    with pytest.raises(SystemExit) as exit_:
        harness.main(arguments)
    assert exit_.value.code == 2
