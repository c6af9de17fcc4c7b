"""The operations that commands are about, `profile gemm`, `explain conv` and so on, and the cases that their options
span."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from ..testing import conv, dense, grouped, lora, route, router_logits
from ..testing.case import GemmCase, product
from ..testing.conv_case import ConvCase
from ..testing.errors import ToolError
from ..testing.grouped_case import GroupedCase
from ..testing.lora import LoraCase
from ..testing.route import RouteCase
from ..testing.router_logits import RouterLogitsCase
from .problem_options import CONV, GEMM, GROUPED, LORA, REQUIRED, ROUTE, ROUTER_LOGITS, Option

_LISTS = "Every option takes a comma-separated list; all combinations are run."


def _gemm_cases(options: dict[str, list[Any]]) -> list[GemmCase]:
    return list(product(GemmCase, options))


def _grouped_cases(options: dict[str, list[Any]]) -> list[GroupedCase]:
    """ToolError where sizes are given and something else is asked for."""
    cases: list[GroupedCase] = []
    for sizes in options["sizes"]:
        if isinstance(sizes, tuple):
            counts = {"groups": _said(options, "groups", len(sizes)), "tokens": _said(options, "tokens", sum(sizes))}
        else:
            counts = {"groups": options["groups"] or [8], "tokens": options["tokens"] or [4096]}
        cases += product(GroupedCase, options | counts | {"sizes": [sizes]})
    return cases


def _said(options: dict[str, list[Any]], name: str, said: int) -> list[int]:
    """What --sizes says, which the option may only repeat."""
    if options[name] and options[name] != [said]:
        raise ToolError(f"--sizes makes --{name} {said}: leave --{name} out")
    return [said]


def _conv_cases(options: dict[str, list[Any]]) -> list[ConvCase]:
    sizes = [size if isinstance(size, tuple) else (size,) for size in options["size"]]
    return list(product(ConvCase, options | {"size": sizes}))


@dataclass(frozen=True)
class Operation:
    """module: makes operands, plans, runs and verifies. cases: all combinations of the options' values,
    the last option's varying fastest. example: of options. one_kernel: a problem has one, so that there is nothing to
    choose, tune or emit."""

    help: str
    module: ModuleType
    options: dict[str, Option]
    cases: Callable[[dict[str, list[Any]]], Sequence[Any]]
    example: str
    one_kernel: bool = False


def _one_kernel(
    help: str, module: ModuleType, options: dict[str, Option], case: Callable[..., Any], example: str
) -> Operation:
    return Operation(help, module, options, lambda chosen: list(product(case, chosen)), example, one_kernel=True)


OPERATIONS = {
    "gemm": Operation(
        "dense matrix products", dense, GEMM, _gemm_cases, "--m 128 --n 128 --k 1024:65536:*2 --dtype fp16,bf16"
    ),
    "grouped": Operation(
        "products of a mixture of experts: one for each group of tokens",
        grouped,
        GROUPED,
        _grouped_cases,
        "--groups 64 --tokens 4096 --n 1408 --k 2048 --dtype bf16 --form forward,dgrad,wgrad",
    ),
    "conv": Operation(
        "convolutions and their gradients",
        conv,
        CONV,
        _conv_cases,
        "--images 32 --size 56x56 --channels 128 --filters 128 --filter-size 3 --stride 2 --padding 1 --kind dgrad",
    ),
    "route": _one_kernel(
        "routers: each token's experts and their weights",
        route,
        ROUTE,
        RouteCase,
        "--tokens 1:4096:*4 --experts 256 --top-k 8 --scoring-func sigmoid --n-group 8 --topk-group 4 --bias yes",
    ),
    "router_logits": _one_kernel(
        "routers' logits for few tokens",
        router_logits,
        ROUTER_LOGITS,
        RouterLogitsCase,
        "--tokens 1,16,64 --experts 128 --features 6144 --static-weight yes",
    ),
    "lora": _one_kernel(
        "low-rank adapters of a layer, many in one batch",
        lora,
        LORA,
        LoraCase,
        "--rows 64 --features 4096 --outputs 4096 --rank 8,16,64 --adapters 1,64 --sizes zipf",
    ),
}


def add_operations(
    parser: argparse.ArgumentParser,
    run: Callable[[argparse.Namespace], int],
    description: str,
    add_options: Callable[[argparse.ArgumentParser], None],
    texts: Mapping[str, Mapping[str, str]] | None = None,
    *,
    one_kernel: bool = False,
    **subparsers: Any,
) -> Any:
    """A parser for each operation, or those of `texts`, which replace the help, description and epilog; for those of
    one kernel where `one_kernel` says so. Returns what further parsers may be added to.

    `run` finds the operation's module, and what makes cases of the arguments, among the arguments.
    """
    parsers = parser.add_subparsers(metavar="OPERATION", **subparsers)
    for name in texts or [name for name, each in OPERATIONS.items() if one_kernel or not each.one_kernel]:
        operation = OPERATIONS[name]
        text = {
            "help": operation.help,
            "description": f"{operation.help[0].upper()}{operation.help[1:]}. {description}",
            "epilog": f"Example: {parser.prog} {name} {operation.example}",
        }
        own = parsers.add_parser(name, **text | (texts or {}).get(name, {}), allow_abbrev=False)
        group = own.add_argument_group("problem", _LISTS)
        for field, option in operation.options.items():
            given = {"required": True} if option.default is REQUIRED else {"default": option.default}
            flag = "--" + field.replace("_", "-")
            group.add_argument(flag, type=option.parse, metavar=option.metavar, help=option.help, **given)
        add_options(own)

        def cases(arguments: argparse.Namespace, operation: Operation = operation) -> Sequence[Any]:
            return operation.cases({field: getattr(arguments, field) for field in operation.options})

        own.set_defaults(run=run, operation=operation.module, cases=cases)
    parsers.refused = {
        name: f"{name} has one kernel for each shape: nothing to {parser.prog.split()[1]}; profile and explain have it"
        for name, each in OPERATIONS.items()
        if each.one_kernel and name not in parsers.choices
    }
    return parsers
