"""How a convolution's kernels should divide: every way on every kernel, in one contest."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import replace
from typing import Any

from cleave import CudaError, _core
from cleave.cli.values import DIVISIONS
from cleave.testing import conv, cubin
from cleave.testing.arrays import TorchArrays
from cleave.testing.conv_case import ConvCase
from cleave.testing.errors import one_line

from . import products
from .contest import Calls, Contest, rates_of, replayed, row_of
from .division_report import WAYS
from .suites import Suite

KERNELS = ("sm90", "portable")


def variants(case: ConvCase) -> list[ConvCase]:
    """Every way, `auto` first, of every kernel."""
    return [
        replace(case, kernel=kernel, division=division)
        for kernel, division in itertools.product(KERNELS, DIVISIONS)
    ]


def compare(arrays: TorchArrays, case: ConvCase, suite: Suite, rounds: int) -> list[dict[str, Any]]:
    """One row per kernel, with each way's time and code in 'ways'; its 'us' is the fastest one's.

    Ways that come to the same code are measured once; 'chosen' are those that `auto` comes to. What
    is refused is in 'without'. A kernel that refuses all is a row with the reason, without a time.
    """
    contest = Contest(arrays, suite.operation)
    sets = contest.sets(case)
    contenders: dict[Any, Calls] = {}
    facts: dict[Any, dict[str, Any]] = {}
    timed: dict[Any, dict[str, Any]] = {}
    codes: dict[str, dict[str, Any]] = {kernel: {} for kernel in KERNELS}
    without: dict[str, dict[str, str]] = {kernel: {} for kernel in KERNELS}
    for variant in variants(case):
        try:
            plan = conv.plan_for(variant, sets[0])
            code = plan.kernel_source, plan.split_k_mode, plan.split_k_slices
            if code not in contenders:
                calls = products.calls(conv, arrays, plan, sets)
                errors = contest.errors(case, calls)
                facts[code] = row_of(contest, case, products.facts(plan), errors)
                timed[code] = _code(plan)
                contenders[code] = calls
            codes[variant.kernel][variant.division] = code
        except (ValueError, CudaError) as error:
            without[variant.kernel][variant.division] = one_line(error)
    times = replayed(arrays, list(contenders.values()), rounds) if contenders else []
    for way, time in zip(timed.values(), times, strict=True):
        way |= time
    return [_row(case, kernel, codes[kernel], without[kernel], facts, timed) for kernel in KERNELS]


def _row(
    case: ConvCase,
    kernel: str,
    codes: dict[str, Any],
    without: dict[str, str],
    facts: dict[Any, dict[str, Any]],
    timed: dict[Any, dict[str, Any]],
) -> dict[str, Any]:
    asked = {"call": kernel, "class_taps": class_taps(case)}
    if not codes:
        reason = next(iter(without.values()))
        refused = {"us": None, "refused": reason, "without": {kernel: reason}}
        return {"case": case.title} | asked | refused
    same = [way for way in WAYS if "auto" in codes and codes.get(way) == codes["auto"]]
    ways = {way: timed[code] for way, code in codes.items() if way != "auto" or not same}
    us = min(of["us"] for of in ways.values())
    rows = [facts[code] for code in codes.values()]
    return (
        rows[0]
        | asked
        | rates_of(case, us)
        | {
            "us": us,
            "verified": all(row["verified"] for row in rows),
            "ways": ways,
            "chosen": " ".join(same),
            "without": {f"{kernel} {way}": reason for way, reason in without.items()},
        }
    )


def class_taps(case: ConvCase) -> str:
    """Of a dgrad's classes of pixels: how many have how many taps, as 1x4 2x2 1x1."""
    along = (axis.class_taps for axis in case.axes)
    classes = Counter(map(math.prod, itertools.product(*along)))
    return " ".join(f"{classes[taps]}x{taps}" for taps in sorted(classes, reverse=True))


def _code(plan: Any) -> dict[str, int]:
    """What ptxas made of it; nothing of the CPU's."""
    if not plan.kernel_source:
        return {}
    compiled = _core.compile_plan(plan)
    counts = cubin.count(compiled["cubin"])
    return {
        "registers": compiled["registers"],
        "spill_bytes": compiled["spill_bytes"],
        "instructions": counts.instructions,
        "reciprocals": counts.reciprocals,
    }
