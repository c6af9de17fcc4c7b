"""cleave.gemm, scaled_gemm, grouped_gemm and mixed_gemm for torch's autograd and torch.compile."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from .._core import activations
from .._epilogue import BoundEpilogue, Epilogue
from .._weights.packed import PackedWeights
from .._weights.product import arguments_of, check
from ._operators.epilogue import ARGUMENTS, arguments, named, results
from ._product_options import apart, names_of, quantised, settled

_gemm = torch.ops.cleave.gemm
_scaled_gemm = torch.ops.cleave.scaled_gemm
_grouped_gemm = torch.ops.cleave.grouped_gemm
_mixed_gemm = torch.ops.cleave.mixed_gemm
_mixed_grouped_gemm = torch.ops.cleave.mixed_grouped_gemm

_OF_GEMM, _OF_SCALED, _OF_GROUPED = (names_of(each, ARGUMENTS) for each in (_gemm, _scaled_gemm, _grouped_gemm))
_OF_WEIGHTS = (*ARGUMENTS, "packed", "scales", "zeros", "global_scale", "out_features", "group_size", "format")
_OF_MIXED = names_of(_mixed_gemm, _OF_WEIGHTS) | names_of(_mixed_grouped_gemm, _OF_WEIGHTS)
_OF_MIXED |= dict.fromkeys(("out_scale", "scale_major", "use_ue8m0"))


def gemm(
    a: Tensor,
    b: Tensor,
    *,
    bias: Tensor | None = None,
    c: Tensor | None = None,
    epilogue: BoundEpilogue | Epilogue | None = None,
    **options: Any,
) -> Tensor | tuple[Tensor, ...]:
    """`cleave.gemm` as a torch operator: with gradients, and under torch.compile(fullgraph=True).

    With an epilogue function, a, b, bias, c and the function's tensors have gradients; numbers have none. The
    derivative is derived from the function, or is its `Epilogue.backward`. Gradients of scalars, rows and columns
    are summed over the elements that they were broadcast to.

    If the derivative reads the sum, backward runs the product again with the derivative as its epilogue. Per element of
    D that takes memory for the gradient of the sum and of up to two further inputs, in a's type (a matrix's in its
    own), or, with more inputs, for the sum in float32. If another output (`pre`) is enough, or the sum is not read,
    torch computes the derivative without the product, and such an output is kept for it.

    Casts pass gradients on, comparisons have none, and equal arguments of `minimum` and `maximum` get half each.

    Args:
        a, b: [M, K] and [K, N], or batches of them.
        bias, c, epilogue: as in `cleave.gemm`. Inputs that are tensors are on a's device.
        options: alpha, beta, activation, out_dtype, split_k_mode, split_k_slices: as in torch.ops.cleave.gemm.
            out_scale, scale_major, use_ue8m0: as in `cleave.gemm`, without gradients, and beside an epilogue function
            all but "block_1x128".

    Returns:
        A new D, a tuple of the function's outputs, or D and its scales. As repeatable, and as safe in CUDA graphs, as
        `cleave.gemm`.

    Raises:
        TypeError: an option that there is none of. RuntimeError: what `cleave.gemm` raises as ValueError or TypeError.
    """
    options = settled("gemm", options, _OF_GEMM)
    if apart(options):
        return quantised(partial(gemm, a, b, bias=bias, c=c, epilogue=epilogue), options)
    if epilogue is None:
        return (_gemm.quantized if "out_scale" in options else _gemm)(a, b, bias, c, **options)
    return results(_gemm.epilogue(a, b, *arguments(epilogue, options), bias, c, **options))


def scaled_gemm(
    a: Tensor,
    b: Tensor,
    scale_a: Tensor | None,
    scale_b: Tensor | None,
    *,
    bias: Tensor | None = None,
    epilogue: BoundEpilogue | Epilogue | None = None,
    **options: Any,
) -> Tensor | tuple[Tensor, ...]:
    """`cleave.scaled_gemm` as a torch operator: under torch.compile(fullgraph=True), with gradients in its epilogue.

    The tensors of an epilogue function, and bias and c beside one, have gradients; 8-bit operands and their scales have
    none. Otherwise as `gemm` here.

    Args:
        a, b, scale_a, scale_b, bias, epilogue: as in `cleave.scaled_gemm`.
        options: c, alpha, beta, activation, out_dtype, use_fast_accum, scale_d, azp, azp_adj, split_k_mode,
            split_k_slices: as in torch.ops.cleave.scaled_gemm. out_scale, scale_major, use_ue8m0: as in `gemm` here.

    Returns:
        A new D, a tuple of the function's outputs, or D and its scales.

    Raises:
        RuntimeError: what `cleave.scaled_gemm` raises as ValueError or TypeError; a tensor that requires grad but has
            no gradient here.
    """
    options = settled("scaled_gemm", options, _OF_SCALED)
    if apart(options):
        return quantised(partial(scaled_gemm, a, b, scale_a, scale_b, bias=bias, epilogue=epilogue), options)
    if epilogue is None:
        operator = _scaled_gemm.quantized if "out_scale" in options else _scaled_gemm
        return operator(a, b, scale_a, scale_b, bias, **options)
    function = arguments(epilogue, options)
    return results(_scaled_gemm.epilogue(a, b, scale_a, scale_b, *function, bias, **options))


def grouped_gemm(
    a: Tensor,
    b: Tensor,
    offs: Tensor | None = None,
    *,
    bias: Tensor | None = None,
    epilogue: BoundEpilogue | Epilogue | None = None,
    **options: Any,
) -> Tensor | tuple[Tensor, ...]:
    """`cleave.grouped_gemm` as a torch operator: with gradients, and under torch.compile(fullgraph=True).

    With an epilogue function a, b, bias and the function's tensors have gradients; values that differ from group to
    group get sums over the group's rows. Backward runs the product again with the derivative as its epilogue, once for
    every three gradients, since only the GPU knows where groups are. What belongs to no group gets no
    gradient and contributes to none.

    Args:
        a, b, offs, bias, epilogue: as in `cleave.grouped_gemm`.
        options: scale_a, scale_b, use_fast_accum, c, indptr, starts, sizes, counts, alignment, alpha, beta,
            activation, out_dtype, zero_rest, split_k_mode, split_k_slices: as in torch.ops.cleave.grouped_gemm.
            gather, top_k: as in `cleave.grouped_gemm`, without an epilogue function and gradients. out_scale,
            scale_major, use_ue8m0: as in `gemm` here.

    Returns:
        A new D, or the tuple of the function's outputs, or D and its scales.

    Raises:
        RuntimeError: what `cleave.grouped_gemm` raises as ValueError or TypeError; c that requires grad.
    """
    options = settled("grouped_gemm", options, _OF_GROUPED)
    shared_scales = options.get("out_scale") is not None and a.dim() == 3 and b.dim() == 2  # by groups of columns
    if apart(options) or shared_scales:
        return quantised(partial(grouped_gemm, a, b, offs, bias=bias, epilogue=epilogue), options)
    if epilogue is None:
        return (_grouped_gemm.quantized if "out_scale" in options else _grouped_gemm)(a, b, offs, bias, **options)
    return results(_grouped_gemm.epilogue(a, b, offs, *arguments(epilogue, options), bias, **options))


def mixed_gemm(
    a: Tensor,
    weights: PackedWeights,
    *,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    epilogue: BoundEpilogue | Epilogue | None = None,
    **options: Any,
) -> Tensor | tuple[Tensor, ...]:
    """`cleave.mixed_gemm` by torch.ops.cleave: under torch.compile(fullgraph=True), with gradients, but not of weights.

    a, bias, c (without offs) and a function's tensors have gradients, as in `grouped_gemm` and `gemm` here; that of a
    multiplies the whole weight, which is dequantised for it. Gates of packed weights have none for a.

    Args:
        a, weights, offs, bias, epilogue: as in `cleave.mixed_gemm`, weights of tensors.
        options: out_dtype, scale_a; with an epilogue function, or without offs, also c, alpha, beta, split_k_mode,
            split_k_slices; without offs also activation, static_b: as in torch.ops.cleave.mixed_gemm. out_scale,
            scale_major, use_ue8m0: as in `cleave.mixed_gemm`.

    Returns:
        A new D, or the tuple of the function's outputs, or D and its scales. As repeatable, and as safe in CUDA
        graphs, as `cleave.mixed_gemm`.

    Raises:
        TypeError, ValueError: weights that is no `PackedWeights`, or has other columns than a.
        RuntimeError: what else `cleave.mixed_gemm` raises; another tensor that requires grad, with gradients on.
    """
    options = settled("mixed_gemm", options, _OF_MIXED)
    check(a, weights, options.get("activation", "none"), epilogue, offs=offs)
    if options.get("out_scale") is not None:
        return quantised(partial(mixed_gemm, a, weights, offs=offs, bias=bias, epilogue=epilogue), options)
    if weights.perm is not None:
        a = a[..., weights.perm]
    operator, groups = (_mixed_gemm, {}) if offs is None else (_mixed_grouped_gemm, {"offs": offs})
    given = arguments_of(weights) | groups | {"bias": bias}
    tracked = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in (a, bias, options.get("c")))
    if epilogue is not None:
        function = dict(zip(ARGUMENTS, arguments(epilogue, options), strict=True))
    elif tracked:  # the same product by the operators that have gradients
        activation, texts = options.pop("activation", "none"), {"none": "d = acc\n"} | activations
        if activation not in texts:
            raise ValueError(f"activation is {activation!r}; it must be one of {', '.join(texts)}")
        function = named(texts[activation], ())
    else:
        return operator(a, **given, **options)
    return results(operator.epilogue(a, **given, **function, **options))
