"""bench.regret: what is measured of a shape, what is kept, and what is said of it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")

from bench_stand_ins import BetweenStandIn

from bench import pairs, regret
from bench.jobs.every import EVERY_JOB
from bench.kept_rows import KeptRows
from cleave.testing.errors import ToolError

JOB = SimpleNamespace(
    name="job",
    case=lambda shape: SimpleNamespace(title=f"case {shape}"),
    shapes=lambda part, count, seed: {"validation": list(range(count))}[part],
    testing=SimpleNamespace(run=lambda plan, operands, stream: plan.run()),
)
SETS = SimpleNamespace(operands=lambda case: [0, 1])


def plan(name: str, fails: bool = False) -> SimpleNamespace:
    def run() -> str:
        if fails:
            raise RuntimeError("too much shared memory")
        return name

    return SimpleNamespace(kernel_name=name, run=run)


def measured(us: dict[str, list[float]], **fails: bool) -> dict:
    plans = [plan(name, fails.get(name, False)) for name in us]
    return regret.measure(JOB, 7, plans, SETS, BetweenStandIn(us), 3)


def test_the_choice_and_its_next_candidates() -> None:
    row = measured({"a": [12.0], "b": [11.0], "c": [10.0], "d": [30.0]})
    assert (row["kernel"], row["best"], row["candidates"]) == ("a", "c", 4)
    assert (row["us"], row["best_us"], row["regret"]) == (12.0, 10.0, pytest.approx(0.2))
    assert (row["job"], row["case"]) == ("job", "case 7")
    assert measured({"a": [9.0], "b": [11.0]})["regret"] == 0


def test_of_many_the_fastest_are_measured_again() -> None:
    """ "e" looks fastest once, and is not; "f" is not among the three, whatever it would take later."""
    us = {"a": [10.0], "b": [9.0], "c": [8.5, 9.5], "d": [20.0], "e": [5.0, 11.0], "f": [30.0, 1.0]}
    row = measured(us)
    assert (row["best"], row["candidates"]) == ("b", 6)
    assert row["regret"] == pytest.approx(1 / 9)


def test_what_does_not_run_is_no_rival(capsys: pytest.CaptureFixture[str]) -> None:
    row = measured({"a": [10.0], "b": [1.0], "c": [8.0]}, b=True)
    assert (row["best"], row["candidates"]) == ("c", 2)
    assert "b too much shared memory" in capsys.readouterr().err
    with pytest.raises(KeyError, match="a"):
        measured({"a": [10.0], "b": [1.0]}, a=True)


def test_candidates_are_the_planners() -> None:
    planned = EVERY_JOB["bf16 tn"].case((96, 1536, 4096)).plan("h100")
    names = regret.first(planned, 4)
    assert names[0] == planned.kernel_name and len(set(names)) == 4
    assert len(regret.first(planned, None)) == len(planned.candidates)


def test_tuned_shapes_are_none_of_the_models(monkeypatch: pytest.MonkeyPatch) -> None:
    planned = EVERY_JOB["bf16 tn"].case((96, 1536, 4096)).plan("h100")
    monkeypatch.setattr(regret._core, "is_tuned", lambda plan: plan is planned)
    assert regret.first(planned, 4) == []


def test_plans_come_when_they_are_compiled() -> None:
    job = EVERY_JOB["bf16 tn"]
    case = lambda shape: SimpleNamespace(plan=lambda device: job.case(shape).plan("h100"))  # noqa: E731
    compiled = []

    def submit(call, *arguments):
        compiled.append(arguments)
        return SimpleNamespace(result=lambda: None)

    shapes = [(16, 1024, 1024), (32, 1024, 1024)]
    found = pairs.compiled_ahead(
        SimpleNamespace(name=job.name, case=case),
        shapes,
        lambda planned, shape: regret.first(planned, 2),
        SimpleNamespace(submit=submit),
    )
    for expected, (shape, plans) in zip(shapes, found, strict=True):
        assert shape == expected
        assert [plan.kernel_name for plan in plans] == regret.first(job.case(shape).plan("h100"), 2)
    assert len(set(compiled)) == len(compiled) >= 2


@pytest.fixture
def main(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """The tool, and for which shapes it asked; "slow" is chosen for all of them."""
    asked: list[int] = []

    def compiled_ahead(job, shapes, pick, pool):
        for shape in shapes:
            asked.append(shape)
            yield shape, [plan("slow"), plan("fast")]

    monkeypatch.setattr(regret, "EVERY_JOB", {"job": JOB})
    monkeypatch.setattr(regret, "sets_for", lambda job: SETS)
    monkeypatch.setattr(regret, "Between", lambda: BetweenStandIn({"slow": [10.3], "fast": [10.0]}))
    monkeypatch.setattr(pairs, "compiled_ahead", compiled_ahead)
    monkeypatch.setattr(pairs, "compilers", lambda: SimpleNamespace(shutdown=lambda cancel_futures: None))

    def run(*options: str) -> list[int]:
        asked.clear()
        assert regret.main(["--jobs", "job", "--out", str(tmp_path / "regret.json"), *options]) == 0
        return list(asked)

    monkeypatch.setattr("bench.machine.describe", lambda device: {"gpu": "one", "commit": "abc"})
    return run


def test_goes_on_where_it_was(main, capsys: pytest.CaptureFixture[str]) -> None:
    assert main("--shapes", "2") == [0, 1]
    out = capsys.readouterr().out
    assert "job: 2 shapes, regret 3.00% in the mean, 3.00% at the 99th percentile; asked 2% and 6%: missed" in out
    assert "    3.00%  case 0: 10.30 us slow; 10.00 fast" in out
    assert main("--shapes", "4") == [2, 3]
    assert main("--shapes", "4") == []
    assert "all jobs: 4 shapes" in capsys.readouterr().out


def test_begins_nothing_when_the_time_is_up(main, capsys: pytest.CaptureFixture[str]) -> None:
    assert main("--shapes", "2", "--seconds", "-1") == []
    assert "job: nothing measured." in capsys.readouterr().out


def test_rows_of_another_gpu_or_commit_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = {"gpu": "one", "commit": "abc"}
    monkeypatch.setattr("bench.machine.describe", lambda device: now)
    path = tmp_path / "rows.json"
    KeptRows(path, 1).add({"job": "job", "case": "case 0", "us": 1.0})
    assert KeptRows(path, 1).missing("job", [("case 0", 0), ("case 1", 1)]) == [1]
    assert KeptRows(path, 1).missing("other", [("case 0", 0)]) == [0]
    for key in ("gpu", "commit"):
        with monkeypatch.context() as changed:
            changed.setitem(now, key, "another")
            with pytest.raises(ToolError, match=rf"are of {key} \w+, this is another: move it"):
                KeptRows(path, 1)


def test_percentiles_are_rows() -> None:
    assert regret.nearest_rank([3.0, 1.0, 2.0], 0.99) == 3
    assert regret.nearest_rank(list(range(1, 201)), 0.99) == 198
    assert regret.nearest_rank([5.0], 0.99) == 5
    meeting = [{"job": "job", "case": str(i), "regret": 0.01, "us": 1.0, "best_us": 1.0, "kernel": "k", "best": "k"}
               for i in range(200)]  # fmt: skip
    assert regret.summary(meeting, "job")[0].endswith("asked 2% and 6%: met")
    meeting[0]["regret"] = meeting[1]["regret"] = 0.5
    assert regret.summary(meeting)[0].endswith("met")
    meeting[2]["regret"] = 0.5
    assert regret.summary(meeting)[0].endswith("missed")
