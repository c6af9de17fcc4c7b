"""The options that say which problems a command is about: the fields of an operation's cases, with their values on the
command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .._epilogue.activations import GATED
from ..testing.conv_case import KINDS, SCALINGS
from ..testing.grouped_case import FORMS
from . import values

REQUIRED = object()


@dataclass(frozen=True)
class Option:
    """One field of a case, for which the command line has a list of values."""

    parse: Callable[[str], list[Any]]
    metavar: str
    default: Any = REQUIRED
    help: str | None = None


def _names(
    allowed: Sequence[str] | Mapping[str, Any], default: Any, metavar: str = "NAMES", help: str | None = None
) -> Option:
    return Option(values.words(allowed), metavar, [default], help or ", ".join(allowed))


def _dtype(allowed: Mapping[str, str]) -> Option:
    short = ", ".join(spelling for spelling, name in allowed.items() if spelling != name)
    first, *others, last = dict.fromkeys(allowed.values())
    return _names(allowed, first, "TYPES", f"{first} (default), {', '.join(others)} or {last}; short: {short}")


def _scaled(scalings: Sequence[str], served: str) -> dict[str, Option]:
    return {
        "scaling": _names(
            scalings,
            "none",
            help=f"what shares a scale of 8-bit operands: {', '.join(scalings)}; {served}; default none",
        ),
        "use_fast_accum": _names(
            values.FLAGS, False, "FLAGS", "yes: sums of 8-bit floats stay in the tensor cores; no (default)"
        ),
    }


# Scales of D that the product computes.
_FOUND = {
    "out_scale": _names(
        values.OUT_SCALES, None, help="block_1x128: the product computes the scales of an 8-bit D; default none"
    ),
    "scale_major": _names(
        values.SCALE_MAJORS,
        "k",
        "ORDERS",
        "memory order of those scales: k (default), or mn: the rows of a column are neighbours",
    ),
    "use_ue8m0": _names(values.FLAGS, False, "FLAGS", "yes: round those scales up to powers of two; no (default)"),
}

# B as a packed weight.
_WEIGHTS = {
    "weights": _names(values.WEIGHTS, "none", help="B in 4 bits: int4, mxfp4 or nvfp4; default none"),
    "group_size": Option(
        values.weight_groups,
        "COUNTS",
        [None],
        "columns of a 4-bit B that share a scale: counts, rows or auto (default)",
    ),
    "zeros": _names(values.FLAGS, False, "FLAGS", "yes: groups of an int4 B have zero points; no (default)"),
}

# What products, but not convolutions, may ask of their kernels.
_KERNELS = {
    "deterministic": _names(
        values.DETERMINISMS,
        True,
        "KINDS",
        "yes (default): the same bits in every run; batch_invariant: a row of D also has the same bits in every batch",
    ),
    "sum_order": _names(
        values.SUM_ORDERS,
        None,
        "ORDERS",
        "k: K is not split, so that D's bits follow from neither M nor N; default none",
    ),
    "kernel": _names(values.KERNELS, "auto"),
}


def _result(activations: Sequence[str], biases: Sequence[str]) -> dict[str, Option]:
    """What is done with the sums, and how K is split."""
    return {
        "out_dtype": _names(
            values.DTYPES,
            None,
            "TYPES",
            "default: the operands' type; bfloat16 for 8-bit ones, int32 for int8 without scales",
        ),
        "activation": _names(activations, "none"),
        "bias": _names(biases, "none", "SHAPES"),
        "split_k_mode": _names(values.SPLIT_K_MODES, "auto", "MODES"),
        "split_k_slices": Option(values.slices, "COUNTS", [None], "counts, or auto (default)"),
    }


_SERVED = "rows are A's, columns B's; block_128x128 has blocks of 1x128 in A"
_LETTERS = "A's letter, then B's, as BLAS names them"
_PRECISION = _names(
    values.PRECISIONS,
    "tf32",
    help="how a GPU multiplies float32: tf32 (default), rounded; ieee, as it is; tf32x3 or bf16x3, in two parts",
)
_COUNTS, _SIZES, _EXTENTS = values.integers(1), values.integers(0), values.extents(1)

GEMM = {
    "m": Option(_SIZES, "SIZES", help="sizes: one value, a list (128,256) or a range (1024:8192:1024, 1024:65536:*2)"),
    "n": Option(_SIZES, "SIZES"),
    "k": Option(_SIZES, "SIZES"),
    "batch": Option(_COUNTS, "SIZES", [1]),
    "layout": _names(values.LAYOUTS, "tn", "LAYOUTS", f"{_LETTERS}; tn (default): K is the unit stride of both"),
    "dtype": _dtype(values.OPERAND_DTYPES),
    "precision": _PRECISION,
    **_scaled(values.SCALINGS, _SERVED),
    **_FOUND,
    **_KERNELS,
    "static_b": _names(
        values.FLAGS, False, "FLAGS", "yes: no running work writes B, so kernels may load it early; no (default)"
    ),
    **_WEIGHTS,
    **_result(values.ACTIVATIONS, values.BIASES),
}

GROUPED = {
    "sizes": Option(
        values.group_sizes,
        "SIZES",
        ["uniform"],
        "the tokens of each group: 10,20,30 or @FILE with such numbers; or how --tokens are "
        "spread over --groups: uniform (default), varied (0.7 to 1.3 of the mean), zipf",
    ),
    "groups": Option(_COUNTS, "COUNTS", None, "default: 8, or as in --sizes"),
    "tokens": Option(_SIZES, "SIZES", None, "tokens of all groups together; default: 4096, or as in --sizes"),
    "n": Option(_SIZES, "SIZES", help="the layer's output features"),
    "k": Option(_SIZES, "SIZES", help="the layer's input features"),
    "form": _names(FORMS, "forward", "FORMS", "forward (default): x @ W.T; dgrad: dy @ W; wgrad: dy.T @ x"),
    "layout": _names(values.LAYOUTS, None, "LAYOUTS", f"{_LETTERS}; default: that of the form, tn for 8-bit operands"),
    "alignment": Option(
        _COUNTS, "COUNTS", [None], "groups begin at multiples of it; default: 128 where scales run along tokens, else 1"
    ),
    "dtype": _dtype(values.OPERAND_DTYPES),
    "precision": _PRECISION,
    **_scaled(values.GROUP_SCALINGS, _SERVED),
    **_FOUND,
    **_KERNELS,
    **_WEIGHTS,
    **_result(values.ACTIVATIONS, values.GROUP_BIASES),
}

CONV = {
    "images": Option(_SIZES, "COUNTS", [1]),
    "size": Option(
        _EXTENTS, "EXTENTS", help="the size of an image: 56x56 (height x width), 16x56x56 (depth first), 1000 (a line)"
    ),
    "channels": Option(_COUNTS, "COUNTS", help="channels of the input"),
    "filters": Option(_COUNTS, "COUNTS", help="channels of the output"),
    "filter_size": Option(
        _EXTENTS, "EXTENTS", help="3 along every axis, or 3x5; the same for stride, padding and dilation"
    ),
    "stride": Option(_EXTENTS, "EXTENTS", [1]),
    "padding": Option(
        values.paddings, "EXTENTS", [0], "0-1x0-1: no zeros above and left of the image, one below and right of it"
    ),
    "dilation": Option(_EXTENTS, "EXTENTS", [1]),
    "groups": Option(_COUNTS, "COUNTS", [1]),
    "kind": _names(
        KINDS, "fprop", "KINDS", "fprop (default): the outputs; dgrad: the images' gradient; wgrad: the filters'"
    ),
    "dtype": _dtype(values.OPERAND_DTYPES),
    "precision": _PRECISION,
    **_scaled(SCALINGS, "a row is a filter"),
    "division": _names(
        values.DIVISIONS, "auto", help=f"how kernels divide pixel numbers: {', '.join(values.DIVISIONS)}"
    ),
    "kernel": _names(values.KERNELS, "auto"),
    **_result([name for name in values.ACTIVATIONS if name not in GATED], values.GROUP_BIASES),
}

ROUTE = {
    "tokens": Option(_SIZES, "COUNTS"),
    "experts": Option(_COUNTS, "COUNTS"),
    "top_k": Option(_COUNTS, "COUNTS", help="experts of each token"),
    "dtype": _names(values.FLOAT_DTYPES, "float32", "TYPES", "of the logits; default float32"),
    "scoring_func": _names(values.SCORING_FUNCS, "softmax"),
    "n_group": Option(_COUNTS, "COUNTS", [1], "groups of neighbouring experts; default 1"),
    "topk_group": Option(_COUNTS, "COUNTS", [None], "groups whose experts may be chosen; default: all"),
    "bias": _names(values.FLAGS, False, "FLAGS", "yes: experts have a bias, which affects the choice; no (default)"),
}

ROUTER_LOGITS = {
    "tokens": Option(_SIZES, "COUNTS"),
    "experts": Option(_COUNTS, "COUNTS"),
    "features": Option(_SIZES, "SIZES"),
    "dtype": _names(values.FLOAT_DTYPES, "bfloat16", "TYPES", "of the tokens; default bfloat16"),
    "weight_dtype": _names(values.FLOAT_DTYPES, "float32", "TYPES", "of the weight; default float32"),
    "static_weight": _names(
        values.FLAGS, False, "FLAGS", "yes: no running work writes the weight, which may load early; no (default)"
    ),
}

LORA = {
    "rows": Option(_SIZES, "COUNTS", help="of all adapters together"),
    "features": Option(_SIZES, "SIZES"),
    "outputs": Option(_SIZES, "SIZES"),
    "rank": Option(_COUNTS, "RANKS", [16], "up to 64; default 16"),
    "adapters": Option(_COUNTS, "COUNTS", [8], "default 8"),
    "sizes": _names(values.SPREADS, "uniform", help="how rows are spread over adapters; default uniform"),
    "dtype": _names(values.LORA_DTYPES, "bfloat16", "TYPES"),
}
