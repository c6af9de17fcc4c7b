"""Times contenders for one product: same process, same inputs, interleaved, L2 cold."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

from cleave.cli import measure
from cleave.cli.arrays import TorchArrays
from cleave.cli.case import GemmCase
from cleave.cli.errors import one_line

from .suites import Suite


class Contest:
    """The operands of one case, in as many sets as leave the L2 cold, and its float64 reference."""

    def __init__(self, arrays: TorchArrays, case: GemmCase):
        self.arrays = arrays
        self.case = case
        self.operands = [
            measure.make_operands(arrays, case, seed)
            for seed in range(measure.set_count(case.bytes))
        ]
        self._expected = measure.reference(arrays, case, self.operands[0])

    def bind_plan(self, plan: Any) -> list[Callable[[], None]]:
        """Our contender: one call per operand set."""
        return [
            lambda o=operands: measure.run(plan, o, self.arrays.stream)
            for operands in self.operands
        ]

    def bind_peer(self, peer: ModuleType) -> list[Callable[[], None]] | None:
        calls = [peer.bind(self.case, operands) for operands in self.operands]
        return None if calls[0] is None else calls

    def errors(self, calls: Sequence[Callable[[], None]]) -> measure.Errors:
        """Of the first set's output, which is poisoned before."""
        out = self.operands[0].out
        out[...] = math.nan
        measure.run_to_completion(self.arrays, lambda: self.arrays.on_stream(calls[0]))
        return measure.compare(self.arrays, out, self._expected)

    def times(self, contenders: Sequence[Sequence[Callable[[], None]]], rounds: int) -> list[float]:
        """Median microseconds per call of each contender."""
        sets = len(self.operands)
        graphs = measure.rotating_graphs(
            self.arrays, [lambda i, calls=calls: calls[i]() for calls in contenders], sets
        )
        return measure.interleaved(graphs, rounds)


def against_peers(
    arrays: TorchArrays, case: GemmCase, peers: Sequence[ModuleType], rounds: int
) -> list[dict[str, Any]]:
    """One row: Cleave's automatic choice beside every peer that has this product."""
    contest = Contest(arrays, case)
    plan = measure.plan_for(case, contest.operands[0])
    names, contenders = ["cleave"], [contest.bind_plan(plan)]
    for peer in peers:
        calls = contest.bind_peer(peer)
        if calls:
            names.append(peer.NAME)
            contenders.append(calls)
    errors = [contest.errors(calls) for calls in contenders]
    times = contest.times(contenders, rounds)
    row = _row(case, plan, errors[0]) | _speed(case, times[0])
    row["peers"] = {
        name: {"us": us, "max_error": error.max_absolute, "rms_error": error.rms_absolute}
        for name, us, error in list(zip(names, times, errors, strict=True))[1:]
    }
    if row["peers"]:
        yardstick = row["peers"][names[1]]
        row |= {
            "peer": names[1],
            "peer_us": yardstick["us"],
            "ratio": yardstick["us"] / times[0],
            "peer_rms_error": yardstick["rms_error"],
        }
    return [row]


def against_auto(
    arrays: TorchArrays, case: GemmCase, suite: Suite, rounds: int
) -> list[dict[str, Any]]:
    """One row per split, `auto` first; 'ratio' is auto's time over the row's.

    A split that the library refuses is a row with the reason and without a time.
    """
    contest = Contest(arrays, case)
    rows, contenders, measured = [], [], []
    for mode, slices in [("auto", None), *suite.splits]:
        split = replace(case, split_k_mode=mode, split_k_slices=slices)
        requested = {"requested_mode": mode, "requested_slices": slices}
        try:
            plan = measure.plan_for(split, contest.operands[0])
        except ValueError as error:
            rows.append({"case": case.title, "us": None, "refused": one_line(error)} | requested)
            continue
        calls = contest.bind_plan(plan)
        rows.append(_row(case, plan, contest.errors(calls)) | requested)
        measured.append(rows[-1])
        contenders.append(calls)
    times = contest.times(contenders, rounds)
    for row, us in zip(measured, times, strict=True):
        row |= _speed(case, us) | {"ratio": times[0] / us}
    return rows


def _row(case: GemmCase, plan: Any, errors: measure.Errors) -> dict[str, Any]:
    return {
        "case": case.title,
        "m": case.m,
        "n": case.n,
        "k": case.k,
        "dtype": case.dtype,
        "layout": case.layout,
        "floor_us": plan.roofline_us,
        "kernel": plan.kernel_name,
        "mode": plan.split_k_mode,
        "slices": plan.split_k_slices,
        "workspace_bytes": plan.workspace_size,
        "max_error": errors.max_absolute,
        "rms_error": errors.rms_absolute,
        "verified": errors.acceptable(case),
    }


def _speed(case: GemmCase, us: float) -> dict[str, float]:
    return {"us": us, "tflops": case.flops / us * 1e-6, "gb_per_s": case.bytes / us * 1e-3}
