"""How a convolution's kernels should divide: every way on every kernel, in one contest."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from cleave import CudaError, _core
from cleave.cli.values import DIVISIONS
from cleave.testing import conv, cubin
from cleave.testing.arrays import TorchArrays
from cleave.testing.conv_case import ConvCase
from cleave.testing.errors import one_line

from . import products
from .contest import Contest, rates_of, replayed, row_of
from .suites import Suite

KERNELS = ("sm90", "portable")


def variants(case: ConvCase) -> list[ConvCase]:
    """`auto`, then every way, of every kernel."""
    return [
        replace(case, kernel=kernel, division=division)
        for kernel, division in itertools.product(KERNELS, DIVISIONS)
    ]


def compare(arrays: TorchArrays, case: ConvCase, suite: Suite, rounds: int) -> list[dict[str, Any]]:
    """One row per variant; 'ratio' is plain's time on the same kernel over the row's.

    Variants that come to the same code are measured once. One that is refused is a row with the
    reason and without a time.
    """
    contest = Contest(arrays, suite.operation)
    sets = contest.sets(case)
    rows: list[dict[str, Any]] = []
    contenders: dict[Any, Any] = {}
    measured: dict[Any, dict[str, Any]] = {}
    for variant in variants(case):
        asked = {
            "call": f"{variant.kernel} {variant.division}",
            "requested_kernel": variant.kernel,
            "requested_division": variant.division,
        }
        try:
            plan = conv.plan_for(variant, sets[0])
            key = plan.kernel_source, plan.split_k_mode, plan.split_k_slices
            if key not in measured:
                calls = products.calls(conv, arrays, plan, sets)
                facts = products.facts(plan) | _code(plan)
                measured[key] = row_of(contest, case, facts, contest.errors(case, calls))
                contenders[key] = calls
        except (ValueError, CudaError) as error:
            refused = {"refused": one_line(error), "without": {asked["call"]: one_line(error)}}
            rows.append({"case": case.title, "us": None} | refused | asked)
            continue
        code = {"code": list(measured).index(key), "class_taps": class_taps(case)}
        rows.append(measured[key] | asked | code)
    if not contenders:
        return rows
    times = [time["us"] for time in replayed(arrays, list(contenders.values()), rounds)]
    for row in rows:
        if "code" in row:
            us = times[row["code"]]
            row |= {"us": us} | rates_of(case, us)
    for row in rows:
        if "code" in row:
            row |= _against_its_kind(row, rows)
    return rows


def class_taps(case: ConvCase) -> str:
    """Of a dgrad's classes of pixels: how many have how many taps, as 1x4 2x2 1x1."""
    along = (axis.class_taps for axis in case.axes)
    classes = Counter(map(math.prod, itertools.product(*along)))
    return " ".join(f"{classes[taps]}x{taps}" for taps in sorted(classes, reverse=True))


def _against_its_kind(row: dict[str, Any], rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The ratio, and of `auto` the ways that are the same code."""
    kernel = row["requested_kernel"]
    ways = {
        other["requested_division"]: other
        for other in rows
        if other["requested_kernel"] == kernel and "code" in other
    }
    facts: dict[str, Any] = {}
    if "plain" in ways:
        facts["ratio"] = ways["plain"]["us"] / row["us"]
    if row["requested_division"] == "auto":
        same = [
            way for way, other in ways.items() if other["code"] == row["code"] and way != "auto"
        ]
        facts["chosen"] = " ".join(same)
    return facts


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
