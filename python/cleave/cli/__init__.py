"""The `cleave` command.

Exit status: 0 success; 1 the library or a verification said no (one line on standard error);
2 wrong usage.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from ..testing.errors import ToolError, one_line
from . import cache, compile, emit, explain, info, pack, profile, tune
from .parser import Parser

COMMANDS = (info, profile, explain, compile, pack, emit, cache, tune)


def build_parser() -> argparse.ArgumentParser:
    import cleave

    parser = Parser(
        prog="cleave",
        description="Matrix products split across a GPU: explain, measure and compile them.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"cleave {cleave.__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add_parser(subparsers)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; its exit status. Wrong usage raises SystemExit(2), as argparse does."""
    import cleave

    arguments = build_parser().parse_args(argv)
    try:
        return arguments.run(arguments)
    except (ToolError, cleave.CudaError, ValueError, TypeError, OSError) as error:
        if isinstance(error, BrokenPipeError):  # the reader (head, less) has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        print(f"cleave: {one_line(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
