"""`cleave tune`: measure the planner's candidates on this machine and remember the fastest."""

from __future__ import annotations

import argparse
from typing import Any

from ..testing import arrays as array_libraries
from ..testing import dense, measure
from ..testing.case import GemmCase
from ..testing.errors import ToolError
from ..testing.operands import make_operands
from .console import Console
from .operations import add_operations
from .options import add_candidates_option, add_device_option

# The best of a first, short measurement are measured again, more carefully.
FINALISTS = 4


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("tune", help="measure candidates and remember the fastest", allow_abbrev=False)
    description = (
        "Measures candidates of each product on this GPU and stores the fastest in the tuning file beside the kernel "
        "cache, where later plans find it."
    )
    add_operations(parser, run, description, _add_options, {"gemm": {}}, required=True)


def _add_options(parser: argparse.ArgumentParser) -> None:
    add_device_option(parser, "cuda or cuda:<index>; default: cuda:0")
    add_candidates_option(parser, 48, "candidates to measure, cheapest by prediction first")


def run(arguments: argparse.Namespace) -> int:
    from cleave import _core

    device = arguments.device or "cuda:0"
    if device == "cpu":
        raise ToolError("tuning is for GPUs: use --device cuda")
    console = Console()
    rows = []
    path = None
    for case in console.progress(arguments.cases(arguments), "tuning"):
        library = array_libraries.select(device, case.dtypes)
        first, (winner, best) = tune_case(library, case, arguments.candidates)
        path = _core.tune_store(winner)
        choice = f"{winner.kernel_name}, {winner.split_k_mode} {winner.split_k_slices}"
        rows.append((case.title, choice, best, first, first / best))
    console.table(("case", "fastest", "us", "planner's us", "gain"), rows)
    console.print(f"stored in {path}")
    return 0


def tune_case(library: array_libraries.Arrays, case: GemmCase, limit: int | None) -> tuple[float, tuple[Any, float]]:
    """Microseconds of the planner's choice, and the fastest plan with its microseconds."""
    from cleave import _core

    sets = measure.set_count(case.bytes)
    operands = [make_operands(library, case, seed) for seed in range(sets)]
    planned = dense.plan_for(case, operands[0])
    plans = [_core.plan_as(planned, candidate["kernel"]) for candidate in planned.candidates[:limit]]

    def times(contenders: list[Any], rounds: int) -> list[float]:
        calls = [lambda i, plan=plan: dense.run(plan, operands[i], library.stream) for plan in contenders]
        return measure.interleaved(measure.rotating_graphs(library, calls, sets), rounds)

    ranked = sorted(zip(times(plans, 3), range(len(plans)), strict=True))
    finalists = [planned, *(plans[i] for _, i in ranked[:FINALISTS])]
    first, *rest = times(finalists, 7)
    best = min(range(len(rest)), key=rest.__getitem__)
    return first, (finalists[best + 1], rest[best])
