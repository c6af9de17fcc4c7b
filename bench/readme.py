"""python -m bench.readme: the tables of results in the README, a line per job, and in docs.

Prints them; with --write also puts each between its page's lines MARKERS, and draws docs/unseen.svg.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from . import report, suites, summary
from .distributed import report as distributed
from .unseen import plot as unseen_plot
from .unseen import report as unseen

ROOT = Path(__file__).parent.parent
Summaries = Callable[[dict[str, Any]], Iterator[tuple[str, str, str]]]

COLUMNS = ("what", "GPU", "result")
MARKERS = ("<!-- python -m bench.readme --write -->", "<!-- end -->")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.readme", description=__doc__, allow_abbrev=False)
    parser.add_argument("--results", type=Path, default=ROOT / "bench/results", metavar="DIR")
    parser.add_argument("--write", action="store_true", help="replace the tables in their pages, and the picture")
    arguments = parser.parse_args(argv)
    for page, make in PAGES.items():
        table = "\n".join(make(arguments.results))
        print(f"{page}:\n{table}")
        if arguments.write and table:
            path = ROOT / page
            path.write_text(replaced(path.read_text(), table))
    if arguments.write:
        (ROOT / "docs/unseen.svg").write_text(unseen_plot.picture(report.load(arguments.results / "unseen.json")))
    return 0


def replaced(text: str, table: str) -> str:
    """`text` with `table` between the markers. ValueError if they are not there."""
    head, start, rest = text.partition(MARKERS[0])
    _, end, tail = rest.partition(MARKERS[1])
    if not end:
        raise ValueError(f"the page has no lines '{MARKERS[0]}' and '{MARKERS[1]}'")
    return f"{head}{start}\n{table}\n{end}{tail}"


def networks(result: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """What bench.networks measured."""
    for row in result["rows"]:
        ours, theirs = row["us"] / 1e3, row["contenders"][row["best"]] / 1e3
        what = f"Training step of {row['case']}, bfloat16, {row['form']} against the faster of torch's"
        yield what, result["machine"]["gpu"], f"{row['ratio']:.2f}: {ours:.2f} ms, {row['best']} {theirs:.2f}"


JOBS = ("grouped_loop", "host")
REPORTS = {
    "unseen": unseen.summaries,
    "networks": networks,
    "distributed": distributed.summaries,
    "distributed_unseen": distributed.summaries,
}


def job_lines(directory: Path) -> list[str]:
    """A Markdown table: shapes that nobody tuned, networks, products over ranks, and the first row of each of JOBS."""
    rows = [of for name, summaries in REPORTS.items() for of in reported(directory / f"{name}.json", summaries)]
    return report.table(COLUMNS, rows) + lines(directory, JOBS, most=1)[2:]


def reported(path: Path, summaries: Summaries) -> list[tuple[str, str, str]]:
    """Rows of that table; none where there are no such results."""
    return [(what, model_of(gpu), of) for what, gpu, of in summaries(report.load(path))] if path.exists() else []


def model_of(gpu: str) -> str:
    """H100, where the name is "NVIDIA H100 80GB HBM3": the tables have room for no more."""
    return re.sub(r"^NVIDIA | \d+GB.*", "", gpu)


def lines(directory: Path, names: Sequence[str] = (), most: int | None = None) -> list[str]:
    """A Markdown table: a row for each suite and peer, and for each pair of calls' host times; or
    the first `most` of each suite in `names`."""
    rows: list[tuple[str, str, str]] = []
    for name in names or suites.names():
        path = directory / f"{name}.json"
        if path.exists():
            result = report.load(path)
            gpu = model_of(result["machine"]["gpu"])
            found = list(_rows(suites.load(name), result["rows"]))[:most]
            rows += [(what, gpu, of) for what, of in found]
    return report.table(COLUMNS, rows)


def division_lines(directory: Path) -> list[str]:
    """How the ways to divide fared in the suite `division`; nothing where it has no results."""
    path = directory / "division.json"
    if not path.exists():
        return []
    result = report.load(path)
    rows = []
    for kernel in ("sm90", "portable"):
        measured = [row for row in result["rows"] if row["kernel"].startswith(kernel)]
        for peer, of in summary.summarize_peers(measured).items():
            spread = [f"{of[key]:.3f}" for key in ("geomean", "worst", "best")]
            slower = len(of["losses"])
            rows.append((kernel, f"`{peer.removeprefix('cleave_')}`", *spread, slower))
    columns = ("kernel", "division", "geomean", "worst", "best", "faster than auto on, cases")
    said = f"{result['machine']['gpu']}, each other way's time over that of `auto`, which is `fast`:"
    return [said, "", *report.table(columns, rows)]


def _rows(suite: suites.Suite, measured: list[dict[str, Any]]) -> Iterable[tuple[str, str]]:
    if suite.kind in ("peers", "steps"):
        yield from _ratios(suite, measured)
    if suite.kind != "host":
        return
    for title in dict.fromkeys(group.title for group in suite.groups):
        groups = [group for group in suite.groups if group.title == title]
        cases = {case.title for group in groups for case in group.cases}
        yield from _host(title, groups, [row for row in measured if row["case"] in cases])


def _ratios(suite: suites.Suite, rows: list[dict[str, Any]]) -> Iterable[tuple[str, str]]:
    ratios = summary.summarize_peers(rows, suite.best_of)
    # The best of several peers says it all; each of them has its line in the results.
    best = {peer: of for peer, of in ratios.items() if peer.startswith("the best of")}
    for peer, of in (best or ratios).items():
        result = f"geomean {of['geomean']:.2f}, worst {of['worst']:.2f}, best {of['best']:.2f}"
        if "host_us" in of:
            result += f"; host at most {of['host_us']:.0f} us, {of['host_saved']:.0%} less or better"
        yield f"{suite.title}, {of['compared']} shapes, against {peer.replace('_', ' ')}", result


def _host(title: str, groups: list[suites.Group], rows: list[dict[str, Any]]) -> Iterable[tuple[str, str]]:
    for ours, theirs in dict.fromkeys(tuple(group.headline) for group in groups):
        times = {call: sorted(row["us"] for row in rows if row["call"] == call) for call in (ours, theirs)}
        if all(times.values()):
            us = {call: _range(values) for call, values in times.items()}
            yield f"{title}: `{ours}`", f"{us[ours]} us, where `{theirs}` takes {us[theirs]}"


def _range(values: Sequence[float]) -> str:
    low, high = f"{values[0]:.0f}", f"{values[-1]:.0f}"
    return low if low == high else f"{low} to {high}"


PAGES = {"README.md": job_lines, "docs/benchmarks.md": lines, "docs/strided-dgrad.md": division_lines}


if __name__ == "__main__":
    raise SystemExit(main())
