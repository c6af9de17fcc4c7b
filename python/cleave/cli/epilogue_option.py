"""`--epilogue FILE.py:NAME`: an epilogue function, and the plans of cases that have it."""

from __future__ import annotations

import argparse
import runpy
from collections.abc import Mapping
from typing import Any

from .._epilogue import BoundEpilogue, Epilogue
from .._epilogue.graph import parse
from ..testing.case import GemmCase
from ..testing.conv_case import ConvCase
from ..testing.errors import ToolError
from ..testing.grouped_case import GroupedCase
from ..testing.kernel_plan import OneKernel

Case = GemmCase | GroupedCase | ConvCase | OneKernel


def add_epilogue_option(parser: argparse.ArgumentParser, description: str) -> None:
    parser.add_argument("--epilogue", type=function, metavar="FILE.py:NAME", help=description)


def function(text: str) -> Epilogue:
    """FILE.py:NAME, a function that the file decorates with @cleave.epilogue."""
    path, _, name = text.rpartition(":")
    try:
        found = runpy.run_path(path).get(name) if path else None
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{path} cannot be read: {error.strerror}") from error
    if not isinstance(found, Epilogue):
        raise argparse.ArgumentTypeError(f"{text!r} is no FILE.py:NAME of a function decorated with @cleave.epilogue")
    return found


def plan(case: Case, epilogue: Epilogue | None, device: str) -> Any:
    """The case's plan, with the function if there is one."""
    if not isinstance(case, OneKernel):
        return case.plan(device, epilogue and _typed(epilogue, case))
    if epilogue:
        raise ToolError("--epilogue is for products and convolutions: leave it out")
    return case.plan(device)


def _typed(epilogue: Epilogue, case: Case) -> BoundEpilogue:
    """With types in place of arrays: scalars are numbers, rows and columns float32, matrices as D."""
    types: Mapping[str, Any] = {"scalar": 1.0, "row": "float32", "column": "float32", "matrix": case.result_dtype}
    return epilogue(**{name: types[shape] for name, shape in parse(epilogue.text).inputs.items()})
