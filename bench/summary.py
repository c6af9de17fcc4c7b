"""What a suite's rows amount to."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any


def geomean(values: Iterable[float]) -> float:
    """NaN of nothing."""
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


def summarize(kind: str, rows: Sequence[dict[str, Any]], best_of: Sequence[str] = ()) -> dict[str, Any]:
    """What a suite of that kind compares."""
    if kind == "host":
        return {}
    return summarize_modes(rows) if kind == "modes" else summarize_peers(rows, best_of)


def summarize_peers(rows: Sequence[dict[str, Any]], best_of: Sequence[str] = ()) -> dict[str, dict[str, Any]]:
    """Each peer's time over ours, and that of the fastest among `best_of`: above 1 is a win."""
    peers = dict.fromkeys(name for row in rows for name in row["peers"])
    result = {peer: _ratios([row for row in rows if peer in row["peers"]], peer) for peer in peers}
    if len(peers.keys() & set(best_of)) > 1:
        label = f"the best of {' and '.join(best_of)}"
        best = [row | {"peers": {label: fastest}} for row, fastest in _fastest(rows, best_of)]
        result[label] = _ratios(best, label)
    return result


def _fastest(rows: Sequence[dict[str, Any]], names: Sequence[str]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each row that has one of the peers, and the fastest of those."""
    for row in rows:
        present = [row["peers"][name] for name in names if name in row["peers"]]
        if present:
            yield row, min(present, key=lambda measured: measured["us"])


def _ratios(rows: Sequence[dict[str, Any]], peer: str) -> dict[str, Any]:
    ratios = {row["case"]: row["peers"][peer]["us"] / row["us"] for row in rows}
    return {
        **spread(ratios),
        "wins": sum(ratio > 1 for ratio in ratios.values()),
        "losses": [case for case, ratio in ratios.items() if ratio < 1],
        **_accuracy(rows, peer),
        **_host(rows, peer),
    }


def spread(ratios: dict[str, float]) -> dict[str, Any]:
    """What ratios, which have their cases as keys, amount to."""
    worst, best = min(ratios, key=ratios.__getitem__), max(ratios, key=ratios.__getitem__)
    return {
        "compared": len(ratios),
        "geomean": geomean(ratios.values()),
        "worst": ratios[worst],
        "worst_case": worst,
        "best": ratios[best],
        "best_case": best,
    }


def spread_text(of: dict[str, Any]) -> str:
    return "geomean {geomean:.3f} of {compared}, worst {worst:.3f} on {worst_case}".format_map(of)


def listed(cases: Sequence[str]) -> str:
    return ", ".join(cases) or "nowhere"


def _host(rows: Sequence[dict[str, Any]], peer: str) -> dict[str, float]:
    """Our longest host time of a step, and the least part of the peer's that we save."""
    if "host_us" not in rows[0]:
        return {}
    shares = [row["host_us"] / row["peers"][peer]["host_us"] for row in rows]
    return {"host_us": max(row["host_us"] for row in rows), "host_saved": 1 - max(shares)}


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
        explicit = [row["us"] for row in group if row["requested_mode"] != "auto" and row.get("us")]
        automatic = [row["us"] for row in group if row["requested_mode"] == "auto" and row.get("us")]
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
