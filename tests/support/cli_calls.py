"""Calls of the `cleave` command, for its tests."""

from __future__ import annotations

from pathlib import Path

from cleave import cli

SMALL = ["--m", "48", "--n", "40", "--k", "200"]
GROUPS = ["--sizes", "20,0,1,47", "--n", "40", "--k", "72"]
CONV = [
    "--images", "2", "--size", "9x7", "--channels", "8", "--filters", "16", "--filter-size", "3",
    "--stride", "2", "--padding", "1",
]  # fmt: skip

EPILOGUES = Path(__file__).with_name("cli_epilogues.py")


def run(capsys, *arguments):
    status = cli.main(list(arguments))
    captured = capsys.readouterr()
    return status, captured.out, captured.err
