"""`cleave demo`: the library at work on real input."""

from __future__ import annotations

import argparse
from typing import Any

from . import values
from .console import Console
from .options import add_device_option, default_device


def add_parser(subparsers: Any) -> None:
    from cleave.demo import SECTIONS

    parser = subparsers.add_parser("demo", help="run the demonstration", allow_abbrev=False)
    parser.add_argument(
        "--section",
        type=values.words(tuple(SECTIONS)),
        default=list(SECTIONS),
        metavar="NAMES",
        help=f"default: all of {', '.join(SECTIONS)}",
    )
    add_device_option(parser, "cpu, cuda or cuda:<index>; default: the first GPU, else cpu")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from cleave import demo

    return demo.run(arguments.section, arguments.device or default_device("cpu"), Console())
