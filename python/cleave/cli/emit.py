"""`cleave emit`: an operation as a PyTorch extension or a C++ project of its own."""

from __future__ import annotations

import argparse
import functools
from typing import Any

from ..testing.errors import ToolError
from . import values
from .compile import ARCHITECTURES
from .epilogue_option import add_epilogue_option, plan
from .operations import add_operations
from .options import add_device_option, default_device

_TARGETS = {
    "pytorch": "a Python package with an operator of torch",
    "cpp": "a CMake project with one class and an example",
}


# What each is, what the emitted project is for, and options as an example.
_TEXTS = {
    "gemm": (
        "a dense matrix product",
        "products of any sizes that the kernel of the planned one serves",
        "--name projection --sourcedir projection --m 4096 --n 4096 --k 4096 --dtype bf16 --sources cubin",
    ),
    "grouped": (
        "products of a mixture of experts: one for each group of tokens",
        "any sizes and numbers of groups that the kernel of the planned product serves",
        "--name experts --sourcedir experts --groups 64 --tokens 4096 --n 1408 --k 2048 --dtype bf16",
    ),
    "conv": (
        "a convolution, or one of its gradients",
        "images of any sizes that the kernel of the planned convolution serves",
        "--name layer --sourcedir layer --images 32 --size 56x56 --channels 128 --filters 128 "
        "--filter-size 3 --padding 1",
    ),
}


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "emit", help="write an operation as a project that builds without this library", allow_abbrev=False
    )
    targets = parser.add_subparsers(metavar="TARGET", required=True)
    for target, description in _TARGETS.items():
        operations = targets.add_parser(target, help=description, allow_abbrev=False)
        texts = {
            name: {
                "help": help,
                "description": f"Writes {description}, for {serves}. Plans without running: no GPU is needed.",
                "epilog": f"Example: cleave emit {target} {name} {example}",
            }
            for name, (help, serves, example) in _TEXTS.items()
        }
        add_operations(operations, run, "", functools.partial(_add_options, target), texts, required=True)


def _add_options(target: str, parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(target=target)
    parser.add_argument("--name", required=True, help="of the operation: of namespaces, files and the package")
    parser.add_argument("--sourcedir", required=True, metavar="FOLDER", help="where to write; new, or empty")
    parser.add_argument(
        "--sources", choices=("cuda", "cubin"), default="cuda",
        help="kernels as source, for nvcc 12.0 or later (default), or compiled",
    )  # fmt: skip
    parser.add_argument(
        "--arch", type=values.words(ARCHITECTURES), default=[], metavar="ARCHS",
        help=f"a list of {', '.join(ARCHITECTURES)}; default: that of the device",
    )  # fmt: skip
    add_epilogue_option(parser, "an epilogue function, which becomes the operation's; its inputs are arguments")
    if target == "pytorch":
        parser.add_argument("--jit", action="store_true", help="build it, too")
    add_device_option(parser, "cuda, cuda:<index>, h100 or h200; default: the first GPU, else h100")


def run(arguments: argparse.Namespace) -> int:
    import cleave

    cases = arguments.cases(arguments)
    if len(cases) != 1:
        raise ToolError(
            f"the options describe {len(cases)} operations; pass one value to each, since what is "
            "emitted serves other sizes as well"
        )
    planned = plan(cases[0], arguments.epilogue, arguments.device or default_device("h100"))
    options = {"sources": arguments.sources, "archs": arguments.arch}
    if arguments.target == "cpp":
        cleave.emit.cpp(planned, arguments.name, arguments.sourcedir, **options)
    else:
        cleave.emit.pytorch(planned, arguments.name, arguments.sourcedir, jit=arguments.jit, **options)
    epilogue = f", epilogue {arguments.epilogue.__name__}" if arguments.epilogue else ""
    print(f"{arguments.sourcedir}: {cases[0].title}{epilogue}, {planned.kernel_name}")
    return 0
