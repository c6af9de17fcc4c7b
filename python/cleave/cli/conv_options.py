"""The options that say which convolutions a command is about, and the cases they span."""

from __future__ import annotations

import argparse

from ..testing.case import product
from ..testing.conv_case import KINDS, ConvCase
from . import values
from .options import (
    RESULT_OPTIONS,
    add_dtype_option,
    add_precision_option,
    add_result_options,
    chosen,
    problem_group,
)

_DTYPES = {spelling: name for spelling, name in values.OPERAND_DTYPES.items() if not name.startswith("float8")}
_ACTIVATIONS = tuple(name for name in values.ACTIVATIONS if name != "swiglu")
_GEOMETRY = (
    "images", "size", "channels", "filters", "filter_size", "stride", "padding", "dilation",
    "groups", "kind",
)  # fmt: skip


def add_conv_options(parser: argparse.ArgumentParser) -> None:
    """Problem options; every one takes a list, and the command runs over all combinations."""
    group = problem_group(parser)
    counts = values.integers(1)
    group.add_argument("--images", type=values.integers(0), default=[1], metavar="COUNTS")
    group.add_argument(
        "--size", type=values.extents(1), required=True, metavar="EXTENTS",
        help="of an image: 56x56 (height x width), 16x56x56 (depth first) or 1000 (a line)",
    )  # fmt: skip
    group.add_argument("--channels", type=counts, required=True, metavar="COUNTS", help="of the input")
    group.add_argument("--filters", type=counts, required=True, metavar="COUNTS", help="channels of the output")
    group.add_argument(
        "--filter-size", type=values.extents(1), required=True, metavar="EXTENTS",
        help="3 along every axis, or 3x5; so are stride, padding and dilation",
    )  # fmt: skip
    group.add_argument("--stride", type=values.extents(1), default=[1], metavar="EXTENTS")
    group.add_argument(
        "--padding", type=values.paddings, default=[0], metavar="EXTENTS",
        help="0-1x0-1: no zeros above and left of the image, one below and right of it",
    )  # fmt: skip
    group.add_argument("--dilation", type=values.extents(1), default=[1], metavar="EXTENTS")
    group.add_argument("--groups", type=counts, default=[1], metavar="COUNTS")
    group.add_argument(
        "--kind", type=values.words(KINDS), default=["fprop"], metavar="KINDS",
        help="fprop (default): the outputs; dgrad: the images' gradient; wgrad: the filters'",
    )  # fmt: skip
    add_dtype_option(group, _DTYPES, "float32, or int8")
    add_precision_option(group)
    group.add_argument(
        "--division", type=values.words(values.DIVISIONS), default=["auto"], metavar="NAMES",
        help=f"how kernels divide pixel numbers: {', '.join(values.DIVISIONS)}",
    )  # fmt: skip
    group.add_argument(
        "--kernel", type=values.words(values.KERNELS), default=["auto"], metavar="NAMES",
        help=", ".join(values.KERNELS),
    )  # fmt: skip
    add_result_options(group, _ACTIVATIONS, values.GROUP_BIASES)


def conv_cases(arguments: argparse.Namespace) -> list[ConvCase]:
    """All combinations, the slice count varying fastest."""
    options = chosen(arguments, *_GEOMETRY, "dtype", "precision", "division", "kernel", *RESULT_OPTIONS)
    options["size"] = [size if isinstance(size, tuple) else (size,) for size in arguments.size]
    return list(product(ConvCase, options))
