"""What bench.distributed measured, as files: its rows, and a table that follows from them.

python -m bench.distributed.report bench/results/distributed.json    # writes the table anew
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from cleave import _cost_over_ranks as _cost

from .. import report, tables

# Whose layers the model of what calls cost is fitted to, and results are of that do not say it.
FITTED = "Llama-3-70B"


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
    wire: float  # what a rank sends at least, where nothing else is done

    @property
    def hidden(self) -> float:
        """The share of what NCCL adds to the product that ours does not."""
        return (self.unfused - self.ours) / (self.unfused - self.product)

    @property
    def most(self) -> float:
        """Unfused over what nothing can be faster than: the longer of the product and the wire."""
        return self.unfused / max(self.product, self.wire)


def gains(rows: list[dict[str, Any]], gpus: int) -> Iterator[Gain]:
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
            _wire(row, gpus),
        )


def _wire(row: dict[str, Any], gpus: int) -> float:
    whole = row["m"] * (row["k"] if row["operation"] == "all_gather" else row["n"]) * 2
    return _cost.sent(row["operation"], whole, gpus) / _cost.WIRE


def summaries(result: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """What each operation is, where it was measured, and how it compares."""
    of: dict[str, list[float]] = {}
    for gain in gains(result["rows"], result["machine"]["gpus"]):
        of.setdefault(gain.operation, []).append(gain.unfused / gain.ours)
    for operation, ratios in of.items():
        where = f"Products over two GPUs, {result['machine'].get('model', FITTED)}, "
        what = where + f"{operation.replace('_', '-')}, {len(ratios)} shapes, in graphs, against NCCL"
        geomean = statistics.geometric_mean(ratios)
        compared = f"geomean {geomean:.2f}, worst {min(ratios):.2f}, best {max(ratios):.2f}"
        yield f"{what} behind the better product", result["machine"]["gpu"], compared


def bounds(result: dict[str, Any]) -> Iterator[str]:
    """How each operation compares at the local sizes of TP8, and how it could at most."""
    of: dict[str, list[Gain]] = {}
    for gain in gains(result["rows"], result["machine"]["gpus"]):
        if "TP8" in gain.case:
            of.setdefault(gain.operation, []).append(gain)
    for operation, found in of.items():
        ours = statistics.geometric_mean(gain.unfused / gain.ours for gain in found)
        most = statistics.geometric_mean(gain.most for gain in found)
        yield f"{operation}, local sizes of TP8: geomean {ours:.2f}, of {most:.2f} at most."


def write(path: Path, result: dict[str, Any]) -> None:
    """The measurements, and beside them the table."""
    path.write_text(tables.text({"machine": result["machine"], **tables.pack(result["rows"])}))
    path.with_suffix(".md").write_text(_page(report.load(path)))


def _unfused(times: dict[str, float]) -> float:
    return min(times["cuBLAS + NCCL"], times["cleave + NCCL"])


def _page(result: dict[str, Any]) -> str:
    of = result["machine"]
    names = ("operation", "local sizes of", "M x N x K", "product", "wire", "ours", "unfused", "unfused / ours")
    cells = [
        (
            gain.operation,
            gain.case,
            gain.size,
            *(f"{us:.1f}" for us in (gain.product, gain.wire, gain.ours, gain.unfused)),
            *(f"{x:.2f}" for x in (gain.unfused / gain.ours, gain.most, gain.hidden)),
            *(f"{us:.0f}" for us in (gain.torch_fused, gain.eager, gain.unfused_eager)),
        )
        for gain in gains(result["rows"], of["gpus"])
    ]
    said = [f"{what}: {compared}." for what, _, compared in summaries(result)]
    return "\n".join(
        [
            "# Products over ranks",
            "",
            ", ".join(f"{name} {value}" for name, value in of.items()),
            "",
            "Microseconds of a call in a graph of ten, the slower rank's median of seven rounds; torch's fused",
            "operator and the two last columns are eager. Wire: of the bytes that a rank sends at least, at",
            f"{_cost.WIRE / 1e3:.0f} GB/s. Unfused: the better product, then NCCL. At most: unfused over the longer of",
            "product and wire. Hidden: the share of what NCCL adds which is not there.",
            "",
            *report.table((*names, "at most", "hidden", "torch fused", "ours, eager", "unfused, eager"), cells),
            "",
            *said,
            *bounds(result),
            "",
        ]
    )


if __name__ == "__main__":
    given = Path(sys.argv[1])
    write(given, report.load(given))
