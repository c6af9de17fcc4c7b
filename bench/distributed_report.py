"""What bench.distributed measured, as files: its rows, and a table that follows from them.

python -m bench.distributed_report bench/results/distributed.json    # writes the table anew
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from . import report, tables


class Gain(NamedTuple):
    """A case in a graph, in microseconds; but for `eager`, all of the slower rank."""

    operation: str
    case: str
    size: str
    product: float  # alone, the better of cuBLAS's and ours
    ours: float
    unfused: float  # the better of both, then NCCL
    torch_fused: float  # which is not captured
    eager: float
    unfused_eager: float

    @property
    def hidden(self) -> float:
        """The share of what NCCL adds to the product that ours does not."""
        return (self.unfused - self.ours) / (self.unfused - self.product)


def gains(rows: list[dict[str, Any]]) -> Iterator[Gain]:
    for row in sorted(rows, key=lambda row: (row["operation"], row["case"], row["m"])):
        if "cleave peer" not in row["graph"]:
            continue
        graph, eager = row["graph"], row["eager"]
        yield Gain(
            row["operation"],
            row["case"],
            f"{row['m']} x {row['n']} x {row['k']}",
            min(graph["cuBLAS alone"], graph["cleave alone"]),
            graph["cleave peer"],
            _unfused(graph),
            next((us for name, us in eager.items() if name.startswith("torch")), math.nan),
            eager["cleave peer"],
            _unfused(eager),
        )


def summaries(result: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """What each operation is, where it was measured, and how it compares."""
    of: dict[str, list[float]] = {}
    for gain in gains(result["rows"]):
        of.setdefault(gain.operation, []).append(gain.unfused / gain.ours)
    for operation, ratios in of.items():
        what = f"Products over two GPUs, {operation.replace('_', '-')}, {len(ratios)} shapes, in graphs, against NCCL"
        geomean = statistics.geometric_mean(ratios)
        compared = f"geomean {geomean:.2f}, worst {min(ratios):.2f}, best {max(ratios):.2f}"
        yield f"{what} behind the better product", result["machine"]["gpu"], compared


def write(path: Path, result: dict[str, Any]) -> None:
    """The measurements, and beside them the table."""
    path.write_text(tables.text({"machine": result["machine"], **tables.pack(result["rows"])}))
    path.with_suffix(".md").write_text(_page(report.load(path)))


def _unfused(times: dict[str, float]) -> float:
    return min(times["cuBLAS + NCCL"], times["cleave + NCCL"])


def _page(result: dict[str, Any]) -> str:
    of = result["machine"]
    names = ("operation", "local sizes of", "M x N x K", "product", "ours", "unfused", "unfused / ours", "hidden")
    cells = [
        (
            gain.operation,
            gain.case,
            gain.size,
            *(f"{us:.1f}" for us in (gain.product, gain.ours, gain.unfused)),
            f"{gain.unfused / gain.ours:.2f}",
            f"{gain.hidden:.2f}",
            *(f"{us:.0f}" for us in (gain.torch_fused, gain.eager, gain.unfused_eager)),
        )
        for gain in gains(result["rows"])
    ]
    said = [f"{what}: {compared}." for what, _, compared in summaries(result)]
    return "\n".join(
        [
            "# Products over ranks",
            "",
            ", ".join(f"{name} {value}" for name, value in of.items()),
            "",
            "Microseconds of a call in a graph of ten, the slower rank's median of seven rounds; torch's fused",
            "operator and the two last columns are eager. Unfused: the better product, then NCCL. Hidden: the share",
            "of what that adds which is not there.",
            "",
            *report.table((*names, "torch fused", "ours, eager", "unfused, eager"), cells),
            "",
            *said,
            "",
        ]
    )


if __name__ == "__main__":
    given = Path(sys.argv[1])
    write(given, report.load(given))
