"""`cleave compile`: compile kernels into the cache; say what ptxas made of them."""

from __future__ import annotations

import argparse
from typing import Any

from .. import _core
from ..testing import cubin
from . import values
from .console import Console
from .operations import add_operations
from .options import add_device_option, default_device

ARCHITECTURES = _core.choices["arch"]


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "compile",
        help="compile kernels into the cache",
        description="Compiles every kernel the planner can choose, or those that it chooses for "
        "certain products, into the cache. Needs NVRTC, but no GPU.",
        epilog="Exits with status 1 if a kernel spills registers.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--arch",
        type=values.words(ARCHITECTURES),
        metavar="ARCHS",
        help=f"a list of {', '.join(ARCHITECTURES)}; default: that of the first GPU, else all",
    )
    parser.add_argument("--all", action="store_true", help="every architecture")
    parser.set_defaults(run=run, parser=parser)
    add_operations(parser, run_products, "Compiles the kernels of certain ones alone.", _add_device)


def _add_device(parser: argparse.ArgumentParser) -> None:
    add_device_option(parser, "cuda, cuda:<index>, h100 or h200; default: the first GPU, else h100")


def run(arguments: argparse.Namespace) -> int:
    import cleave

    if arguments.all and arguments.arch:
        arguments.parser.error("--all and --arch exclude each other")
    architectures = ARCHITECTURES if arguments.all else arguments.arch or _default_architectures()
    console = Console()
    kernels = [kernel for arch in console.progress(architectures, "compiling") for kernel in cleave.compile_all(arch)]
    return _report(console, kernels)


def run_products(arguments: argparse.Namespace) -> int:
    if arguments.all or arguments.arch:
        arguments.parser.error("products are compiled for a device: use --device")
    device = arguments.device or default_device("h100")
    console = Console()
    plans = [case.plan(device) for case in arguments.cases(arguments)]
    distinct = list({plan.kernel_source: plan for plan in plans}.values())
    kernels = [_core.compile_plan(plan) for plan in console.progress(distinct, "compiling")]
    return _report(console, kernels)


def _report(console: Console, kernels: list[dict[str, Any]]) -> int:
    """Prints a table; the exit status."""
    console.table(
        ("kernel", "arch", "registers", "spill B", "shared B", "instructions", "seconds", "cached"),
        [
            (
                kernel["name"],
                kernel["arch"],
                kernel["registers"],
                kernel["spill_bytes"],
                kernel["shared_bytes"],
                cubin.count(kernel["cubin"]).instructions,
                kernel["seconds"],
                kernel["from_cache"],
            )
            for kernel in kernels
        ],
    )
    spilling = [kernel for kernel in kernels if kernel["spill_bytes"]]
    seconds = sum(kernel["seconds"] for kernel in kernels)
    console.print(f"{len(kernels)} kernels, {len(spilling)} with spills, {seconds:.1f} s of compilation")
    return 1 if spilling else 0


def _default_architectures() -> tuple[str, ...]:
    """The first GPU's: with an "a", code for that one alone; without, also for later ones."""
    import cleave

    if not cleave.device_count():
        return ARCHITECTURES
    capability = cleave.device_info(0)["compute_capability"]
    own = f"sm_{capability}a"
    return (own if own in ARCHITECTURES else ARCHITECTURES[0],)
