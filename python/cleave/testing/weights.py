"""Packed weights of a case: random normal values, quantised to nearest."""

from __future__ import annotations

import dataclasses
from typing import Any

from .arrays import Arrays
from .case import GemmCase

_BESIDE = ("scales", "zeros", "global_scale")


def make_weight(arrays: Arrays, case: GemmCase, experts: int, seed: int) -> Any:
    """The PackedWeights of B, of so many experts, or of one matrix if there are none. ValueError for what only other
    operands are served with."""
    import cleave

    if case.out_scale or case.scaling not in (("none", "tensor", "row") if case.quantized else ("none",)):
        raise ValueError(
            'weights are packed: an A of 8 bits may have scaling "tensor" or "row" then, others none, and out_scale is '
            "not served"
        )
    lead = (experts,) if experts else ()
    values = arrays.normal((*lead, case.columns, case.k), "float32", seed)
    scales = {"scale_dtype": "float16" if case.quantized else case.dtype} if case.weights == "int4" else {}
    packed = cleave.pack_weights(values, case.group_size, case.weights, gated=case.activation == "swiglu", **scales)
    made = {name: arrays.contiguous(array) for name, array in _arrays_of(packed, "packed", *_BESIDE).items()}
    if case.zeros:
        made["zeros"] = _zeros(arrays, packed.scales.shape, seed)
    return dataclasses.replace(packed, **made)  # in arrays of the library's own


def beside_codes(packed: Any) -> dict[str, Any]:
    """A plan's arguments of those names."""
    return _arrays_of(packed, *_BESIDE)


def values_of(arrays: Arrays, packed: Any) -> Any:
    """What it stands for, in float64."""
    import cleave

    return arrays.float64(cleave.dequantize_weights(packed))


def _arrays_of(packed: Any, *names: str) -> dict[str, Any]:
    arrays = {name: getattr(packed, name) for name in names}
    return {name: array for name, array in arrays.items() if array is not None}


def _zeros(arrays: Arrays, shape: tuple[int, ...], seed: int) -> Any:
    """Any zero points: what the weight stands for is not what it was made of, then."""
    import numpy

    return arrays.from_numpy(numpy.random.default_rng(seed).integers(0, 16, shape), "uint8")
