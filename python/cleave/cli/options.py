"""Options that several commands have, beside those of problems."""

from __future__ import annotations

import argparse

from . import values


def add_device_option(parser: argparse.ArgumentParser, description: str, inherited: bool = False) -> None:
    """inherited: where it is not given, it is as the parser above has it."""
    default = argparse.SUPPRESS if inherited else None
    parser.add_argument("--device", type=values.device, default=default, metavar="DEVICE", help=description)


def add_candidates_option(
    parser: argparse.ArgumentParser, default: int, description: str, inherited: bool = False
) -> None:
    """inherited: as of add_device_option."""
    help = f"{description}: a number or all; default {default}"
    own = argparse.SUPPRESS if inherited else default
    parser.add_argument("--candidates", type=values.count_or_all, default=own, metavar="N", help=help)


def default_device(without_gpu: str) -> str:
    """The first GPU if there is one."""
    import cleave

    return "cuda:0" if cleave.device_count() else without_gpu
