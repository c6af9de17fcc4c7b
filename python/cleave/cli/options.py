"""The options that say which products a command is about, and the cases they span."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from ..testing.case import GemmCase, product
from ..testing.errors import ToolError
from ..testing.grouped_case import FORMS, GroupedCase
from . import values

_SIZES_HELP = "sizes: one value, a list (128,256) or a range (1024:8192:1024, 1024:65536:*2)"
RESULT_OPTIONS = ("out_dtype", "activation", "bias", "split_k_mode", "split_k_slices")
_LAYOUT_HELP = "A's letter, then B's, as BLAS names them"


def add_gemm_options(parser: argparse.ArgumentParser) -> None:
    """Problem options; every one takes a list, and the command runs over all combinations."""
    group = problem_group(parser)
    sizes = values.integers(0)
    group.add_argument("--m", type=sizes, required=True, metavar="SIZES", help=_SIZES_HELP)
    group.add_argument("--n", type=sizes, required=True, metavar="SIZES")
    group.add_argument("--k", type=sizes, required=True, metavar="SIZES")
    group.add_argument("--batch", type=values.integers(1), default=[1], metavar="SIZES")
    group.add_argument(
        "--layout", type=values.words(values.LAYOUTS), default=["tn"], metavar="LAYOUTS",
        help=f"{_LAYOUT_HELP}; tn (default): K is the unit stride of both",
    )  # fmt: skip
    _add_shared_options(group, values.SCALINGS, values.BIASES)


def add_grouped_options(parser: argparse.ArgumentParser) -> None:
    """The same of a mixture of experts' products."""
    group = problem_group(parser)
    sizes = values.integers(0)
    group.add_argument(
        "--sizes", type=values.group_sizes, default=["uniform"], metavar="SIZES",
        help="the tokens of each group: 10,20,30 or @FILE with such numbers; or how --tokens are "
        "spread over --groups: uniform (default), varied (0.7 to 1.3 of the mean), zipf",
    )  # fmt: skip
    group.add_argument("--groups", type=values.integers(1), metavar="COUNTS", help="default: 8, or as in --sizes")
    group.add_argument(
        "--tokens", type=sizes, metavar="SIZES",
        help="of all groups together; default: 4096, or as in --sizes",
    )  # fmt: skip
    group.add_argument("--n", type=sizes, required=True, metavar="SIZES", help="features that the layer gives")
    group.add_argument("--k", type=sizes, required=True, metavar="SIZES", help="features that the layer takes")
    group.add_argument(
        "--form", type=values.words(FORMS), default=["forward"], metavar="FORMS",
        help="forward (default): x @ W.T; dgrad: dy @ W; wgrad: dy.T @ x",
    )  # fmt: skip
    group.add_argument(
        "--layout", type=values.words(values.LAYOUTS), default=[None], metavar="LAYOUTS",
        help=f"{_LAYOUT_HELP}; default: as the form finds them, tn of 8-bit ones",
    )  # fmt: skip
    group.add_argument(
        "--alignment", type=values.integers(1), default=[None], metavar="COUNTS",
        help="groups begin at its multiples; default: 128 where scales run along tokens, else 1",
    )  # fmt: skip
    _add_shared_options(group, values.GROUP_SCALINGS, values.GROUP_BIASES)


def problem_group(parser: argparse.ArgumentParser) -> Any:
    return parser.add_argument_group("problem", "Every option takes a comma-separated list; all combinations are run.")


def _add_shared_options(group: Any, scalings: Sequence[str], biases: Sequence[str]) -> None:
    add_dtype_option(group, values.OPERAND_DTYPES, "float32, int8, float8_e4m3fn or float8_e5m2")
    add_precision_option(group)
    group.add_argument(
        "--scaling", type=values.words(scalings), default=["none"], metavar="NAMES",
        help=f"what a scale of 8-bit operands serves: {', '.join(scalings)}; rows are A's (columns "
        "of B), block_128x128 has 1x128 of A; default none",
    )  # fmt: skip
    group.add_argument(
        "--use-fast-accum", type=values.words(values.FLAGS), default=[False], metavar="FLAGS",
        help="yes: sums of 8-bit floats stay in the tensor cores; no (default)",
    )  # fmt: skip
    add_result_options(group, values.ACTIVATIONS, biases)


def add_dtype_option(group: Any, allowed: Mapping[str, str], others: str) -> None:
    short = ", ".join(spelling for spelling, name in allowed.items() if spelling != name)
    group.add_argument(
        "--dtype", type=values.words(allowed), default=["float16"], metavar="TYPES",
        help=f"float16 (default), bfloat16, {others}; short: {short}",
    )  # fmt: skip


def add_precision_option(group: Any) -> None:
    group.add_argument(
        "--precision", type=values.words(values.PRECISIONS), default=["tf32"], metavar="NAMES",
        help="of float32 on a GPU: rounded to tf32 (default), or ieee: multiplied as it is",
    )  # fmt: skip


def add_result_options(group: Any, activations: Sequence[str], biases: Sequence[str]) -> None:
    """What becomes of the sums, and how they are shared."""
    group.add_argument(
        "--out-dtype",
        type=values.words(values.DTYPES),
        default=[None],
        metavar="TYPES",
        help="default: the operands' type; bfloat16 for 8-bit ones, int32 for int8 without scales",
    )
    group.add_argument(
        "--activation", type=values.words(activations), default=["none"], metavar="NAMES",
        help=", ".join(activations),
    )  # fmt: skip
    group.add_argument(
        "--bias",
        type=values.words(biases),
        default=["none"],
        metavar="SHAPES",
        help=", ".join(biases),
    )
    group.add_argument(
        "--split-k-mode", type=values.words(values.SPLIT_K_MODES), default=["auto"],
        metavar="MODES",
        help=", ".join(values.SPLIT_K_MODES),
    )  # fmt: skip
    group.add_argument(
        "--split-k-slices",
        type=values.slices,
        default=[None],
        metavar="COUNTS",
        help="counts, or auto (default)",
    )


def add_device_option(parser: argparse.ArgumentParser, description: str) -> None:
    parser.add_argument("--device", type=values.device, metavar="DEVICE", help=description)


def add_candidates_option(parser: argparse.ArgumentParser, default: int, description: str) -> None:
    parser.add_argument(
        "--candidates",
        type=values.count_or_all,
        default=default,
        metavar="N",
        help=f"{description}: a number or all; default {default}",
    )


def gemm_cases(arguments: argparse.Namespace) -> list[GemmCase]:
    """All combinations of the problem options, the slice count varying fastest."""
    return list(product(GemmCase, _chosen(arguments, "m", "n", "k", "batch", "layout")))


def grouped_cases(arguments: argparse.Namespace) -> list[GroupedCase]:
    """The same. ToolError where sizes are given and something else is asked for."""
    cases: list[GroupedCase] = []
    for sizes in arguments.sizes:
        if isinstance(sizes, tuple):
            counts = (
                _said(arguments.groups, len(sizes), "--groups"),
                _said(arguments.tokens, sum(sizes), "--tokens"),
            )
        else:
            counts = arguments.groups or [8], arguments.tokens or [4096]
        options = {"groups": counts[0], "tokens": counts[1], "sizes": [sizes]}
        options |= _chosen(arguments, "n", "k", "form", "layout", "alignment")
        cases += product(GroupedCase, options)
    return cases


def _said(asked: list[int] | None, said: int, option: str) -> list[int]:
    """What --sizes says, which the option may only repeat."""
    if asked and asked != [said]:
        raise ToolError(f"--sizes makes {option} {said}: leave {option} out")
    return [said]


def _chosen(arguments: argparse.Namespace, *names: str) -> dict[str, list[Any]]:
    own = ("dtype", "precision", "scaling", "use_fast_accum")
    return chosen(arguments, *names, *own, *RESULT_OPTIONS)


def chosen(arguments: argparse.Namespace, *names: str) -> dict[str, list[Any]]:
    """These options' values, the last varying fastest in a product of them."""
    return {name: getattr(arguments, name) for name in names}


def default_device(without_gpu: str) -> str:
    """The first GPU if there is one."""
    import cleave

    return "cuda:0" if cleave.device_count() else without_gpu
