"""What a suite's rows amount to."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any


def geomean(values: Iterable[float]) -> float:
    """NaN of nothing."""
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


def summarize_peers(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Of each peer, its time over ours: above 1 is a win."""
    peers = dict.fromkeys(name for row in rows for name in row["peers"])
    return {peer: _ratios([row for row in rows if peer in row["peers"]], peer) for peer in peers}


def _ratios(rows: Sequence[dict[str, Any]], peer: str) -> dict[str, Any]:
    def ratio(row: dict[str, Any]) -> float:
        return row["peers"][peer]["us"] / row["us"]

    worst, best = min(rows, key=ratio), max(rows, key=ratio)
    return {
        "compared": len(rows),
        "geomean": geomean(map(ratio, rows)),
        "worst": ratio(worst),
        "worst_case": worst["case"],
        "best": ratio(best),
        "best_case": best["case"],
        "wins": sum(ratio(row) > 1 for row in rows),
        "losses": [row["case"] for row in rows if ratio(row) < 1],
        **_accuracy(rows, peer),
    }


def _accuracy(rows: Sequence[dict[str, Any]], peer: str) -> dict[str, Any]:
    """Where the peer is more accurate, or what it computes instead: then errors do not compare."""
    other = [row["peers"][peer]["case"] for row in rows if "case" in row["peers"][peer]]
    if other:
        return {"instead": other[0]}
    # Two correct roundings of the same sums differ in the RMS, though by less than this.
    less = [row for row in rows if row["rms_error"] > 1.001 * row["peers"][peer]["rms_error"]]
    return {"less_accurate": [row["case"] for row in less]}


def summarize_modes(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """`auto` against the best explicit mode and slice count of each case: 1.05 is 5 % slower."""
    by_case: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_case.setdefault(row["case"], []).append(row)
    excess = {}
    for case, group in by_case.items():
        explicit = [row["us"] for row in group if row["requested_mode"] != "auto" and row["us"]]
        automatic = [row["us"] for row in group if row["requested_mode"] == "auto" and row["us"]]
        if explicit and automatic:
            excess[case] = automatic[0] / min(explicit)
    if not excess:
        return {"compared": 0}
    worst_case = max(excess, key=excess.__getitem__)
    return {
        "compared": len(excess),
        "geomean": geomean(excess.values()),
        "worst": excess[worst_case],
        "worst_case": worst_case,
    }
