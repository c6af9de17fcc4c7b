"""docs/unseen.svg: every shape of bench/results/unseen.json as a dot, by job. bench.readme writes it.

It is text, made without a library: the same rows are the same file.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from . import report

LEFT, WIDTH, ROW, TOP = 250, 390, 26, 30  # of the plot, in pixels; names stand on its left
LEAST, MOST = 1 / 4, 4.0  # of the axis; what lies beyond stands at its end
TICKS = (0.25, 0.5, 1, 2, 4)
AHEAD, BEHIND = "#2b7bba", "#d94801"


def place(ratio: float) -> float:
    """Where it stands on the axis, which is logarithmic."""
    share = math.log(min(max(ratio, LEAST), MOST) / LEAST) / math.log(MOST / LEAST)
    return round(LEFT + share * WIDTH, 1)


def picture(result: dict[str, Any]) -> str:
    found = {job: report.spread_of(result["rows"], job) for job in report.jobs_of(result["rows"])}
    jobs = {job: spread for job, spread in found.items() if spread}
    height = TOP + ROW * len(jobs) + 36
    bottom = height - 36
    size = f'viewBox="0 0 {LEFT + WIDTH + 20} {height}" width="{LEFT + WIDTH + 20}" height="{height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="11">',
        f"  <title>The best peer's time over Cleave's on an {result['machine']['gpu']}, each shape a dot</title>",
        f'  <rect width="100%" height="{height}" fill="#ffffff"/>',
    ]
    for tick in TICKS:
        x, stroke = place(tick), "#333333" if tick == 1 else "#dddddd"
        lines.append(f'  <path stroke="{stroke}" d="M{x} {TOP - 8}V{bottom}"/>')
        lines.append(f'  <text x="{x}" y="{bottom + 14}" text-anchor="middle">{tick:g}</text>')
    for x, anchor, words in ((place(1) - 8, "end", "slower than the best peer"), (place(1) + 8, "start", "faster")):
        lines.append(f'  <text x="{x}" y="{TOP - 14}" text-anchor="{anchor}" fill="#555555">{words}</text>')
    for row, (job, spread) in enumerate(jobs.items()):
        lines += _row(report.TITLES.get(job, job), spread, TOP + ROW * row + ROW // 2)
    lines.append(
        f'  <text x="{LEFT + WIDTH}" y="{bottom + 30}" text-anchor="end" fill="#555555">'
        "the best peer's time over Cleave's; the line is the geometric mean</text>"
    )
    return "\n".join([*lines, "</svg>"]) + "\n"


def _row(title: str, spread: report.Spread, y: int) -> Iterator[str]:
    yield f'  <text x="{LEFT - 12}" y="{y + 4}" text-anchor="end">{title}</text>'
    for ratio in spread.ratios:
        colour = AHEAD if ratio >= report.NEAR else BEHIND
        yield f'  <circle cx="{place(ratio)}" cy="{y}" r="3.5" fill="{colour}" fill-opacity="0.55"/>'
    mean = place(spread.geomean)
    yield f'  <path stroke="#111111" stroke-width="2" d="M{mean} {y - 8}V{y + 8}"/>'
    beyond = [ratio for ratio in spread.ratios if ratio < LEAST]
    if beyond:
        said = ", ".join(f"{ratio:.2f}" for ratio in beyond)
        yield f'  <text x="{LEFT + 2}" y="{y - 6}" font-size="9" fill="{BEHIND}">{said}</text>'
