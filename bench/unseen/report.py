"""What bench.unseen measured, as files: its rows, those that are behind, and a line per job.

python -m bench.unseen.report bench/results/unseen.json                            # writes the report anew
python -m bench.unseen.report --into bench/results a/unseen.json b/unseen.json     # one of several: of jobs that GPUs
                                                                                   # shared, or of runs that had some
"""

from __future__ import annotations

import argparse
import math
import re
import statistics
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .. import report, tables

# Rows at this or above count as level with the peer.
NEAR = 0.97
# Rows of a job that its line is of.
LEAST = 10

# What differs between runs on one machine.
RUN = ("commit", "date")

# The jobs that are judged, as a reader without our names would call them.
TITLES = {
    "bf16 tn": "bfloat16, TN",
    "bf16 nn": "bfloat16, NN",
    "bf16 tt": "bfloat16, TT",
    "fp8 rows": "fp8, a scale per row and column",
    "fp8 blocks": "fp8, scales of 1x128 and 128x128",
    "bf16 large K": "bfloat16, K much larger than M and N",
    "grouped bf16 forward": "Experts, bfloat16, forward",
    "grouped bf16 dgrad": "Experts, bfloat16, data gradient",
    "grouped bf16 wgrad": "Experts, bfloat16, weight gradient",
    "grouped bf16 main grad": "Experts, bfloat16, weight gradient added to float32",
    "grouped fp8 forward": "Experts, fp8, scales of blocks, forward",
    "grouped fp8 dgrad": "Experts, fp8, scales of blocks, data gradient",
    "grouped fp8 main grad": "Experts, fp8, scales of blocks, weight gradient added to float32",
    "grouped fp8 rows forward": "Experts, fp8, scales of rows, forward",
    "grouped fp8 rows dgrad": "Experts, fp8, scales of rows, data gradient",
    "grouped fp8 rows wgrad": "Experts, fp8, scales of rows, weight gradient",
    "conv fprop": "Convolution, float16",
    "conv dgrad": "Convolution, float16, data gradient",
    "conv wgrad": "Convolution, float16, weight gradient",
}


class Spread(NamedTuple):
    """The best peer's time over ours, over the rows of a job that have the peer's result."""

    ratios: list[float]  # ascending
    worst_case: str
    peers: list[str]

    @property
    def geomean(self) -> float:
        return math.exp(statistics.fmean(map(math.log, self.ratios)))

    @property
    def near(self) -> int:
        return sum(ratio >= NEAR for ratio in self.ratios)


def ratio_of(row: dict[str, Any]) -> float:
    """The best peer's time over ours."""
    return min(row["peers"].values()) / row["us"]


def spread_of(rows: Sequence[dict[str, Any]], job: str) -> Spread | None:
    found = sorted(((ratio_of(row), row) for row in rows if row["job"] == job and row["same"]), key=lambda of: of[0])
    if not found:
        return None
    peers = dict.fromkeys(peer for _, row in found for peer in row["peers"])
    return Spread([ratio for ratio, _ in found], found[0][1]["case"], list(peers))


def line(rows: Sequence[dict[str, Any]], job: str) -> str:
    of = spread_of(rows, job)
    if of is None:
        return f"{job}: nothing measured."
    worst = f"worst {of.ratios[0]:.2f} on {of.worst_case}, best {of.ratios[-1]:.2f}"
    return (
        f"{job}: the best peer's time over ours: geomean {of.geomean:.3f} of {len(of.ratios)}, {worst}; "
        f"{of.near} >= {NEAR}."
    )


def jobs_of(rows: Sequence[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(row["job"] for row in rows))


def summaries(result: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """What each job is, where it was measured, and how it compares."""
    for job in jobs_of(result["rows"]):
        if of := spread_of(result["rows"], job):
            peers = " and ".join(peer.replace("_", " ") for peer in of.peers)
            against = f"the better of {peers}" if len(of.peers) > 1 else peers
            spread = f"geomean {of.geomean:.2f}, worst {of.ratios[0]:.2f}, best {of.ratios[-1]:.2f}"
            yield (
                f"{TITLES.get(job, job)}, {len(of.ratios)} shapes, against {against}",
                result["machine"]["gpu"],
                spread,
            )


def write(folder: Path, part: str, facts: dict[str, Any], rows: list[dict[str, Any]], notes: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    name, rows = "unseen" if part == "test" else f"unseen_{part}", tables.rounded(rows)
    result = {"suite": name, "machine": facts, "notes": notes, **tables.pack(rows)}
    (folder / f"{name}.json").write_text(tables.text(result))
    (folder / f"{name}.md").write_text(text(part, facts, rows, notes))


def text(part: str, facts: dict[str, Any], rows: list[dict[str, Any]], notes: list[str]) -> str:
    jobs = jobs_of(rows)
    cells = [
        [row["job"], row["case"], row["us"], row["kernel"], best, row["peers"][best], ratio_of(row)]
        for row in sorted(rows, key=lambda row: (jobs.index(row["job"]), ratio_of(row)))
        if ratio_of(row) < NEAR and row["same"]
        for best in [min(row["peers"], key=row["peers"].__getitem__)]
    ]
    lines = [
        f"# Shapes of the {part} part, that no table and no fit has seen",
        "",
        report.measured_on(facts),
        "",
        *(line(rows, job) for job in jobs),
        *notes,
        "",
        *(f"Left out, since a peer has another product: {row['case']}." for row in rows if not row["same"]),
        "",
        f"Rows below {NEAR}; the JSON beside this has all.",
        "",
        *report.table(["job", "case", "us", "kernel", "best peer", "its us", "its / ours"], cells),
    ]
    return "\n".join(lines) + "\n"


def runs_of(result: dict[str, Any]) -> dict[str, str]:
    """The run that each job is of: what a note of `joined` names, or else the result's own."""
    run = result["machine"]
    found = dict.fromkeys(jobs_of(result["rows"]), f"{run['commit']} ({run.get('date', 'no date')})")
    for note in result["notes"]:
        if before := re.fullmatch(r"Measured before, at (.+?\)): (.+)\.", note):
            found |= dict.fromkeys(before[2].split(", "), before[1])
    return found


def joined(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One result of several, in the order of TITLES. A job's rows are those of the newest that has it, where the others
    are of another commit, which is said. Jobs of fewer than LEAST rows are left out: their peer served few, was not
    there, or time was up. ValueError where GPU or software differ."""
    facts = [{key: value for key, value in result["machine"].items() if key not in RUN} for result in results]
    if any(other != facts[0] for other in facts):
        raise ValueError(f"results of one part must be of one machine and its software, but these are of {facts}")
    newest = max(results, key=lambda result: result["machine"].get("date", ""))["machine"]
    rows: list[dict[str, Any]] = []
    notes: list[str] = []
    for result in sorted(results, key=lambda result: result["machine"].get("date", ""), reverse=True):
        run = result["machine"]
        few = {job: count for job, count in Counter(row["job"] for row in result["rows"]).items() if count < LEAST}
        is_newest = run["commit"] == newest["commit"]
        known = set() if is_newest else set(jobs_of(rows))
        own = [row for row in result["rows"] if row["job"] not in known and row["job"] not in few]
        rows += own
        left_out = [f"Left out, of which only {count} shapes were measured: {job}." for job, count in few.items()]
        if is_newest:
            notes += [*result["notes"], *left_out]
        else:
            of_run = runs_of(result)
            for name in dict.fromkeys(of_run[job] for job in jobs_of(own)):
                notes.append(f"Measured before, at {name}: {', '.join(j for j in jobs_of(own) if of_run[j] == name)}.")
    rows.sort(key=lambda row: [*TITLES].index(row["job"]))
    return {"machine": newest, "rows": rows, "notes": list(dict.fromkeys(notes))}


def part_of(path: Path) -> str:
    return path.stem.removeprefix("unseen_") if "_" in path.stem else "test"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.unseen.report", description=__doc__)
    parser.add_argument("results", type=Path, nargs="+", help="what bench.unseen wrote as JSON")
    parser.add_argument("--into", type=Path, help="a folder for one result of all that are given")
    arguments = parser.parse_args(argv)
    results = [report.load(path) for path in arguments.results]
    if arguments.into:
        whole = joined(results)
        write(arguments.into, part_of(arguments.results[0]), whole["machine"], whole["rows"], whole["notes"])
        return 0
    for path, result in zip(arguments.results, results, strict=True):
        path.with_suffix(".md").write_text(text(part_of(path), result["machine"], result["rows"], result["notes"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
