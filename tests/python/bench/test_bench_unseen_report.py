"""bench.unseen.report: what is said of shapes that nobody tuned."""

from pathlib import Path

import pytest

from bench import readme, report
from bench.jobs.every import EVERY_JOB
from bench.unseen import report as unseen_report
from cleave import _core

MACHINE = {"gpu": "NVIDIA H200", "commit": "abc"}
RUNS = {"commit": "old", "date": "2026-11-01"}, {"commit": "new", "date": "2026-11-02"}


def row(job: str, us: float, same: bool = True, **peers: float) -> dict:
    return {"job": job, "case": f"{us:g} of {job}", "kernel": "sm90", "us": us, "peers": peers, "same": same}


ROWS = [
    row("bf16 tn", 10.0, cublas=20.0),
    row("bf16 tn", 40.0, cublas=20.0),
    row("fp8 rows", 10.0, torch_rowwise=30.0, cublas_tensorwise=9.0),
    row("fp8 rows", 10.0, same=False, torch_rowwise=1.0),
]


def test_the_best_peer_counts_where_it_has_the_result():
    assert unseen_report.line(ROWS, "bf16 tn") == (
        "bf16 tn: the best peer's time over ours: geomean 1.000 of 2, worst 0.50 on 40 of bf16 tn, best 2.00; "
        "1 >= 0.97."
    )
    of = unseen_report.spread_of(ROWS, "fp8 rows")
    assert of and of.ratios == [0.9] and of.peers == ["torch_rowwise", "cublas_tensorwise"]
    assert unseen_report.line(ROWS, "bf16 nn") == "bf16 nn: nothing measured."


def test_the_page_has_lost_rows_and_is_written_again_from_the_file(tmp_path: Path):
    unseen_report.write(tmp_path, "validation", MACHINE, ROWS, ["Without somebody."])
    page = tmp_path / "unseen_validation.md"
    written = page.read_text()
    assert "| bf16 tn | 40 of bf16 tn |" in written and "| bf16 tn | 10 of bf16 tn |" not in written
    assert "Left out, since a peer has another product: 10 of fp8 rows." in written and "Without somebody." in written
    page.write_text("")
    assert unseen_report.main([str(page.with_suffix(".json"))]) == 0
    assert page.read_text() == written


def test_the_readme_has_a_line_of_each_job(tmp_path: Path):
    unseen_report.write(tmp_path, "test", MACHINE, ROWS, [])
    _, _, dense, rows = readme.job_lines(tmp_path)
    assert dense == "| bfloat16, TN, 2 shapes, against cublas | H200 | geomean 1.00, worst 0.50, best 2.00 |"
    assert "1 shapes, against the better of torch rowwise and cublas tensorwise" in rows


def test_the_file_of_results_reads_back(tmp_path: Path):
    unseen_report.write(tmp_path, "test", MACHINE, ROWS, [])
    assert report.load(tmp_path / "unseen.json")["rows"] == ROWS


def test_jobs_that_gpus_shared_are_one_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """In the order of the titles, whichever came first."""
    monkeypatch.setattr(unseen_report, "LEAST", 2)
    folders = [tmp_path / name for name in ("rows", "tn", "both", "other")]
    for folder, rows in zip(folders, (ROWS[2:], ROWS[:2]), strict=False):
        unseen_report.write(folder, "test", MACHINE | {"date": folder.name}, rows, ["Without somebody."])
    files = [str(folder / "unseen.json") for folder in folders]
    assert unseen_report.main([*files[:2], "--into", str(folders[2])]) == 0
    result = report.load(Path(files[2]))
    assert result["rows"] == ROWS and result["notes"] == ["Without somebody."]
    assert (folders[2] / "unseen.md").read_text().count("geomean") == 2
    monkeypatch.setattr(unseen_report, "LEAST", 3)
    assert unseen_report.main([*files[:2], "--into", str(folders[2])]) == 0
    result = report.load(Path(files[2]))
    left_out = [f"Left out, of which only 2 shapes were measured: {job}." for job in ("bf16 tn", "fp8 rows")]
    assert not result["rows"] and result["notes"] == ["Without somebody.", *left_out]
    unseen_report.write(folders[3], "test", MACHINE | {"torch": "2.99"}, ROWS, [])
    with pytest.raises(ValueError, match="one machine and its software"):
        unseen_report.main([files[0], files[3], "--into", str(folders[2])])


def test_a_job_is_the_newest_runs():
    old, new = ({"machine": MACHINE | run, "notes": [], "rows": []} for run in RUNS)
    old["rows"] = [row(job, 10.0, cublas=1.0) for job in ("bf16 tn", "bf16 nn") for _ in range(unseen_report.LEAST)]
    new["rows"] = [row("bf16 tn", 10.0, cublas=20.0) for _ in range(unseen_report.LEAST)]
    new["rows"] += [row("fp8 rows", 10.0, cublas=20.0)]
    for results in ((old, new), (new, old)):
        whole = unseen_report.joined(results)
        assert whole["machine"]["commit"] == "new"
        assert unseen_report.jobs_of(whole["rows"]) == ["bf16 tn", "bf16 nn"]
        assert unseen_report.spread_of(whole["rows"], "bf16 tn").ratios == [2.0] * unseen_report.LEAST
        assert whole["notes"] == [
            "Left out, of which only 1 shapes were measured: fp8 rows.",
            "Measured before, at old (2026-11-01): bf16 nn.",
        ]


def test_a_job_stays_the_run_that_it_is_of():
    """However often it is joined."""
    runs = [{"machine": MACHINE | {"commit": name, "date": name}, "notes": [], "rows": []} for name in "abc"]
    for result, job in zip(runs, ("bf16 tn", "bf16 nn", "bf16 tt"), strict=True):
        result["rows"] = [row(job, 10.0, cublas=20.0) for _ in range(unseen_report.LEAST)]
    whole = unseen_report.joined([runs[2], unseen_report.joined(runs[:2])])
    assert whole["notes"] == ["Measured before, at a (a): bf16 tn.", "Measured before, at b (b): bf16 nn."]


def test_shapes_without_a_peer_are_left_out():
    pytest.importorskip("torch")
    from bench.peers import Peer
    from bench.unseen.__main__ import DRAWN, served

    job = EVERY_JOB["grouped fp8 forward"]
    drawn = job.shapes("validation", DRAWN * 5, 3)
    even = Peer("even", lambda case: case if case.tokens % 2 == 0 else None, lambda *_: {})
    nobody = Peer("nobody", lambda _: None, lambda *_: {})
    found = served(job, "validation", 5, 3, [nobody, even])
    assert found == [shape for shape in drawn if shape[1] % 2 == 0] and 0 < len(found) < len(drawn)


@pytest.mark.parametrize("name", unseen_report.TITLES)
def test_what_the_planner_takes_can_be_compiled_ahead(name: str):
    """A worker makes the plan anew, by its name and for a GPU that it need not have."""
    pytest.importorskip("torch")
    from bench.unseen.__main__ import own_choice

    job = EVERY_JOB[name]
    for shape in job.shapes("validation", 3):
        plan = job.case(shape).plan("h200")
        [kernel] = own_choice(plan, shape)
        assert _core.plan_as(job.case(shape).plan("h100"), kernel).kernel_source == plan.kernel_source
