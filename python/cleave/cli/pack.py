"""`cleave pack`: kernels compiled ahead, in a file that other machines start from."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .. import _core
from .._compile_ahead import CompileAhead
from .._pack import build_pack
from ..testing.case import GemmCase
from ..testing.errors import ToolError, one_line
from . import shape_log, values
from .console import Console, format_bytes, format_path
from .operations import add_operations
from .options import add_device_option, default_device

# What linear layers of a type are called with: the cases whose covering sets --covering packs. D of one row is stored
# otherwise.
_ROWS, _WEIGHTS = (1, 8192), 8192
FAMILIES: dict[str, list[dict[str, Any]]] = {
    "bfloat16": [{"layout": layout} for layout in values.LAYOUTS],
    "float16": [{"layout": layout} for layout in values.LAYOUTS],
    "float8_e4m3fn": [
        {"scaling": "row"},
        {"scaling": "row", "use_fast_accum": True},
        {"scaling": "block_128x128"},
    ],
    "int8": [{"scaling": "row"}],
}


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("pack", help="compile kernels into a file, or list such files", allow_abbrev=False)
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    build = actions.add_parser(
        "build",
        help="compile kernels into a file",
        description="Compiles kernels into FILE, with which processes that start with CLEAVE_PACKS=FILE compile none "
        "of them, and need no NVRTC: those of certain products (name an operation), of all that an application met "
        "(--from), or of the covering sets of types (--covering). Needs NVRTC, but no GPU.",
        epilog="Example: cleave pack build fp8.pack --covering float8_e4m3fn",
        allow_abbrev=False,
    )
    build.add_argument("file", type=Path, metavar="FILE")
    build.add_argument(
        "--covering",
        type=values.words(tuple(FAMILIES)),
        metavar="TYPES",
        help=f"the kernels that CLEAVE_KERNELS=covering chooses from, with and without a bias: {', '.join(FAMILIES)}",
    )
    build.add_argument(
        "--from",
        dest="log",
        type=Path,
        metavar="FILE",
        help="the kernels of this file's problems, which an application wrote that ran with CLEAVE_LOG_SHAPES=FILE",
    )
    build.add_argument(
        "--tokens",
        type=values.integers(1),
        metavar="A,B",
        help="with --from: the kernels that `cleave.prepare` chooses for A to B rows of each product",
    )
    _add_device(build)
    build.set_defaults(run=run_build, cases=None)
    add_operations(build, run_build, "Packs the kernels of certain ones.", _add_device)
    listing = actions.add_parser(
        "ls", help="list the packs that CLEAVE_PACKS names, or certain ones", allow_abbrev=False
    )
    listing.add_argument("files", nargs="*", type=Path, metavar="FILE")
    listing.set_defaults(run=run_ls)


def _add_device(parser: argparse.ArgumentParser) -> None:
    add_device_option(parser, "cuda, cuda:<index>, h100 or h200; default: the first GPU, else h100")


def run_build(arguments: argparse.Namespace) -> int:
    device = arguments.device or default_device("h100")
    if sum(map(bool, (arguments.cases, arguments.covering, arguments.log))) != 1:
        raise ToolError("say what to pack: an operation (gemm, grouped, conv), --covering TYPES or --from FILE")
    if arguments.tokens and (not arguments.log or len(arguments.tokens) != 2):
        raise ToolError("--tokens takes the fewest and the most rows, say 1,8192, of what --from has")
    console = Console()
    if arguments.log:
        plans = _logged(arguments.log, device, arguments.tokens, console)
    elif arguments.covering:
        plans = (plan for name in arguments.covering for plan in _covering(name, device))
    else:
        plans = (case.plan(device) for case in arguments.cases(arguments))
    distinct = list({plan.kernel_source: plan for plan in plans}.values())
    if not distinct:
        raise ToolError("there is no kernel to pack")
    with CompileAhead() as compilers:  # into the cache on disk, from which the pack is filled
        for plan in distinct:
            compilers.submit(plan)
        for plan in console.progress(distinct, "compiling"):
            compilers.wait([plan])
    pack = build_pack(arguments.file, distinct)
    console.print(f"{pack.kernels} kernels, {format_bytes(pack.bytes)}, in {format_path(str(pack.path))}")
    if pack.problem:
        console.print(f"It is of no use there: {pack.problem}")
    return 1 if pack.problem else 0


def run_ls(arguments: argparse.Namespace) -> int:
    packs = [_core.pack_info(str(file)) for file in arguments.files] if arguments.files else _core.pack_list()
    console = Console()
    if not packs:
        console.print("no packs: CLEAVE_PACKS is not set")
        return 0
    console.table(
        ("pack", "kernels", "size", "NVRTC", "problem"),
        [(format_path(p["path"]), p["kernels"], format_bytes(p["bytes"]), p["compiler"], p["problem"]) for p in packs],
    )
    return 1 if any(pack["problem"] for pack in packs) else 0


def _covering(dtype: str, device: str) -> Iterator[Any]:
    for options, bias, m in itertools.product(FAMILIES[dtype], ("none", "row"), _ROWS):
        case = GemmCase(m, _WEIGHTS, _WEIGHTS, dtype=dtype, bias=bias, **options)
        yield from _core.covering_plans(case.plan(device))


def _logged(log: Path, device: str, tokens: list[int] | None, console: Console) -> Iterator[Any]:
    """The plans of each problem once, in the order of the log."""
    for text in shape_log.problems(log):
        try:
            planned = _core.plan_text(text, device)
            yield from _core.prepare_rows(planned, *tokens, "covering") if tokens else [planned]
        except (ValueError, TypeError) as error:  # another version's, or of another GPU; the others may be packed
            console.print(f"{text}: {one_line(error)}")
