"""Contenders for one case: same process, same inputs, interleaved, L2 cold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

from cleave.testing import measure
from cleave.testing.accuracy import Errors
from cleave.testing.arrays import TorchArrays
from cleave.testing.errors import one_line

from .operations.products import Products
from .peers import Peer, reason
from .suites import Case, Suite

Calls = Sequence[Callable[[], object]]
Timed = Callable[[TorchArrays, Sequence[Calls], int], list[dict[str, float]]]


class Contest:
    """Contenders of one operation. Those with the same case have the same operands."""

    def __init__(self, arrays: TorchArrays, operation: ModuleType | Products):
        self.arrays = arrays
        self.operation = operation
        self._sets: dict[Case, list[Any]] = {}

    def sets(self, case: Case) -> list[Any]:
        """The case's operands, in as many sets as leave the L2 cold."""
        if case not in self._sets:
            count = measure.set_count(case.bytes)
            self._sets[case] = [self.operation.make_operands(self.arrays, case, seed) for seed in range(count)]
        return self._sets[case]

    def ours(self, case: Case) -> tuple[Calls, dict[str, Any]]:
        """One call per operand set, and facts about them."""
        return self.operation.ours(self.arrays, case, self.sets(case))

    def theirs(self, peer: Peer, case: Case) -> Calls:
        """The same of a peer; `case` is what `peer.serves` says."""
        return [next(iter(peer.calls(case, o).values())) for o in self.sets(case)]

    def errors(self, case: Case, calls: Calls) -> Errors:
        """Errors of the first set's output, which is poisoned before."""
        first = self.sets(case)[0]
        self.operation.poison(self.arrays, first)
        measure.run_to_completion(self.arrays, lambda: self.arrays.on_stream(calls[0]))
        return self.operation.errors(self.arrays, case, first)


def replayed(arrays: TorchArrays, contenders: Sequence[Calls], rounds: int) -> list[dict[str, float]]:
    """Each contender's median microseconds per call, in replays of graphs."""
    graphs = measure.rotating_graphs(
        arrays, [lambda i, calls=calls: calls[i % len(calls)]() for calls in contenders], max(map(len, contenders))
    )
    return [{"us": us} for us in measure.interleaved(graphs, rounds)]


def against_peers(
    arrays: TorchArrays, case: Case, suite: Suite, peers: Sequence[Peer], rounds: int, timed: Timed = replayed
) -> list[dict[str, Any]]:
    """One row: Cleave's automatic choice beside every peer that serves the case or one near it."""
    contest = Contest(arrays, suite.operation)
    calls, facts = contest.ours(case)
    row = row_of(contest, case, facts, contest.errors(case, calls))
    contenders, theirs, without = [calls], {}, {}
    for peer in peers:
        served = peer.serves(case)
        if not served:
            continue
        try:
            calls = contest.theirs(peer, served)
            errors = contest.errors(served, calls)
        except (RuntimeError, ValueError) as error:  # some forms are refused only when they run
            without[peer.name] = reason(error)
            continue
        contenders.append(calls)
        theirs[peer.name] = _error_fields(errors)
        if served != case:
            theirs[peer.name]["case"] = served.title
    ours, *times = timed(arrays, contenders, rounds)
    for fields, time in zip(theirs.values(), times, strict=True):
        fields |= time | {"ratio": time["us"] / ours["us"]}
    return [row | ours | rates_of(case, ours["us"]) | {"peers": theirs, "without": without}]


def against_auto(arrays: TorchArrays, case: Case, suite: Suite, rounds: int) -> list[dict[str, Any]]:
    """One row per split, `auto` first; 'ratio' is auto's time over the row's.

    A split that the library refuses is a row with the reason and without a time.
    """
    contest = Contest(arrays, suite.operation)
    sets = contest.sets(case)
    rows, contenders, measured = [], [], []
    for mode, slices in [("auto", None), *suite.splits]:
        split = replace(case, split_k_mode=mode, split_k_slices=slices)
        requested = {"requested_mode": mode, "requested_slices": slices}
        try:
            calls, facts = suite.operation.ours(arrays, split, sets)
        except ValueError as error:
            rows.append({"case": case.title, "us": None, "refused": one_line(error)} | requested)
            continue
        rows.append(row_of(contest, case, facts, contest.errors(case, calls)) | requested)
        measured.append(rows[-1])
        contenders.append(calls)
    times = replayed(arrays, contenders, rounds)
    for row, time in zip(measured, times, strict=True):
        row |= time | rates_of(case, time["us"]) | {"ratio": times[0]["us"] / time["us"]}
    return rows


def row_of(contest: Contest, case: Case, facts: dict[str, Any], errors: Errors) -> dict[str, Any]:
    return (
        {"case": case.title}
        | contest.operation.describe(case)
        | facts
        | _error_fields(errors)
        | {"verified": errors.acceptable}
    )


def _error_fields(errors: Errors) -> dict[str, float]:
    return {"rms_error": errors.rms_absolute, "row_error": errors.max_row}


def rates_of(case: Case, us: float) -> dict[str, float]:
    """TFLOP/s of what computes; what memory allows is each row's floor."""
    flops = getattr(case, "flops", None)
    return {"tflops": flops / us * 1e-6} if flops else {}
