"""The benchmark's pure parts: suites, statistics, reports and plots. Measuring needs a GPU."""

from __future__ import annotations

import json
import math
import sys
import time
import types
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import cleave
from cleave.cli import arrays, dtypes, measure, values
from cleave.cli.case import GemmCase

sys.path.insert(0, str(Path(__file__).parents[2]))

from bench import __main__ as harness
from bench import (
    ahead,
    contest,
    conv,
    division,
    division_report,
    expert_offsets,
    gemm,
    grouped,
    host,
    machine,
    peers,
    plot,
    quantize,
    readme,
    report,
    steps,
    suites,
    summary,
    wgrad_step,
)

MACHINE = {"gpu": "a GPU", "driver": None, "commit": "abc"}


def row(case, us, peer_us=None, **changes):
    made = {
        "case": case, "us": us, "tflops": 1.0, "gb_per_s": 2.0, "floor_us": us / 2,
        "kernel": "tile", "mode": "parallel", "slices": 4, "workspace_bytes": 64,
        "max_error": 1e-3, "rms_error": 1e-4, "row_error": 1e-3, "verified": True, "peers": {},
    }  # fmt: skip
    if peer_us:
        made["peers"] = {"cublas": theirs(peer_us, us)}
    return made | changes


def theirs(peer_us, us, **changes):
    errors = {"max_error": 1e-3, "rms_error": 1e-4, "row_error": 1e-3}
    return errors | {"us": peer_us, "ratio": peer_us / us} | changes


def split_row(case, mode, slices, us):
    asked = {"requested_mode": mode, "requested_slices": slices}
    if us is None:
        return {"case": case, "us": None, "refused": "too many slices"} | asked
    return row(case, us, ratio=5 / us, slices=slices or 8) | asked


def division_row(case, kernel, way, us, **changes):
    asked = {"requested_kernel": kernel, "requested_division": way, "call": f"{kernel} {way}"}
    if us is None:
        return {
            "case": case,
            "us": None,
            "refused": "no TMA",
            "without": {kernel: "no TMA"},
        } | asked
    facts = {"class_taps": "1x4 2x2 1x1", "registers": 40, "instructions": 900, "reciprocals": 0}
    return row(case, us) | facts | asked | changes


PEER_ROWS = [row("x", 10.0, 12.0), row("y", 10.0, 9.0, rms_error=2e-4), row("z", 5.0)]
STEP_ROWS = [
    {"case": "x", "us": 10.0, "host_us": 4.0, "max_error": 0.0, "rms_error": 0.0, "row_error": 0.0,
     "verified": True, "peers": {"loop": theirs(50.0, 10.0, host_us=40.0)}},
    {"case": "y", "us": 20.0, "host_us": 8.0, "max_error": 0.0, "rms_error": 0.0, "row_error": 0.0,
     "verified": True, "peers": {"loop": theirs(80.0, 20.0, host_us=20.0)}},
]  # fmt: skip
SPLIT_ROWS = [
    split_row("x", "auto", None, 5.0),
    split_row("x", "serial", 2, 8.0),
    split_row("x", "serial", 4, 4.0),
    split_row("x", "cluster", 64, None),
    split_row("y", "auto", None, 5.0),
    split_row("y", "none", 1, 10.0),
]
DIVISION_ROWS = [
    division_row("x", "sm90", "auto", 4.0, ratio=2.0, chosen="fast fast_store"),
    division_row("x", "sm90", "fast", 4.0, ratio=2.0),
    division_row("x", "sm90", "plain", 8.0, ratio=1.0, registers=44, reciprocals=5),
    division_row("x", "sm90", "fast_load", 10.0, ratio=0.8, registers=44, reciprocals=5),
    division_row("x", "sm90", "fast_store", 4.0, ratio=2.0),
    division_row("y", "sm90", "auto", 5.0, ratio=0.8, chosen="fast"),
    division_row("y", "sm90", "fast", 5.0, ratio=0.8),
    division_row("y", "sm90", "plain", 4.0, ratio=1.0),
    division_row("x", "portable", "fast", 4.0),
    division_row("x", "portable", "plain", None),
    division_row("y", "portable", "auto", 4.0),
]


def suite_of(kind, cases=(), splits=(), operation=gemm, best_of=()):
    group = suites.Group("A group", list(cases))
    return suites.Suite(
        "some", kind, "Some title", operation, [group], splits=list(splits), best_of=list(best_of)
    )


# Suites


@pytest.mark.parametrize("name", suites.names())
def test_suites_load(name):
    suite = suites.load(name)
    quick = suites.load(name, quick=True)
    assert suite.name == name
    assert suite.cases
    assert len(suite.cases) == len(set(suite.cases))
    assert len({case.title for case in suite.cases}) == len(suite.cases)
    assert 0 < len(quick.cases) <= len(suite.cases)
    assert set(quick.cases) <= set(suite.cases)
    assert set(suite.peers) <= set(peers.names())
    assert set(suite.best_of) <= set(suite.peers)
    assert all(group.title for group in suite.groups)
    assert all(len(group.headline) == 2 for group in suite.groups) == (suite.kind == "host")
    for case in suite.cases:
        assert case.bytes > 0
        if suite.operation is not expert_offsets:
            assert case.dtype in dtypes.DTYPES
        if suite.operation is conv:
            assert min(case.outputs) > 0
        if suite.operation is gemm:
            assert case.layout == "tn"


def shapes(name):
    return {(case.m, case.n, case.k) for case in suites.load(name).cases}


LAYERS = {
    (2112, 7168), (576, 7168), (24576, 1536), (32768, 512), (7168, 16384), (4096, 7168),
    (7168, 2048),
}  # fmt: skip


def layers(*tokens):
    return {(m, n, k) for m in tokens for n, k in LAYERS}


def squares(*sizes):
    return {(size, size, size) for size in sizes}


def test_the_suites_are_the_baselines_tables():
    every = squares(1024, 2048, 4096, 8192) | layers(1, 16, 64, 128, 4096)
    assert shapes("dense") == every
    assert shapes("fp8_row") == squares(4096, 8192) | layers(16, 64, 128, 4096)
    assert shapes("fp8_block") == squares(4096, 8192) | layers(1, 64, 128, 4096)
    assert len(shapes("int8")) == 7
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


def test_the_grouped_suites_are_the_baselines_tables():
    def grouped_shapes(name):
        return {(c.groups, c.tokens, c.n, c.k) for c in suites.load(name).cases}

    spreads = ((4, 8192), (8, 4096), (32, 256), (64, 64), (128, 16))
    layers = ((4096, 7168), (7168, 2048))
    every = {(groups, groups * mean, n, k) for groups, mean in spreads for n, k in layers}
    for name in ("grouped_fwd", "grouped_wgrad", "grouped_fp8_fwd", "grouped_fp8_wgrad"):
        assert grouped_shapes(name) == every
        assert {case.sizes for case in suites.load(name).cases} == {"varied"}
    assert (64, 4096, 1408, 2048) in grouped_shapes("grouped_loop")
    assert len(grouped_shapes("grouped_loop")) == 6
    skew = suites.load("grouped_skew").cases
    assert {(case.groups, case.form) for case in skew} == {
        (groups, form) for groups in (64, 256) for form in ("forward", "wgrad")
    }
    assert {case.sizes for case in skew} == {"zipf"}


def test_the_conv_suites_are_the_baselines_table():
    suite_of_kind = {"fprop": ["conv_fprop"], "dgrad": ["conv_dgrad", "conv_dgrad_unit"]}
    suite_of_kind["wgrad"] = ["conv_wgrad"]
    layers = {}
    for kind, names in suite_of_kind.items():
        cases = [case for name in names for case in suites.load(name).cases]
        assert {(case.kind, case.dtype) for case in cases} == {(kind, "float16")}
        layers[kind] = {replace(case, kind="fprop") for case in cases}
        assert len(layers[kind]) == 13
    assert layers["fprop"] == layers["dgrad"] == layers["wgrad"]
    strides = [case.stride for case in suites.load("conv_dgrad").cases]
    assert strides == [(2, 2)] * 10
    assert all(case.stride == (1, 1) for case in suites.load("conv_dgrad_unit").cases)


def test_the_division_suite_is_wide():
    cases = suites.load("division").cases
    assert len(cases) >= 60
    assert {case.kind for case in cases} == {"dgrad"}
    assert set(suites.load("conv_dgrad").cases) < set(cases)
    assert {case.stride for case in cases} >= {(n, n) for n in (1, 2, 3, 4, 8)} | {(2, 1), (1, 2)}
    assert {case.filter_size for case in cases} >= {(n, n) for n in (1, 2, 3, 4, 5, 6, 7, 8, 11)}
    assert {case.dilation[0] for case in cases} == {1, 2, 3}
    assert any(before != after for case in cases for before, after in case.padding)
    # What the planner serves: at most 64 classes.
    assert all(math.prod(case.stride) <= 64 for case in cases)


def test_the_scaled_suites_ask_for_what_the_peers_compute():
    assert all(c.use_fast_accum and c.scaling == "row" for c in suites.load("fp8_row").cases)
    assert {c.scaling for c in suites.load("fp8_block").cases} == {"block_128x128"}
    assert {c.result_dtype for c in suites.load("int8").cases} == {"bfloat16"}


def test_match_leaves_the_cases_with_the_text():
    found = suites.load("dense", match="64x2112")
    assert [case.title for case in found.cases] == ["64x2112x7168 bfloat16 tn"]
    assert suites.load("dense", match="no such").cases == []


def test_unknown_suites_are_refused():
    with pytest.raises(ValueError, match="no suite 'nothing'; there are conv_dgrad"):
        suites.load("nothing")
    made = {"name": "s", "kind": "odd", "title": "", "operation": "gemm", "groups": []}
    with pytest.raises(ValueError, match="kind 'odd' is not one of peers"):
        suites.parse(made)
    with pytest.raises(ValueError, match="operation 'sort' is not one of gemm, quantize, grouped"):
        suites.parse(made | {"kind": "host", "operation": "sort"})


# Statistics


def test_geomean():
    assert summary.geomean([1, 4]) == pytest.approx(2)
    assert math.isnan(summary.geomean([]))


def test_ratios():
    result = summary.summarize_peers(PEER_ROWS)["cublas"]
    assert result["compared"] == 2
    assert result["geomean"] == pytest.approx(math.sqrt(1.2 * 0.9))
    assert (result["worst_case"], result["best_case"]) == ("y", "x")
    assert (result["wins"], result["losses"]) == (1, ["y"])
    assert result["less_accurate"] == ["y"]
    assert summary.summarize_peers([]) == {}


def test_the_best_of_some_peers_is_one_more():
    rows = [row("x", 10.0), row("y", 10.0), row("z", 10.0)]
    rows[0]["peers"] = {"first": theirs(20.0, 10.0), "second": theirs(5.0, 10.0)}
    rows[1]["peers"] = {"first": theirs(40.0, 10.0), "third": theirs(1.0, 10.0)}
    rows[2]["peers"] = {"third": theirs(1.0, 10.0)}
    result = summary.summarize_peers(rows, ["first", "second"])
    assert list(result) == ["first", "second", "third", "the best of first and second"]
    best = result["the best of first and second"]
    assert (best["compared"], best["worst_case"], best["best_case"]) == (2, "x", "y")
    assert best["geomean"] == pytest.approx(math.sqrt(0.5 * 4))
    assert list(summary.summarize_peers(rows, ["second"])) == ["first", "second", "third"]


def test_steps_compare_host_times_too():
    result = summary.summarize_peers(STEP_ROWS)["loop"]
    assert result["geomean"] == pytest.approx(math.sqrt(5 * 4))
    assert (result["host_us"], result["host_saved"]) == (8.0, pytest.approx(0.6))
    assert report.summary_lines("steps", {"loop": result})[-1] == (
        "Host time at most 8.0 us a step, everywhere less than loop's by 60.0% or more."
    )


def test_every_peer_has_its_own_ratios():
    rows = [row("x", 10.0), row("y", 10.0, rms_error=2e-4)]
    rows[0]["peers"] = {"first": theirs(20.0, 10.0), "second": theirs(5.0, 10.0)}
    rows[1]["peers"] = {"second": theirs(10.0, 10.0, case="less work")}
    result = summary.summarize_peers(rows)
    assert list(result) == ["first", "second"]
    assert (result["first"]["compared"], result["first"]["geomean"]) == (1, pytest.approx(2))
    assert result["second"]["losses"] == ["x"]
    assert "less_accurate" not in result["second"]  # errors of different work say nothing
    assert "second computes something else, such as less work." in report.summary_lines(
        "peers", result
    )


def test_modes():
    result = summary.summarize_modes(SPLIT_ROWS)
    assert result["compared"] == 2
    assert result["worst"] == pytest.approx(5 / 4)
    assert result["worst_case"] == "x"
    assert result["geomean"] == pytest.approx(math.sqrt(5 / 4 * 5 / 10))
    assert summary.summarize_modes(SPLIT_ROWS[:1]) == {"compared": 0}


def test_division():
    result = division_report.summarize(DIVISION_ROWS)
    assert list(result) == ["sm90", "portable"]
    over = result["sm90"]["plain_over"]
    assert list(over) == ["auto", "fast", "fast_load", "fast_store"]
    assert over["fast"]["geomean"] == pytest.approx(math.sqrt(2 * 0.8))
    assert (over["fast"]["worst_case"], over["fast"]["best_case"]) == ("y", "x")
    assert over["fast_load"]["compared"] == 1
    # Where ways are the same code, the first counts.
    assert result["sm90"]["fastest"] == {"fast": 1, "plain": 1}
    assert result["sm90"]["auto_losses"] == ["y"]
    assert result["sm90"]["best_over_auto"]["geomean"] == pytest.approx(math.sqrt(0.8))
    portable = {
        "plain_over": {}, "fastest": {"fast": 1}, "auto_losses": [], "best_over_auto": {},
    }  # fmt: skip
    assert result["portable"] == portable
    assert division_report.summarize(DIVISION_ROWS[-2:]) == {}


def test_division_is_said_in_sentences():
    said = division_report.lines(division_report.summarize(DIVISION_ROWS))
    assert said[1].startswith("sm90, plain's time over fast's: geomean 1.265 of 2, worst 0.800 on")
    assert said[-4:] == [
        "sm90, cases on which each way is the fastest: fast 1, plain 1.",
        "sm90, slower with auto than with plain: y.",
        "sm90, the fastest way's time over auto's: geomean 0.894 of 2, worst 0.800 on y.",
        "portable, cases on which each way is the fastest: fast 1.",
    ]


def test_division_table_has_a_line_per_case_and_kernel():
    columns, cells = division_report.table(DIVISION_ROWS)
    assert [line[0] for line in cells] == ["x", "y", "x"]
    first = dict(zip(columns, cells[0], strict=True))
    assert (first["plain us"], first["plain / fast_load"], first["fastest"]) == (8.0, 0.8, "fast")
    assert first["auto is"] == "fast fast_store"
    assert first["registers: fast, plain, fast_load, fast_store"] == "40, 44, 44, 40"
    last = dict(zip(columns, cells[2], strict=True))
    assert (last["kernel"], last["plain us"], last["auto is"]) == ("portable", None, None)


# Reports


CONTENTS = {
    "peers": PEER_ROWS,
    "steps": STEP_ROWS,
    "modes": SPLIT_ROWS,
    "division": DIVISION_ROWS,
    "host": [{"case": "x", "call": "torch.mm", "us": 9.5}],
}


@pytest.mark.parametrize("kind", suites.KINDS)
def test_report(kind, tmp_path):
    suite = suite_of(kind)
    rows = CONTENTS[kind]
    verdict = harness._summarize(suite, rows)
    paths = report.write(tmp_path, suite, MACHINE, rows, ["A note."], verdict)
    data = json.loads(paths[0].read_text())
    assert data["rows"] == rows
    assert data["machine"] == MACHINE
    text = paths[1].read_text()
    assert text.startswith("# Some title\n\ngpu a GPU, commit abc\n")
    assert "A note." in text
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len(lines) == 2 + (3 if kind == "division" else len(rows))
    assert len({line.count("|") for line in lines}) == 1


@pytest.mark.parametrize("kind", suites.KINDS)
def test_lines_name_the_case(kind):
    for made in CONTENTS[kind]:
        assert harness._line(made).startswith(made["case"])


def test_wrong_results_are_marked():
    assert "WRONG" in harness._line(row("x", 1.0, verified=False))


def test_summaries_name_the_losses():
    lines = report.summary_lines("peers", summary.summarize_peers(PEER_ROWS))
    assert lines[0].startswith("cublas's time over ours: geomean 1.039 of 2, worst 0.900 on y")
    assert lines[1] == "Slower than cublas: y."


def test_absent_peers_are_named_once_per_reason():
    rows = [
        row("x", 1.0, without={"peer": "too small.", "other": "no"}),
        row("y", 1.0, without={"peer": "too small."}),
    ]
    assert report.missing_lines(rows) == [
        "Without peer on x, y: too small.",
        "Without other on x: no.",
    ]


# The README's table


def write_result(directory, name, rows, gpu="NVIDIA H100 80GB HBM3"):
    result = {"machine": {"gpu": gpu}, "rows": rows}
    (directory / f"{name}.json").write_text(json.dumps(result))


def test_readme_table(tmp_path):
    first, second, *_ = suites.load("large_k").cases
    rows = [row(first.title, 10.0, 20.0), row(second.title, 10.0, 5.0)]
    write_result(tmp_path, "large_k", rows, gpu="NVIDIA H200")
    case = suites.load("host").cases[0].title
    calls = {"cleave.gemm(out=)": 5.6, "torch.mm(out=)": 21.7, "torch.mm": 99.0}
    times = [{"case": case, "call": call, "us": us} for call, us in calls.items()]
    write_result(tmp_path, "host", times)
    assert readme.lines(tmp_path)[2:] == [
        "| host time of a call with `out=`: `cleave.gemm(out=)` "
        "| H100 | 6 us, where `torch.mm(out=)` takes 22 |",
        "| K much larger than M and N, TN, 2 shapes, against cublas "
        "| H200 | geomean 1.00, worst 0.50, best 2.00 |",
    ]


def test_readme_has_the_best_of_peers_and_host_times(tmp_path):
    first, *_ = suites.load("grouped_fwd").cases
    both = {"torch_grouped": theirs(20.0, 10.0), "deepgemm_grouped": theirs(15.0, 10.0)}
    rows = [row(first.title, 10.0, peers=both)]
    write_result(tmp_path, "grouped_fwd", rows)
    write_result(tmp_path, "grouped_loop", STEP_ROWS)
    *_, best, loop = readme.lines(tmp_path)
    assert best == (
        "| Experts' forward, bf16, 1 shapes, against the best of torch grouped and deepgemm grouped"
        " | H100 | geomean 1.50, worst 1.50, best 1.50 |"
    )
    assert loop.endswith("worst 4.00, best 5.00; host at most 8 us, 60% less or better |")


def test_table_of_ways_to_divide(tmp_path):
    assert readme.division_lines(tmp_path) == []
    verdict = division_report.summarize(DIVISION_ROWS)
    report.write(tmp_path, replace(suite_of("division"), name="division"), MACHINE, [], [], verdict)
    said, _, _, _, *rows = readme.division_lines(tmp_path)
    assert said == "a GPU, plain's time over that of each other way:"
    assert len(rows) == 2 * len(values.DIVISIONS)
    assert "| sm90 | `fast` | 1.265 | 0.800 | 2.000 | 1 |" in rows
    assert "| sm90 | `plain` |  |  |  | 1 |" in rows


def test_every_page_with_results_has_a_place_for_them():
    for page in readme.PAGES:
        text = (readme.ROOT / page).read_text()
        assert "a table" in readme.replaced(text, "a table")


def test_readme_keeps_what_is_around_the_table():
    start, end = readme.MARKERS
    text = f"before\n{start}\nold\n{end}\nafter\n"
    assert readme.replaced(text, "new") == f"before\n{start}\nnew\n{end}\nafter\n"
    with pytest.raises(ValueError, match="has no lines"):
        readme.replaced("nothing here", "new")


@pytest.mark.parametrize("kind", suites.KINDS)
def test_plot(kind, tmp_path):
    pytest.importorskip("matplotlib")
    path = plot.write(tmp_path, suite_of(kind), CONTENTS[kind])
    if kind in ("host", "steps"):
        assert path is None
    else:
        text = path.read_text()
        assert "Some title" in text
        again = plot.write(tmp_path, suite_of(kind), CONTENTS[kind])
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
SCALED = GemmCase(32, 24, 512, dtype="int8", scaling="row", out_dtype="float32")


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr(measure, "COLD_BYTES", 1)
    monkeypatch.setattr(measure, "REPLAY_US", 1.0)


def multiply_real(case, operands):
    a, b = (np.asarray(x, np.float64) for x in (operands.a, operands.b))
    scales = operands.scales
    return (a * scales.get("scale_a", 1)) @ (b * scales.get("scale_b", 1))


def numpy_peer(serves):
    def calls(case, operands):
        def call():
            operands.out[...] = multiply_real(case, operands)

        return {"numpy.matmul": call}

    return peers.Peer("numpy", serves, calls)


ABSENT = peers.Peer("absent", lambda case: None, lambda case, operands: {})


@pytest.mark.parametrize("case", [CASE, SCALED], ids=["float16", "int8"])
def test_against_peers(short, case):
    (made,) = contest.against_peers(
        StandInGpu(), case, suite_of("peers"), [ABSENT, numpy_peer(lambda case: case)], 7
    )
    assert made["verified"]
    assert made["without"] == {}
    assert list(made["peers"]) == ["numpy"]
    numpy = made["peers"]["numpy"]
    assert numpy["ratio"] == pytest.approx(numpy["us"] / made["us"])
    assert 0 < made["rms_error"] < made["max_error"] < 1
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


class TorchStandIn(arrays.TorchArrays):
    on_stream, capture, microseconds = (
        getattr(StandInGpu, name) for name in ("on_stream", "capture", "microseconds")
    )


def grouped_cases(**changes):
    return [
        grouped.Case(4, 90, 32, 48, form=form, **changes) for form in ("forward", "dgrad", "wgrad")
    ]


@pytest.mark.parametrize("case", grouped_cases(), ids=lambda case: case.form)
def test_grouped_contest(short, case):
    pytest.importorskip("torch")
    found, missing = peers.load(["torch_grouped"])
    assert not missing
    (made,) = contest.against_peers(
        TorchStandIn("cpu"), case, suite_of("peers", operation=grouped), found, 7
    )
    assert made["verified"]
    assert made["tflops"] > 0
    theirs = made["peers"]["torch_grouped"]
    assert theirs["rms_error"] == pytest.approx(made["rms_error"], rel=0.01)
    assert made["groups"] == 4


def test_groups_contend_with_our_own_other_cases(short):
    pytest.importorskip("torch")
    case = grouped.Case(
        3, 400, 32, 48, form="wgrad", sizes="zipf", dtype="float8_e4m3fn", scaling="block_1x128"
    )
    found, _ = peers.load(["cleave_bfloat16", "cleave_uniform"])
    (made,) = contest.against_peers(
        TorchStandIn("cpu"), case, suite_of("peers", operation=grouped), found, 7
    )
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


def test_grouped_peers_serve_what_they_can():
    pytest.importorskip("torch")
    names = ["torch_grouped", "torch_grouped_rowwise", "cleave_bfloat16", "cleave_uniform"]
    found = {peer.name: peer for peer in peers.load(names)[0]}
    plain, rows, blocks = (
        grouped_cases(**options)
        for options in (
            {},
            {"dtype": "float8_e4m3fn", "scaling": "row", "sizes": "uniform"},
            {"dtype": "float8_e4m3fn", "scaling": "block_1x128", "sizes": "zipf"},
        )
    )
    every = [*plain, *rows, *blocks]
    serving = {name: [case for case in every if peer.serves(case)] for name, peer in found.items()}
    assert serving == {
        "torch_grouped": plain,
        "torch_grouped_rowwise": rows[:2],
        "cleave_bfloat16": [*rows, *blocks],
        "cleave_uniform": [*plain, *blocks],
    }
    assert found["cleave_bfloat16"].serves(blocks[2]) == replace(plain[2], sizes="zipf")
    assert not found["torch_grouped"].serves(replace(plain[0], alignment=128))


class RecordedDeepGemm(types.ModuleType):
    """Its signatures, and float64 products of what it is given."""

    def get_mn_major_tma_aligned_tensor(self, scale):
        return scale

    def m_grouped_bf16_gemm_nt_contiguous(self, a, b, out, groups):
        for group in range(len(b)):
            rows = groups == group
            out[rows] = (a[rows].double() @ b[group].double().T).to(out.dtype)

    def m_grouped_fp8_gemm_nt_contiguous(self, a, b, out, groups):
        (a, scale_a), (b, scale_b) = a, b
        a = a.double() * scale_a.repeat_interleave(128, 1)[:, : a.shape[1]]
        scale_b = scale_b.repeat_interleave(128, 1).repeat_interleave(128, 2)
        b = b.double() * scale_b[:, : b.shape[1], : b.shape[2]]
        self.m_grouped_bf16_gemm_nt_contiguous(a, b, out, groups)


@pytest.mark.parametrize(
    "options",
    [{}, {"dtype": "float8_e4m3fn", "scaling": "block_128x128"}],
    ids=["bfloat16", "float8_e4m3fn"],
)
def test_deepgemm_computes_padded_groups(short, monkeypatch, options):
    pytest.importorskip("torch")
    monkeypatch.setitem(sys.modules, "deep_gemm", RecordedDeepGemm("deep_gemm"))
    monkeypatch.delitem(sys.modules, "bench.peers.deepgemm_grouped", raising=False)
    found, missing = peers.load(["deepgemm_grouped"])
    assert not missing
    case = grouped.Case(3, 600, 64, 160, **options)
    (made,) = contest.against_peers(
        TorchStandIn("cpu"), case, suite_of("peers", operation=grouped), found, 7
    )
    theirs = made["peers"]["deepgemm_grouped"]
    assert "aligned to 128" in theirs["case"]
    assert 0 < theirs["row_error"] < 0.02
    few = replace(case, tokens=150)
    assert found[0].serves(few) is None  # more rows between groups than in them
    monkeypatch.delitem(sys.modules, "bench.peers.deepgemm_grouped")


# Convolutions


SMALL = [conv.Case(2, (9, 8), 8, 16, 3, 2, 1, kind=kind) for kind in ("fprop", "dgrad", "wgrad")]


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.kind)
def test_conv_contest(short, case):
    pytest.importorskip("torch")
    found, missing = peers.load(["cudnn"])
    assert not missing
    (made,) = contest.against_peers(
        TorchStandIn("cpu"), case, suite_of("peers", operation=conv), found, 7
    )
    assert made["verified"]
    assert made["without"] == {}
    assert (made["kind"], made["stride"], made["tflops"] > 0) == (case.kind, (2, 2), True)
    assert 0 < made["peers"]["cudnn"]["row_error"] < 0.01


def test_cudnn_serves_what_it_can():
    pytest.importorskip("torch")
    (peer,), _ = peers.load(["cudnn"])
    volume = conv.Case(2, (4, 9, 8), 8, 16, 3, 2, 1, groups=2, dtype="bfloat16", kind="wgrad")
    assert all(peer.serves(case) is case for case in (*SMALL, volume))
    case = SMALL[0]
    for other in (
        replace(case, bias="row"),
        replace(case, dtype="int8"),
        replace(case, out_dtype="float32"),
        replace(case, padding=((0, 1), 1)),
        conv.Case(2, (9,), 8, 16, 3),
    ):
        assert peer.serves(other) is None


@pytest.mark.parametrize(
    "options",
    [
        {"dtype": "float32"},
        {"dilation": 2, "groups": 2, "dtype": "float32"},
        {"dtype": "bfloat16", "size": (5, 6, 7)},
    ],
    ids=["plain", "groups", "volume"],
)
@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.kind)
def test_cudnn_computes(case, options):
    pytest.importorskip("torch")
    one_per_axis = {"filter_size": 3, "stride": 2, "padding": 1, "dilation": 1}
    case = replace(case, **one_per_axis | options)
    library = arrays.TorchArrays("cpu")
    (peer,), _ = peers.load(["cudnn"])
    operands = conv.make_operands(library, case)
    given = operands.out
    (call,) = peer.calls(case, operands).values()
    call()
    assert operands.out is not given
    assert conv.errors(library, case, operands).acceptable


@pytest.mark.parametrize(
    ("case", "said"),
    [
        (conv.Case(1, (56, 56), 8, 8, 3, 2, 1, kind="dgrad"), "1x4 2x2 1x1"),
        (conv.Case(1, (56, 56), 8, 8, 1, 2, 0, kind="dgrad"), "1x1 3x0"),
        (conv.Case(1, (56, 56), 8, 8, 3, 2, 2, 2, kind="dgrad"), "1x9 3x0"),
        (conv.Case(1, (56, 56), 8, 8, 4, 2, 1, kind="dgrad"), "4x4"),
        (conv.Case(1, (56, 56), 8, 8, 3, 1, 1, kind="dgrad"), "1x9"),
    ],
)
def test_class_taps(case, said):
    assert division.class_taps(case) == said


def test_every_way_to_divide_is_measured(short, monkeypatch):
    def plan_for(case, operands):
        if case.kernel == "sm90" and case.division == "plain":
            raise ValueError("channels are\n no multiple of 8")
        plan = plan_of(replace(case, kernel="auto"), operands)
        source = "fast" if case.division == "auto" else case.division
        facts = {name: getattr(plan, name) for name in FACTS}
        return types.SimpleNamespace(kernel_source=f"{case.kernel} {source}", run=plan.run, **facts)

    plan_of = division.conv.plan_for
    monkeypatch.setattr(division.conv, "plan_for", plan_for)
    code = {"registers": 40, "instructions": 9, "reciprocals": 1, "spill_bytes": 0}
    monkeypatch.setattr(division, "_code", lambda plan: code)
    case = SMALL[1]
    made = division.compare(StandInGpu(), case, suite_of("division", operation=conv), 7)
    assert [row["call"] for row in made] == [
        f"{kernel} {way}" for kernel in division.KERNELS for way in values.DIVISIONS
    ]
    by_call = {row["call"]: row for row in made}
    refused = by_call.pop("sm90 plain")
    assert (refused["us"], refused["refused"]) == (None, "channels are no multiple of 8")
    assert all(row["verified"] and row["us"] > 0 for row in by_call.values())
    assert all(row["instructions"] == 9 and row["tflops"] > 0 for row in by_call.values())
    assert by_call["portable auto"]["us"] == by_call["portable fast"]["us"]
    assert by_call["portable auto"]["chosen"] == "fast"
    plain = by_call["portable plain"]["us"]
    assert by_call["portable fast"]["ratio"] == pytest.approx(
        plain / by_call["portable fast"]["us"]
    )
    assert "ratio" not in by_call["sm90 fast"]
    assert list(division_report.summarize(made)) == ["sm90", "portable"]
    assert report.missing_lines(made) == [
        f"Without sm90 plain on {case.title}: channels are no multiple of 8."
    ]


FACTS = ("roofline_us", "kernel_name", "split_k_mode", "split_k_slices", "workspace_size")


def test_kernels_are_compiled_ahead_and_once(monkeypatch):
    sources = []
    monkeypatch.setattr(
        ahead._core, "compile_plan", lambda plan: sources.append(plan.kernel_source), raising=False
    )
    cases = [*SMALL, SMALL[0], quantize.Case(8, 128), replace(SMALL[0], padding=0, filter_size=99)]
    assert ahead.compile_kernels(cases, "h100") == len(sources) == len(set(sources)) <= 3
    assert ahead.compile_kernels(SMALL, "cpu") == 0


# Host times


@pytest.mark.parametrize(
    ("case", "called"),
    [
        (GemmCase(16, 16, 16), ["cleave.gemm(out=)", "cleave.gemm", "torch.mm(out=)", "torch.mm"]),
        (
            GemmCase(32, 16, 16, dtype="int8", scaling="row"),
            ["cleave.scaled_gemm(out=)", "cleave.scaled_gemm", "torch._int_mm(out=)"],
        ),
    ],
    ids=["bfloat16", "int8"],
)
def test_host_times_of_every_way_to_call(monkeypatch, case, called):
    torch = pytest.importorskip("torch")
    current = types.SimpleNamespace(cuda_stream=0)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: current)
    monkeypatch.setattr(cleave._core, "launch_floor", lambda *_: 0.5, raising=False)
    monkeypatch.setattr(host, "CALLS", 2)
    found, missing = peers.load(["cublas", "cublas_int8"])
    made = host.host_times(arrays.TorchArrays("cpu"), case, found, 3)
    assert not missing
    times = {row["call"]: row["us"] for row in made}
    assert times["an empty kernel"] == 0.5
    assert {"C++ plan->run", "plan.run", *called} <= set(times)
    assert all(us > 0 for us in times.values())
    assert {row["case"] for row in made} == {case.title}
    operators = [call for call in times if call.startswith("torch.ops.cleave")]
    assert bool(operators) != ("torch.ops.cleave" in made[0]["without"])


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
    (made,) = contest.against_peers(
        TorchStandIn("cpu"), case, suite_of("peers", operation=quantize), found, 7
    )
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


# Peers


DENSE_PEERS = {
    "cublas", "cublas_int8", "cublas_int8_eager", "cublas_tensorwise", "torch_blockwise",
    "torch_rowwise",
}  # fmt: skip


def test_peers_serve_what_they_can():
    found = {peer.name: peer for peer in peers.load(peers.names())[0]}
    if "cublas" not in found:
        pytest.skip("needs torch")
    dense = GemmCase(64, 64, 64)
    row_scaled = GemmCase(64, 64, 64, dtype="float8_e4m3fn", scaling="row", use_fast_accum=True)
    blocks = replace(row_scaled, scaling="block_128x128")
    integers = replace(row_scaled, dtype="int8", use_fast_accum=False)
    serving = {
        name: [case for case in (dense, row_scaled, blocks, integers) if peer.serves(case)]
        for name, peer in found.items()
        if name in DENSE_PEERS
    }
    assert serving == {
        "cublas": [dense],
        "cublas_int8": [integers],
        "cublas_int8_eager": [integers],
        "cublas_tensorwise": [row_scaled, blocks],
        "torch_blockwise": [blocks],
        "torch_rowwise": [row_scaled],
    }
    assert found["cublas_tensorwise"].serves(row_scaled) == replace(row_scaled, scaling="tensor")
    assert found["cublas_int8"].serves(integers) == GemmCase(64, 64, 64, dtype="int8")
    for peer in serving:
        assert not found[peer].serves(replace(serving[peer][0], activation="relu"))


@pytest.mark.parametrize(
    ("name", "case"),
    [
        ("cublas", GemmCase(64, 32, 128)),
        ("cublas_int8", GemmCase(64, 32, 128, dtype="int8", scaling="row")),
        ("cublas_int8_eager", GemmCase(64, 32, 128, dtype="int8", scaling="row")),
        ("torch_rowwise", GemmCase(64, 32, 128, dtype="float8_e4m3fn", scaling="row")),
        ("cublas_tensorwise", GemmCase(64, 32, 128, dtype="float8_e4m3fn", scaling="row")),
    ],
)
def test_peers_compute(name, case):
    pytest.importorskip("torch")
    library = arrays.TorchArrays("cpu")
    (peer,), _ = peers.load([name])
    served = peer.serves(case)
    operands = gemm.make_operands(library, served)
    calls = peer.calls(served, operands)
    try:
        next(iter(calls.values()))()
    except (RuntimeError, ValueError) as refusal:
        pytest.skip(peers.reason(refusal))
    assert gemm.errors(library, served, operands).acceptable
    for call in list(calls.values())[1:]:
        assert call().dtype == operands.out.dtype


# The harness


def test_commit_from_the_environment(monkeypatch):
    monkeypatch.setenv("CLEAVE_COMMIT", "1234")
    assert machine.commit() == "1234"


def test_peers_are_imported_or_explained():
    found, missing = peers.load(peers.names())
    assert {peer.name for peer in found} | set(missing) == set(peers.names())
    assert all(missing.values())


def test_time_budget_leaves_cases_out():
    suite = suites.load("large_k")

    def measure_case(case):
        return [row(case.title, 1.0)]

    rows, notes, failed = harness._measure(suite, measure_case, deadline=0.0)
    assert (rows, failed) == ([], [])
    assert notes == ["7 of 7 cases left out: the time was up."]
    rows, notes, failed = harness._measure(suite, measure_case, deadline=math.inf)
    assert (len(rows), notes, failed) == (7, [], [])


def test_a_case_that_fails_leaves_the_others(capsys):
    suite = suites.load("large_k")
    titles = [case.title for case in suite.cases]

    def measure_case(case):
        if case.title == titles[1]:
            raise cleave.CudaError("an illegal\n address.")
        return [row(case.title, 1.0)]

    rows, notes, failed = harness._measure(suite, measure_case, deadline=math.inf)
    assert [row["case"] for row in rows] == [titles[0], *titles[2:]]
    assert notes == [f"{titles[1]} failed: an illegal address."]
    assert failed == [titles[1]]


def test_groups_and_steps_from_suite_to_report(short, monkeypatch, tmp_path, capsys):
    pytest.importorskip("torch")
    monkeypatch.setattr(harness, "_gpu", lambda device: TorchStandIn("cpu"))
    monkeypatch.setattr(harness, "_warm_up", lambda arrays: None)
    monkeypatch.setattr(machine, "describe", lambda index: MACHINE)
    load = suites.load

    def small(name, *options):
        whole = load(name, *options)
        cases = [replace(case, tokens=90, n=32, k=48) for case in whole.cases[:1]]
        return replace(whole, groups=[suites.Group("few", cases)])

    monkeypatch.setattr(suites, "load", small)
    names = "grouped_fwd,grouped_loop"
    assert harness.main(["--suite", names, "--quick", "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "torch_grouped's time over ours" in out
    assert "Host time at most" in out
    _, missing = peers.load(["deepgemm_grouped"])
    assert bool(missing) == ("Without deepgemm_grouped:" in out)
    for name in names.split(","):
        result = json.loads((tmp_path / f"{name}.json").read_text())
        assert result["rows"][0]["verified"]
        assert (tmp_path / f"{name}.md").read_text().count("\n| ") == 3
    rows = json.loads((tmp_path / "grouped_loop.json").read_text())["rows"]
    assert set(rows[0]["peers"]) == {"expert_loop", "torch_grouped_step"}


def test_convolutions_from_suite_to_report(short, monkeypatch, tmp_path, capsys):
    pytest.importorskip("torch")
    monkeypatch.setattr(harness, "_gpu", lambda device: TorchStandIn("cpu"))
    monkeypatch.setattr(harness, "_warm_up", lambda arrays: None)
    monkeypatch.setattr(machine, "describe", lambda index: MACHINE)
    load = suites.load

    def small(name, *options):
        whole = load(name, *options)
        cases = [replace(case, images=1, size=(6, 7), filters=16) for case in whole.cases[:2]]
        return replace(whole, groups=[suites.Group("few", cases)])

    monkeypatch.setattr(suites, "load", small)
    plan_of = division.conv.plan_for  # the CPU has one kernel
    monkeypatch.setattr(
        division.conv, "plan_for", lambda case, o: plan_of(replace(case, kernel="auto"), o)
    )
    names = "conv_fprop,conv_dgrad,conv_wgrad,division"
    assert harness.main(["--suite", names, "--quick", "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert out.count("cudnn's time over ours") == 3
    assert "portable, cases on which each way is the fastest: fast 2." in out
    for name in names.split(","):
        rows = json.loads((tmp_path / f"{name}.json").read_text())["rows"]
        assert all(row["verified"] for row in rows if row["us"])
        lines = (tmp_path / f"{name}.md").read_text().splitlines()
        assert sum(line.startswith("| ") for line in lines) >= 2 + 2


def test_what_no_kernel_serves_is_reported(short):
    case = SMALL[1]
    made = division.compare(StandInGpu(), case, suite_of("division", operation=conv), 7)
    assert len(made) == 2 * len(values.DIVISIONS)
    assert all(row["us"] is None and "kernel" in row["refused"] for row in made)
    assert harness._line(made[0]).startswith(f"{case.title} ")


@pytest.mark.skipif(cleave.device_count() > 0, reason="there is a GPU")
def test_refuses_without_a_gpu(capsys):
    assert harness.main([]) == 1
    assert "needs an NVIDIA GPU" in capsys.readouterr().err


def test_refuses_the_cpu(capsys):
    assert harness.main(["--device", "cpu"]) == 1
    assert "measures GPUs" in capsys.readouterr().err


def test_refuses_a_match_of_nothing(capsys):
    assert harness.main(["--match", "no such case"]) == 1
    assert "no case has 'no such case' in its title" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--suite", "nothing"], ["--rounds", "3"], ["--bogus"]])
def test_wrong_usage(arguments):
    with pytest.raises(SystemExit) as exit_:
        harness.main(arguments)
    assert exit_.value.code == 2
