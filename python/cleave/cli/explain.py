"""`cleave explain`: a product's plan, what else was considered, and how far the roofline is."""

from __future__ import annotations

import argparse
from typing import Any

from ..testing.case import GemmCase, slice_count
from ..testing.conv_case import ConvCase
from ..testing.grouped_case import GroupedCase
from ..testing.kernel_plan import OneKernel
from . import explain_epilogue
from .console import Console, format_bytes
from .epilogue_option import add_epilogue_option, plan
from .operations import add_operations
from .options import add_candidates_option, add_device_option, default_device


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("explain", help="show the plan of a product and why", allow_abbrev=False)
    description = "Plans without running: no GPU is needed: h100 and h200 plan as on an H100 or H200 SXM."
    add_operations(parser, run, description, _add_options, one_kernel=True, required=True)


def _add_options(parser: argparse.ArgumentParser) -> None:
    add_device_option(parser, "cpu, cuda, cuda:<index>, h100 or h200; default: the first GPU, else h100")
    add_candidates_option(parser, 12, "candidates to show, cheapest first")
    add_epilogue_option(parser, "an epilogue function; its graph and what it costs are shown, too")


def run(arguments: argparse.Namespace) -> int:
    device = arguments.device or default_device("h100")
    console = Console()
    epilogue = arguments.epilogue
    for case in arguments.cases(arguments):
        planned = plan(case, epilogue, device)
        _explain(console, case, planned, device, arguments.candidates)
        if epilogue:
            explain_epilogue.explain(console, case, epilogue, planned, device)
    return 0


def _split(plan: Any) -> str:
    slices = slice_count(plan.split_k_mode, plan.split_k_slices)
    return f"{plan.split_k_mode}, {slices} slices" if slices else plan.split_k_mode


def _explain(
    console: Console, case: GemmCase | GroupedCase | ConvCase | OneKernel, plan: Any, device: str, limit: int | None
) -> None:
    candidates = plan.candidates
    # A tuned choice need not be the cheapest candidate.
    chosen = next((candidate for candidate in candidates if _is_of(candidate, plan)), None)
    console.heading(f"{case.title} on {device}")
    console.pairs(
        [
            ("kernel", plan.kernel_name),
            ("split-K", _split(plan)),
            ("workspace", format_bytes(plan.workspace_size)),
            ("why", plan.why),
            ("moves", format_bytes(case.bytes)),
            ("computes", f"{case.flops / 1e9:.4g} GFLOP, {case.flops / max(case.bytes, 1):.3g} per byte"),
            *_roofline(plan.roofline_us, chosen),
        ]
    )
    if not candidates:
        return
    shown = candidates[:limit]
    if chosen and not any(candidate is chosen for candidate in shown):
        shown.append(chosen)
    console.heading(f"candidates by prediction, {len(shown)} of {len(candidates)}")
    console.table(
        ("", "kernel", "mode", "slices", "predicted us", "roofline", "workspace"),
        [
            (
                "*" if candidate is chosen else "",
                candidate["kernel"],
                candidate["split_k_mode"],
                slice_count(candidate["split_k_mode"], candidate["split_k_slices"]),
                candidate["predicted_us"],
                _percent(plan.roofline_us, candidate["predicted_us"]),
                format_bytes(candidate["workspace_size"]),
            )
            for candidate in shown
        ],
    )


def _roofline(roofline_us: float, chosen: dict[str, Any] | None) -> list[tuple[str, str]]:
    if roofline_us <= 0:
        return []
    rows = [("roofline", f"{roofline_us:.3g} us")]
    if chosen:
        predicted = chosen["predicted_us"]
        rows.append(("predicted", f"{predicted:.3g} us, {_percent(roofline_us, predicted)} of the roofline"))
    return rows


def _percent(roofline_us: float, us: float) -> str:
    return f"{100 * roofline_us / us:.0f}%" if us > 0 else "-"


def _is_of(candidate: dict[str, Any], plan: Any) -> bool:
    """The CPU's candidates say more in their names than its plans."""
    split = candidate["split_k_mode"], candidate["split_k_slices"]
    return split == (plan.split_k_mode, plan.split_k_slices) and candidate["kernel"].startswith(plan.kernel_name)
