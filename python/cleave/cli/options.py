"""Options that several commands have, beside those of problems."""

from __future__ import annotations

import argparse

from . import values


def add_device_option(parser: argparse.ArgumentParser, description: str) -> None:
    parser.add_argument("--device", type=values.device, metavar="DEVICE", help=description)


def add_candidates_option(parser: argparse.ArgumentParser, default: int, description: str) -> None:
    help = f"{description}: a number or all; default {default}"
    parser.add_argument("--candidates", type=values.count_or_all, default=default, metavar="N", help=help)


def default_device(without_gpu: str) -> str:
    """The first GPU if there is one."""
    import cleave

    return "cuda:0" if cleave.device_count() else without_gpu
