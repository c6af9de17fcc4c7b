"""`cleave compile`: compile every kernel the planner can choose; say what ptxas made of it."""

from __future__ import annotations

import argparse
from typing import Any

from . import values
from .console import Console

ARCHITECTURES = ("sm_80", "sm_90a")


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "compile",
        help="compile all kernels for an architecture",
        description="Compiles every kernel the planner can choose, into the cache. "
        "Needs NVRTC, but no GPU.",
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


def run(arguments: argparse.Namespace) -> int:
    import cleave

    if arguments.all and arguments.arch:
        arguments.parser.error("--all and --arch exclude each other")
    architectures = ARCHITECTURES if arguments.all else arguments.arch or _default_architectures()
    console = Console()
    kernels = [
        kernel
        for arch in console.progress(architectures, "compiling")
        for kernel in cleave.compile_all(arch)
    ]
    console.table(
        ("kernel", "arch", "registers", "spill B", "shared B", "seconds", "cached"),
        [
            (
                kernel["name"],
                kernel["arch"],
                kernel["registers"],
                kernel["spill_bytes"],
                kernel["shared_bytes"],
                kernel["seconds"],
                kernel["from_cache"],
            )
            for kernel in kernels
        ],
    )
    spilling = [kernel for kernel in kernels if kernel["spill_bytes"]]
    seconds = sum(kernel["seconds"] for kernel in kernels)
    console.print(
        f"{len(kernels)} kernels, {len(spilling)} with spills, {seconds:.1f} s of compilation"
    )
    return 1 if spilling else 0


def _default_architectures() -> tuple[str, ...]:
    import cleave

    if not cleave.device_count():
        return ARCHITECTURES
    return ("sm_90a",) if cleave.device_info(0)["compute_capability"] == 90 else ("sm_80",)
