"""What calls over ranks add to their products, fitted to what bench.distributed measured on two GPUs, and what that
says of more: python -m bench.distributed.fit FILE [MODEL]

Times in graphs. What is moved before or behind its product takes a constant, a part for the root of its bytes and one
for its bytes: MODEL, cleave/_cost_over_ranks.py, which this writes anew. What is moved in halves while others are made
ends when the last of its steps does; a constant and a part for its bytes are what that leaves out. Each is the least
squares of relative errors; how far off the model is is said of every case by a fit without it.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import nnls

import cleave
from cleave import _cost_over_ranks as _cost
from cleave.distributed import _transports

from .. import report

COST = Path(_cost.__file__)
PROJECTED = 8
ITEM = 2  # bytes


class Case(NamedTuple):
    operation: str
    m: int
    n: int
    k: int
    product: float  # microseconds

    def trip(self, size: int) -> float:
        """Bytes that a rank sends to get all others' parts, or to give them its own."""
        return self.whole * (size - 1) / size

    @property
    def whole(self) -> int:
        return self.m * (self.k if self.operation == "all_gather" else self.n) * ITEM

    def sent(self, size: int) -> float:
        return _cost.sent(self.operation, self.whole, size)

    def is_large(self, size: int) -> bool:
        return _transports.is_cut(self.operation, self.m, self.n, size)

    def ends(self, size: int) -> float:
        """When the last half has been made or has come, if nothing else took time."""
        wire, own = self.trip(size) / _cost.WIRE, self.product / size
        others = self.product - own
        if self.operation == "all_gather":
            return self._gathered(wire, own, others, size)
        first = others / 2 + wire / 2
        second = max(others, first) + wire / 2
        summed = max(others, first) + own / 2
        ended = max(summed, second) + own / 2
        return ended if self.operation == "reduce_scatter" else max(ended, summed + wire / 2) + wire / 2

    def _gathered(self, wire: float, own: float, others: float, size: int) -> float:
        if not _transports.is_multiplied_by_rank(self.m // size, self.n):
            return wire + self.product
        if _transports.comes_at_once(self.n, size):
            return max(own, wire) + others
        return max(max(own, wire / 2) + others / 2, wire) + others / 2


class Fit(NamedTuple):
    """constants: of 1, the bytes' root (0 of large ones) and the bytes. error: root of the mean square, and the most,
    each case's by a fit without it."""

    constants: tuple[float, float, float]
    error: float
    most: float
    cases: int


def cases_of(rows: list[dict[str, Any]]) -> Iterator[tuple[Case, bool, float, float]]:
    """Each with whether it was moved in halves, its time through peers' memory, and by NCCL behind the same product."""
    for row in rows:
        if "cleave peer" in row["graph"]:
            graph = row["graph"]
            case = Case(row["operation"], row["m"], row["n"], row["k"], graph["cleave alone"])
            yield case, row["halves"], graph["cleave peer"], graph["cleave + NCCL"]


def fitted(cases: list[Case], us: list[float], size: int, way: str) -> Fit:
    taken, sent = np.array(us), np.array([case.sent(size) for case in cases])
    base = np.array([base_of(case, way, size) for case in cases])
    root = np.zeros_like(sent) if way == "halves" else np.sqrt(sent)
    terms = np.stack([np.ones_like(sent), root, sent], 1) / taken[:, None]

    def solve(of: np.ndarray) -> np.ndarray:
        return nnls(terms[of], ((taken - base) / taken)[of])[0]

    every = np.arange(len(cases))
    off = np.array([base[i] / taken[i] + terms[i] @ solve(every[every != i]) - 1 for i in every])
    return Fit(tuple(solve(every).tolist()), float(np.sqrt((off**2).mean())), float(abs(off).max()), len(cases))


def fits(rows: list[dict[str, Any]], size: int) -> dict[tuple[str, str], Fit]:
    """By operation and way: "peer", "halves" or "nccl"."""
    found: dict[tuple[str, str], list[tuple[Case, float]]] = defaultdict(list)
    for case, halves, peer, nccl in cases_of(rows):
        found[case.operation, "halves" if halves else "peer"].append((case, peer))
        found[case.operation, "nccl"].append((case, nccl))
    return {key: fitted(*map(list, zip(*of, strict=True)), size, key[1]) for key, of in found.items()}


def base_of(case: Case, way: str, size: int) -> float:
    return case.ends(size) if way == "halves" else case.product


def predicted(case: Case, way: str, size: int, table: _cost.Table) -> float:
    if way == "halves":
        return case.ends(size) + table[case.operation, way].of(case.sent(size))
    return case.product + _cost.added(case.operation, way, case.whole, size, table)


def projection(rows: list[dict[str, Any]], found: dict[tuple[str, str], Fit], size: int) -> Iterator[tuple[str, ...]]:
    """Local sizes of TP8, on so many GPUs of one host: product, ours, NCCL's, and their ratio."""
    local = [row for row in rows if "TP8" in row["case"]]
    table = {key: _cost.Added(*fit.constants) for key, fit in found.items()}
    for case, *_ in sorted(cases_of(local)):
        way = "halves" if case.is_large(size) else "peer"
        ours, nccl = predicted(case, way, size, table), predicted(case, "nccl", size, table)
        shape = f"{case.m} x {case.n} x {case.k}"
        yield case.operation, shape, f"{case.product:.0f}", f"{ours:.0f}", f"{nccl:.0f}", f"{nccl / ours:.2f}"


def refit(results: Path, path: Path) -> None:
    """Writes the model anew, and says how far off it is."""
    result = report.load(results)
    size, rows = result["machine"]["gpus"], result["rows"]
    found, text = fits(rows, size), COST.read_text()
    print(f"{result['machine']['gpu']}, {size} GPUs, Cleave {cleave.__version__}\n")
    names = ("operation", "way", "us", "us of a byte's root", "GB/s", "cases", "error", "most")
    table = []
    for (operation, way), fit in sorted(found.items()):
        us, root, byte = fit.constants
        rate = f"{1e-3 / byte:.0f}" if byte else "-"
        said = (f"{us:.2f}", f"{root:.2g}", rate, str(fit.cases), f"{fit.error:.1%}", f"{fit.most:.1%}")
        table.append((operation, way, *said))
        if way != "halves":
            made = f'("{operation}", "{way}"): Added({us:.2f}, {root:.3g}, {byte:.3g}),'
            text = re.sub(rf'\("{operation}", "{way}"\): Added\(.*?\),', made, text)
    path.write_text(re.sub(r"^GPUS = \d+", f"GPUS = {size}", text, flags=re.MULTILINE))
    print(*report.table(names, table), sep="\n")
    print(f"\nA projection to {PROJECTED} GPUs of one host, microseconds:\n")
    names = ("operation", "M x N x K", "product", "ours", "NCCL behind it", "ratio")
    print(*report.table(names, list(projection(rows, found, PROJECTED))), sep="\n")


if __name__ == "__main__":
    refit(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else COST)
