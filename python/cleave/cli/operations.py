"""The operations that commands are about: `profile gemm`, `explain conv` and so on."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from ..testing import conv, dense, grouped
from .conv_options import add_conv_options, conv_cases
from .options import add_gemm_options, add_grouped_options, gemm_cases, grouped_cases


@dataclass(frozen=True)
class Operation:
    help: str
    module: ModuleType  # makes operands, plans, runs and verifies
    add_options: Callable[[argparse.ArgumentParser], None]
    cases: Callable[[argparse.Namespace], Sequence[Any]]


OPERATIONS = {
    "gemm": Operation("dense matrix products", dense, add_gemm_options, gemm_cases),
    "grouped": Operation(
        "products of a mixture of experts: one for each group of tokens",
        grouped,
        add_grouped_options,
        grouped_cases,
    ),
    "conv": Operation("convolutions and their gradients", conv, add_conv_options, conv_cases),
}


def add_operations(
    subparsers: Any,
    run: Callable[[argparse.Namespace], int],
    texts: Mapping[str, Mapping[str, str]],
    add_options: Callable[[argparse.ArgumentParser], None],
) -> None:
    """A parser for each operation of `texts`, which are their descriptions and epilogs.

    `run` finds the operation's module, and what makes cases of the arguments, among the arguments.
    """
    for name, text in texts.items():
        operation = OPERATIONS[name]
        parser = subparsers.add_parser(name, **{"help": operation.help} | text, allow_abbrev=False)
        operation.add_options(parser)
        add_options(parser)
        parser.set_defaults(run=run, operation=operation.module, cases=operation.cases)
