"""What a suite's rows amount to."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any


def geomean(values: Iterable[float]) -> float:
    """NaN of nothing."""
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


def summarize_ratios(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Of rows with a 'ratio' (peer's time over ours): above 1 is a win."""
    compared = [row for row in rows if row.get("ratio") is not None]
    if not compared:
        return {"compared": 0}
    worst = min(compared, key=lambda row: row["ratio"])
    best = max(compared, key=lambda row: row["ratio"])
    return {
        "compared": len(compared),
        "geomean": geomean(row["ratio"] for row in compared),
        "worst": worst["ratio"],
        "worst_case": worst["case"],
        "best": best["ratio"],
        "best_case": best["case"],
        "wins": sum(row["ratio"] > 1 for row in compared),
        "losses": sum(row["ratio"] < 1 for row in compared),
        # Two correct roundings of the same sums differ in the RMS, though by less than this.
        "less_accurate": [
            row["case"] for row in compared if row["rms_error"] > 1.001 * row["peer_rms_error"]
        ],
    }


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
