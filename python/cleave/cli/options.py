"""The options that say which products a command is about, and the cases they span."""

from __future__ import annotations

import argparse

from . import values
from .case import GemmCase, product

_SIZES_HELP = "sizes: one value, a list (128,256) or a range (1024:8192:1024, 1024:65536:*2)"


def add_gemm_options(parser: argparse.ArgumentParser) -> None:
    """Problem options; every one takes a list, and the command runs over all combinations."""
    group = parser.add_argument_group(
        "problem", "Every option takes a comma-separated list; all combinations are run."
    )
    sizes = values.integers(0)
    group.add_argument("--m", type=sizes, required=True, metavar="SIZES", help=_SIZES_HELP)
    group.add_argument("--n", type=sizes, required=True, metavar="SIZES")
    group.add_argument("--k", type=sizes, required=True, metavar="SIZES")
    group.add_argument("--batch", type=values.integers(1), default=[1], metavar="SIZES")
    group.add_argument(
        "--dtype", type=values.words(values.OPERAND_DTYPES), default=["float16"], metavar="TYPES",
        help="float16 (default), bfloat16, float32 (through tf32), int8, float8_e4m3fn or "
        "float8_e5m2; short: fp16, bf16, fp32, i8, e4m3, e5m2",
    )  # fmt: skip
    group.add_argument(
        "--scaling", type=values.words(values.SCALINGS), default=["none"], metavar="NAMES",
        help="what a scale of 8-bit operands serves: tensor, row (of A; column of B), block_1x128, "
        "block_128x128 (of B; 1x128 of A) or none (default)",
    )  # fmt: skip
    group.add_argument(
        "--use-fast-accum", type=values.words(values.FLAGS), default=[False], metavar="FLAGS",
        help="yes: sums of 8-bit floats stay in the tensor cores; no (default)",
    )  # fmt: skip
    group.add_argument(
        "--layout", type=values.words(values.LAYOUTS), default=["tn"], metavar="LAYOUTS",
        help="A's letter, then B's, as BLAS names them; tn (default): K is the unit stride of both",
    )  # fmt: skip
    group.add_argument(
        "--out-dtype",
        type=values.words(values.DTYPES),
        default=[None],
        metavar="TYPES",
        help="default: the operands' type; bfloat16 for 8-bit ones, int32 for int8 without scales",
    )
    group.add_argument(
        "--activation", type=values.words(values.ACTIVATIONS), default=["none"], metavar="NAMES",
        help=", ".join(values.ACTIVATIONS),
    )  # fmt: skip
    group.add_argument(
        "--bias",
        type=values.words(values.BIASES),
        default=["none"],
        metavar="SHAPES",
        help=", ".join(values.BIASES),
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
    names = (
        "m", "n", "k", "batch", "dtype", "scaling", "use_fast_accum", "layout", "out_dtype",
        "activation", "bias", "split_k_mode", "split_k_slices",
    )  # fmt: skip
    return list(product({name: getattr(arguments, name) for name in names}))


def default_device(without_gpu: str) -> str:
    """The first GPU if there is one."""
    import cleave

    return "cuda:0" if cleave.device_count() else without_gpu
