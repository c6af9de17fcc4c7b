"""`cleave cache`: look at the compiled kernels on disk, or remove them."""

from __future__ import annotations

import argparse
from typing import Any

from .console import Console, format_bytes, format_path


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("cache", help="list or clear the compiled kernels on disk", allow_abbrev=False)
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    actions.add_parser("ls", help="list the entries, newest first", allow_abbrev=False).set_defaults(run=run_ls)
    actions.add_parser("clear", help="remove the entries, and the tuning file", allow_abbrev=False).set_defaults(
        run=run_clear
    )


def run_ls(_: argparse.Namespace) -> int:
    from cleave import _core

    entries = _core.cache_list()
    console = Console()
    if entries:
        console.table(
            ("key", "arch", "size", "age"),
            [(e["key"], e["arch"], format_bytes(e["bytes"]), _age(e["age_seconds"])) for e in entries],
        )
    total = sum(entry["bytes"] for entry in entries)
    console.print(f"{len(entries)} kernels, {format_bytes(total)} in {_path()}")
    if others := sum(not entry["current"] for entry in entries):
        console.print(f"{others} of them by other versions of Cleave; they go first")
    return 0


def run_clear(_: argparse.Namespace) -> int:
    import cleave
    from cleave import _core

    console = Console()
    tuned = _core.tuned_info()["entries"]
    console.print(f"removed {cleave.cache_clear()} kernels from {_path()}")
    if tuned:
        console.print(f"removed the tuning file, {tuned} measured choice{'s' * (tuned > 1)}")
    return 0


def _path() -> str:
    import cleave

    return format_path(cleave.cache_info()["path"])


def _age(seconds: float) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds // length:.0f} {unit}"
    return f"{seconds:.0f} s"
