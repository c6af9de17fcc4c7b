"""python -m bench.plot: pictures of suites' results, as SVG. Need matplotlib."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cleave.cli import values

from . import report, suites
from .suites import Suite


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.plot", description=__doc__, allow_abbrev=False)
    names = suites.names()
    parser.add_argument("--suite", type=values.words(names), default=names, metavar="NAMES", help=", ".join(names))
    parser.add_argument("--results", type=Path, default=Path("bench/results"), metavar="DIR")
    parser.add_argument("--out", type=Path, default=Path("build/plots"), metavar="DIR")
    arguments = parser.parse_args(argv)
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name in arguments.suite:
        path = arguments.results / f"{name}.json"
        made = write(arguments.out, suites.load(name), report.load(path)["rows"])
        print("no picture of" if made is None else "wrote", made or name)
    return 0


def write(directory: Path, suite: Suite, rows: Sequence[dict[str, Any]]) -> Path | None:
    """<suite>.svg; None for a suite that has no picture. ImportError without matplotlib."""
    draw = {"peers": _against_floor, "modes": _against_slices}.get(suite.kind)
    if not draw or not rows:
        return None
    import matplotlib

    matplotlib.use("svg")
    # Text as text, and the same file from the same numbers.
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": suite.name})
    figure = draw(rows)
    figure.suptitle(suite.title)
    path = directory / f"{suite.name}.svg"
    figure.savefig(path, metadata={"Date": None})
    return path


def _against_floor(rows: Sequence[dict[str, Any]]) -> Any:
    """Time over the least time that bandwidth and peak allow; on the line is perfect."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 6), layout="constrained")
    axes = figure.subplots()
    series = {"cleave": [(row["floor_us"], row["us"]) for row in rows]}
    for row in rows:
        for name, measured in row["peers"].items():
            series.setdefault(name, []).append((row["floor_us"], measured["us"]))
    for (name, points), marker in zip(series.items(), "osvD^P", strict=False):
        axes.scatter(*zip(*points, strict=True), label=name, marker=marker, s=28, alpha=0.8)
    floors = [row["floor_us"] for row in rows]
    ends = [min(floors), max(floors)]
    for factor, style in ((1, "-"), (2, ":")):
        axes.plot(
            ends, [factor * x for x in ends], style, color="gray", label="floor" if factor == 1 else f"{factor} x floor"
        )
    axes.set(xscale="log", yscale="log", xlabel="floor, us: max(bytes / bandwidth, FLOP / peak)", ylabel="time, us")
    axes.grid(which="both", alpha=0.2)
    axes.legend()
    return figure


def _against_slices(rows: Sequence[dict[str, Any]]) -> Any:
    """One panel per case: time over the slice count, a line per mode."""
    from matplotlib.figure import Figure

    cases = list(dict.fromkeys(row["case"] for row in rows))
    width = min(4, len(cases))
    height = -(-len(cases) // width)
    figure = Figure(figsize=(4 * width, 3.2 * height), layout="constrained")
    panels = figure.subplots(height, width, squeeze=False).flat
    for case, axes in zip(cases, panels, strict=False):
        measured = [row for row in rows if row["case"] == case and row.get("us") is not None]
        for mode in dict.fromkeys(row["requested_mode"] for row in measured):
            asked = [row for row in measured if row["requested_mode"] == mode]
            if asked[0].get("requested_slices") is None:  # the planner's count, if the mode has any
                style = {"color": "black", "linestyle": "--"} if mode == "auto" else {"linestyle": ":"}
                axes.axhline(asked[0]["us"], label=mode, **style)
            else:
                points = sorted((row["slices"], row["us"]) for row in asked)
                axes.plot(*zip(*points, strict=True), marker="o", label=mode)
        axes.set(title=case, xlabel="slices", ylabel="us", ylim=(0, None))
        axes.set_xscale("log", base=2)
        axes.grid(alpha=0.2)
        axes.legend(fontsize="small")
    for axes in list(panels):
        axes.set_visible(False)
    return figure


if __name__ == "__main__":
    raise SystemExit(main())
