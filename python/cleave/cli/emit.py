"""`cleave emit`: an operation as a PyTorch extension or a C++ project of its own."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..testing.errors import ToolError
from . import values
from .compile import ARCHITECTURES
from .conv_options import add_conv_options, conv_cases
from .options import (
    add_device_option,
    add_gemm_options,
    add_grouped_options,
    default_device,
    gemm_cases,
    grouped_cases,
)

_TARGETS = {
    "pytorch": "a Python package with an operator of torch",
    "cpp": "a CMake project with one class and an example",
}


@dataclass(frozen=True)
class _Operation:
    help: str
    serves: str  # what the emitted project is for
    example: str  # options
    add_options: Callable[[argparse.ArgumentParser], None]
    cases: Callable[[argparse.Namespace], Sequence[Any]]


_OPERATIONS = {
    "gemm": _Operation(
        "a dense matrix product",
        "products of any sizes that the kernel of the planned one serves",
        "--name projection --sourcedir projection --m 4096 --n 4096 --k 4096 --dtype bf16 "
        "--sources cubin",
        add_gemm_options,
        gemm_cases,
    ),
    "grouped": _Operation(
        "products of a mixture of experts: one for each group of tokens",
        "any sizes and numbers of groups that the kernel of the planned product serves",
        "--name experts --sourcedir experts --groups 64 --tokens 4096 --n 1408 --k 2048 "
        "--dtype bf16",
        add_grouped_options,
        grouped_cases,
    ),
    "conv": _Operation(
        "a convolution, or one of its gradients",
        "images of any sizes that the kernel of the planned convolution serves",
        "--name layer --sourcedir layer --images 32 --size 56x56 --channels 128 --filters 128 "
        "--filter-size 3 --padding 1",
        add_conv_options,
        conv_cases,
    ),
}


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "emit",
        help="write an operation as a project that builds without this library",
        allow_abbrev=False,
    )
    targets = parser.add_subparsers(metavar="TARGET", required=True)
    for target, description in _TARGETS.items():
        operations = targets.add_parser(
            target, help=description, allow_abbrev=False
        ).add_subparsers(metavar="OPERATION", required=True)
        for name, operation in _OPERATIONS.items():
            options = operations.add_parser(
                name,
                help=operation.help,
                description=f"Writes {description}, for {operation.serves}. Plans without "
                "running: no GPU is needed.",
                epilog=f"Example: cleave emit {target} {name} {operation.example}",
                allow_abbrev=False,
            )
            operation.add_options(options)
            _add_options(options, target)
            options.set_defaults(run=run, target=target, cases=operation.cases)


def _add_options(parser: argparse.ArgumentParser, target: str) -> None:
    parser.add_argument(
        "--name", required=True, help="of the operation: of namespaces, files and the package"
    )
    parser.add_argument(
        "--sourcedir", required=True, metavar="FOLDER", help="where to write; new, or empty"
    )
    parser.add_argument(
        "--sources", choices=("cuda", "cubin"), default="cuda",
        help="kernels as source, for nvcc 12.0 or later (default), or compiled",
    )  # fmt: skip
    parser.add_argument(
        "--arch", type=values.words(ARCHITECTURES), default=[], metavar="ARCHS",
        help=f"a list of {', '.join(ARCHITECTURES)}; default: that of the device",
    )  # fmt: skip
    if target == "pytorch":
        parser.add_argument("--jit", action="store_true", help="build it, too")
    add_device_option(parser, "cuda, cuda:<index> or h100; default: the first GPU, else h100")


def run(arguments: argparse.Namespace) -> int:
    import cleave

    cases = arguments.cases(arguments)
    if len(cases) != 1:
        raise ToolError(
            f"the options describe {len(cases)} operations; pass one value to each, since what is "
            "emitted serves other sizes as well"
        )
    plan = cases[0].plan(arguments.device or default_device("h100"))
    options = {"sources": arguments.sources, "archs": arguments.arch}
    if arguments.target == "cpp":
        cleave.emit.cpp(plan, arguments.name, arguments.sourcedir, **options)
    else:
        cleave.emit.pytorch(plan, arguments.name, arguments.sourcedir, jit=arguments.jit, **options)
    print(f"{arguments.sourcedir}: {cases[0].title}, {plan.kernel_name}")
    return 0
