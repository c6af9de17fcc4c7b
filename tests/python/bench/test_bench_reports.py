"""What is made of measurements: statistics, reports, the README's table and plots."""

from __future__ import annotations

import json
import math
import shutil
from collections import Counter

import pytest
from bench_rows import (
    MACHINE,
    PEER_ROWS,
    SPLIT_ROWS,
    STEP_ROWS,
    row,
    suite_of,
    theirs,
)

from bench import __main__ as harness
from bench import plot, readme, report, suites, summary, tables
from bench.unseen import plot as unseen_plot
from bench.unseen import report as unseen_report

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
    assert "second computes something else, such as less work." in report.summary_lines("peers", result)


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
    "steps": STEP_ROWS,
    "modes": SPLIT_ROWS,
    "host": [{"case": "x", "call": "torch.mm", "us": 9.5}],
}


@pytest.mark.parametrize("kind", suites.KINDS)
def test_report(kind, tmp_path):
    suite = suite_of(kind)
    rows = CONTENTS[kind]
    paths = report.write(tmp_path, suite, MACHINE, rows, ["A note."])
    data = report.load(paths[0])
    assert data["rows"] == [{name: value for name, value in row.items() if value is not None} for row in rows]
    assert len(paths[0].read_text().splitlines()) == 2 + 7 + 1 + len(rows)  # a line for each
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
    result = {"machine": {"gpu": gpu}} | tables.pack(rows)
    (directory / f"{name}.json").write_text(tables.text(result))


def test_readme_table(tmp_path):
    first, second, *_ = suites.load("large_k").cases
    rows = [row(first.title, 10.0, 20.0), row(second.title, 10.0, 5.0)]
    write_result(tmp_path, "large_k", rows, gpu="NVIDIA H200")
    case = suites.load("host").cases[0].title
    calls = {"cleave.gemm(out=)": 5.6, "torch.mm(out=)": 21.7, "torch.mm": 99.0}
    times = [{"case": case, "call": call, "us": us} for call, us in calls.items()]
    write_result(tmp_path, "host", times)
    assert readme.lines(tmp_path)[2:] == [
        "| host time of a call with `out=`: `cleave.gemm(out=)` | H100 | 6 us, where `torch.mm(out=)` takes 22 |",
        "| K much larger than M and N, TN, 2 shapes, against cublas | H200 | geomean 1.00, worst 0.50, best 2.00 |",
    ]


def test_readme_has_steps_and_host_times(tmp_path):
    for name in ("grouped_loop", "host"):
        shutil.copy(readme.ROOT / "bench" / "results" / f"{name}.json", tmp_path)
    _, _, steps, host = readme.job_lines(tmp_path)
    assert steps.startswith("| Experts' weight gradients") and "against expert loop" in steps
    assert host.startswith("| host time of a call")


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
    ways = {"cleave_plain": theirs(12.0, 10.0), "cleave_fast_load": theirs(9.0, 10.0)}
    rows = [
        row("x kernel sm90", 10.0, kernel="sm90 128x128", peers=ways),
        row("x kernel portable", 10.0, 20.0, kernel="portable 64x64"),
    ]
    write_result(tmp_path, "division", rows, gpu="a GPU")
    said, _, _, _, *lines = readme.division_lines(tmp_path)
    assert said == "a GPU, each other way's time over that of `auto`, which is `fast`:"
    assert lines == [
        "| sm90 | `plain` | 1.200 | 1.200 | 1.200 | 0 |",
        "| sm90 | `fast_load` | 0.900 | 0.900 | 0.900 | 1 |",
        "| portable | `cublas` | 2.000 | 2.000 | 2.000 | 0 |",
    ]


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


def test_tables_give_back_what_they_were_given():
    rows = [
        {"case": "x", "us": 1.23456789, "dtype": "f", "peers": {"a": {"us": 1.23456789}}, "without": {}},
        {"case": "y", "us": 2e-7, "dtype": "f", "peers": {}, "without": {"a": "no"}},
        {"case": "z", "us": None, "refused": "no"},
        {"case": "y", "us": 3.0, "dtype": "f", "peers": {}, "without": {"a": "no"}},
    ]
    table = tables.pack(rows)
    assert table["shared"] == {"dtype": "f"}
    assert table["columns"] == ["case", "us", "peers.a.us", "without", "peers", "without.a"]
    assert table["rows"][0] == ["x", 1.2346, "=", {}]
    kept = tables.unpack(json.loads(tables.text(table)))
    assert kept == [*tables.rounded(rows[:2]), {"case": "z", "refused": "no"}, rows[3]]
    assert table["rows"][3][-1] == "^", "as in the line above"
    assert tables.unpack(tables.pack(kept)) == kept
    assert tables.unpack(tables.pack([])) == []


# With results of their own.
TOOLS = ("unseen", "networks", "distributed", "distributed_unseen", "expert_parallel", "routings")


def test_the_results_that_are_kept(tmp_path):
    kept = readme.ROOT / "bench" / "results"
    assert {path.stem for path in kept.iterdir()} == {*suites.names(), *TOOLS}
    assert {path.suffix for path in kept.iterdir()} == {".json", ".md"}
    for name in suites.names():
        result = report.load(kept / f"{name}.json")
        assert (result["suite"], len(result["rows"]) > 0) == (name, True)
        for path in report.write(tmp_path, suites.load(name), result["machine"], result["rows"], result["notes"]):
            assert path.read_text() == (kept / path.name).read_text(), "write it by python -m bench.report"
    assert sum(path.stat().st_size for path in kept.iterdir()) < 400_000


def test_a_network_has_a_line():
    result = report.load(readme.ROOT / "bench" / "results" / "networks.json")
    page = (readme.ROOT / "README.md").read_text()
    for network, (what, gpu, result_of) in zip(result["rows"], readme.networks(result), strict=True):
        assert what.startswith(f"Training step of {network['case']}") and gpu == "NVIDIA H200"
        ours, theirs = (network["contenders"][network[of]] for of in ("form", "best"))
        assert result_of == f"{theirs / ours:.2f}: {ours / 1e3:.2f} ms, {network['best']} {theirs / 1e3:.2f}"
        assert f"| {what} | H200 | {result_of} |" in page


def test_the_results_of_unseen_shapes():
    result = report.load(readme.ROOT / "bench" / "results" / "unseen.json")
    jobs = [measured["job"] for measured in result["rows"] if measured["same"]]
    assert len(set(jobs)) >= 6
    assert min(Counter(jobs).values()) >= 10
    assert all(measured["peers"] for measured in result["rows"])
    page = unseen_report.text("test", result["machine"], result["rows"], result["notes"])
    assert page == (readme.ROOT / "bench" / "results" / "unseen.md").read_text(), "python -m bench.unseen.report"
    drawn = unseen_plot.picture(result)
    assert drawn == (readme.ROOT / "docs" / "unseen.svg").read_text(), "python -m bench.readme --write"
    assert drawn.count("<circle") == sum(measured["same"] for measured in result["rows"])


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


def test_plots_of_results(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    assert plot.main(["--suite", "large_k,host,division", "--out", str(tmp_path)]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["division.svg", "large_k.svg"]
    assert "no picture of host" in capsys.readouterr().out
