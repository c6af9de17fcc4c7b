"""python -m bench.report: results as JSON, for machines, and as a Markdown table, for people.

The JSON has what was measured; what follows from that is in the Markdown alone. The command writes both anew, from the
JSON, after an edit of this module or of tables.py.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from . import suites, tables
from .suites import Suite
from .summary import listed, spread_text, summarize


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.report", description=__doc__, allow_abbrev=False)
    parser.add_argument("--results", type=Path, default=Path("bench/results"), metavar="DIR")
    directory = parser.parse_args(argv).results
    for path in sorted(directory.glob("*.json")):
        if path.stem in suites.names():
            result = load(path)
            write(directory, suites.load(path.stem), result["machine"], result["rows"], result["notes"])
    return 0


def write(
    directory: Path, suite: Suite, machine: dict[str, Any], rows: list[dict[str, Any]], notes: list[str]
) -> list[Path]:
    """Writes <suite>.json and <suite>.md; the paths."""
    directory.mkdir(parents=True, exist_ok=True)
    packed = tables.pack(tables.unpack(tables.pack(rows)))  # in the order in which they will be read and written again
    result = {"suite": suite.name, "title": suite.title, "machine": machine, "notes": notes, **packed}
    json_path, markdown_path = directory / f"{suite.name}.json", directory / f"{suite.name}.md"
    json_path.write_text(tables.text(result))
    markdown_path.write_text(markdown(suite, machine, load(json_path)["rows"], notes))
    return [json_path, markdown_path]


def load(path: Path) -> dict[str, Any]:
    """What `write` wrote as JSON. Fields that were None are absent."""
    result = json.loads(path.read_text())
    return result | {"rows": tables.unpack(result)}


def markdown(suite: Suite, machine: dict[str, Any], rows: Sequence[dict[str, Any]], notes: Sequence[str]) -> str:
    columns, cells = _TABLES[suite.kind](rows)
    lines = [
        f"# {suite.title}",
        "",
        measured_on(machine),
        "",
        *summary_lines(suite.kind, summarize(suite.kind, rows, suite.best_of)),
        *notes,
        "",
        *table(columns, cells),
    ]
    return "\n".join(lines) + "\n"


def measured_on(machine: dict[str, Any]) -> str:
    return ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in machine.items() if value is not None)


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[str]:
    def line(cells: Iterable[str]) -> str:
        return "| " + " | ".join(cells) + " |"

    return [line(columns), line("---" for _ in columns), *(line(map(_format, row)) for row in rows)]


def summary_lines(kind: str, summary: dict[str, Any]) -> list[str]:
    """Sentences, for the report and for the terminal."""
    if kind == "modes" and summary.get("compared"):
        return [f"auto's time over that of the best explicit split: {spread_text(summary)}."]
    lines = []
    for peer, ratios in summary.items() if kind in ("peers", "steps") else ():
        lines += [
            f"{peer}'s time over ours: {spread_text(ratios)}, "
            f"best {ratios['best']:.3f} on {ratios['best_case']}; {ratios['wins']} wins.",
            f"Slower than {peer}: {listed(ratios['losses'])}.",
            _accuracy_line(peer, ratios),
        ]
        if "host_us" in ratios:
            lines.append(
                f"Host time at most {ratios['host_us']:.1f} us a step, everywhere less than "
                f"{peer}'s by {ratios['host_saved']:.1%} or more."
            )
    return lines


def _accuracy_line(peer: str, ratios: dict[str, Any]) -> str:
    if "instead" in ratios:
        return f"{peer} computes something else, such as {ratios['instead']}."
    return f"RMS error above {peer}'s: {listed(ratios['less_accurate'])}."


def missing_lines(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Who did not take part in what, and why: one sentence per reason."""
    cases: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        for name, reason in row.get("without", {}).items():
            cases.setdefault((name, reason), []).append(row["case"])
    return [f"Without {name} on {', '.join(names)}: {reason.rstrip('.')}." for (name, reason), names in cases.items()]


_TITLES = {
    "tflops": "TFLOP/s",
    "requested_mode": "asked mode",
    "requested_slices": "asked slices",
    "workspace_bytes": "workspace B",
}


def _title(key: str) -> str:
    return _TITLES.get(key, key.replace("_", " "))


def _peers_table(rows: Sequence[dict[str, Any]]) -> tuple[list[str], list[list[Any]]]:
    # A peer's time over ours; its own figures are in the JSON. A kernel's name says how it splits, and the floor what
    # memory takes.
    ours = ("case", "us", "host_us", "tflops", "floor_us", "kernel", "rms_error")
    ours = [key for key in ours if any(key in row for row in rows)]
    peers = list(dict.fromkeys(name for row in rows for name in row["peers"]))
    cells = [
        [*(row.get(key) for key in ours), *(row["peers"].get(peer, {}).get("ratio") for peer in peers)] for row in rows
    ]
    return [*map(_title, ours), *(f"{peer} / ours" for peer in peers)], cells


def _modes_table(rows: Sequence[dict[str, Any]]) -> tuple[list[str], list[list[Any]]]:
    keys = (
        "case", "requested_mode", "requested_slices", "us", "ratio", "workspace_bytes", "rms_error", "kernel",
        "refused",
    )  # fmt: skip
    titles = ["auto / this" if key == "ratio" else _title(key) for key in keys]
    return titles, [[row.get(key) for key in keys] for row in rows]


def _host_table(rows: Sequence[dict[str, Any]]) -> tuple[list[str], list[list[Any]]]:
    return ["case", "call", "host us"], [[row["case"], row["call"], row["us"]] for row in rows]


_TABLES = {"peers": _peers_table, "steps": _peers_table, "modes": _modes_table, "host": _host_table}


def _format(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):  # errors are small, times and rates are not
        return f"{value:.2f}" if abs(value) >= 0.1 or value == 0 else f"{value:.2e}"
    return str(value)


if __name__ == "__main__":
    raise SystemExit(main())
