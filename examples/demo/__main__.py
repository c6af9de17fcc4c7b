"""The library at work on real input: `make run`, or `python -m examples.demo --help`."""

from __future__ import annotations

import sys

import cleave
from cleave.cli import values
from cleave.cli.console import Console
from cleave.cli.options import add_device_option, default_device
from cleave.cli.parser import Parser
from cleave.testing.errors import ToolError, one_line

from . import SECTIONS, run


def main(argv: list[str] | None = None) -> int:
    """Runs sections; the exit status."""
    parser = Parser(prog="python -m examples.demo", description=__doc__, allow_abbrev=False)
    parser.add_argument(
        "--section",
        type=values.words(tuple(SECTIONS)),
        default=list(SECTIONS),
        metavar="NAMES",
        help=f"default: all of {', '.join(SECTIONS)}",
    )
    add_device_option(parser, "cpu, cuda or cuda:<index>; default: the first GPU, else cpu")
    arguments = parser.parse_args(argv)
    try:
        return run(arguments.section, arguments.device or default_device("cpu"), Console())
    except (ToolError, cleave.CudaError, ValueError, TypeError, OSError) as error:
        print(f"demo: {one_line(error)}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
