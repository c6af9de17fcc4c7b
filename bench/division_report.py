"""What the rows of a 'division' suite amount to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from cleave.cli.values import DIVISIONS

from .summary import listed, spread, spread_text

# `auto` is one of them.
WAYS = tuple(way for way in DIVISIONS if way != "auto")
_AGAINST_PLAIN = tuple(way for way in DIVISIONS if way != "plain")
_CODE_FACTS = ("registers", "instructions", "reciprocals")

# Of one case on one kernel: the time and the code of each way to divide that was measured.
Ways = dict[str, dict[str, Any]]


def summarize(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Of each kernel: plain's time over that of every other way; on how many cases each way is the
    fastest; where `auto` is slower than plain; and the fastest way's time over that of `auto`."""
    result = {}
    for kernel, cases in _by_kernel(rows).items():
        plain_over = {way: _over(cases, "plain", way) for way in _AGAINST_PLAIN}
        best = {case: ways | {"best": ways[_fastest(ways)]} for case, ways in cases.items()}
        best_over_auto = _over(best, "best", "auto")
        result[kernel] = {
            "plain_over": {way: spread(ratios) for way, ratios in plain_over.items() if ratios},
            "fastest": dict(Counter(map(_fastest, cases.values()))),
            "auto_losses": [case for case, ratio in plain_over["auto"].items() if ratio < 1],
            "best_over_auto": spread(best_over_auto) if best_over_auto else {},
        }
    return result


def lines(summary: dict[str, Any]) -> list[str]:
    """Sentences."""
    made = []
    for kernel, of in summary.items():
        made += [
            f"{kernel}, plain's time over {way}'s: {spread_text(ratios)}, "
            f"best {ratios['best']:.3f} on {ratios['best_case']}."
            for way, ratios in of["plain_over"].items()
        ]
        fastest = ", ".join(f"{way} {count}" for way, count in of["fastest"].items())
        made.append(f"{kernel}, cases on which each way is the fastest: {fastest}.")
        if of["best_over_auto"]:
            made.append(f"{kernel}, slower with auto than with plain: {listed(of['auto_losses'])}.")
            against = spread_text(of["best_over_auto"])
            made.append(f"{kernel}, the fastest way's time over auto's: {against}.")
    return made


def table(rows: Sequence[dict[str, Any]]) -> tuple[list[str], list[list[Any]]]:
    """A line per case and kernel. Counts of the machine code are in the order of WAYS."""
    columns = ["case", "taps of classes", "kernel"]
    columns += [f"{way} us" for way in WAYS]
    columns += [f"plain / {way}" for way in WAYS if way != "plain"]
    columns += ["fastest", "auto is", *(f"{fact}: {', '.join(WAYS)}" for fact in _CODE_FACTS)]
    return columns, [_line(row, ways_of(row)) for row in _compared(rows)]


def _line(row: dict[str, Any], ways: Ways) -> list[Any]:
    def of(way: str, field: str, otherwise: Any = None) -> Any:
        return ways.get(way, {}).get(field, otherwise)

    def over(way: str) -> float | None:
        both = "plain" in ways and way in ways
        return ways["plain"]["us"] / ways[way]["us"] if both else None

    facts = ("case", "class_taps", "kernel")
    return [
        *(row[fact] for fact in facts),
        *(of(way, "us") for way in WAYS),
        *(over(way) for way in WAYS if way != "plain"),
        _fastest(ways),
        row.get("chosen"),
        *(", ".join(str(of(way, fact, "-")) for way in WAYS) for fact in _CODE_FACTS),
    ]


def ways_of(row: dict[str, Any]) -> Ways:
    """With `auto`, which mostly comes to the code of another way."""
    chosen = (row.get("chosen") or "").split()
    return row.get("ways", {}) | ({"auto": row["ways"][chosen[0]]} if chosen else {})


def _compared(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of which more than `auto` was measured, kernel by kernel."""
    rows = [row for row in rows if row.get("ways", {}).keys() - {"auto"}]
    kernels = list(dict.fromkeys(row["call"] for row in rows))
    return sorted(rows, key=lambda row: kernels.index(row["call"]))


def _by_kernel(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, Ways]]:
    """Of each kernel its cases."""
    kernels: dict[str, dict[str, Ways]] = {}
    for row in _compared(rows):
        kernels.setdefault(row["call"], {})[row["case"]] = ways_of(row)
    return kernels


def _fastest(ways: Ways) -> str:
    """Where ways are the same code, the first of them."""
    return min((way for way in WAYS if way in ways), key=lambda way: ways[way]["us"])


def _over(cases: dict[str, Ways], way: str, other: str) -> dict[str, float]:
    """One way's time over another's, where both were measured."""
    return {
        case: ways[way]["us"] / ways[other]["us"]
        for case, ways in cases.items()
        if way in ways and other in ways
    }
