"""The options that the functions of `products` hand on to operators."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

_quantize = torch.ops.cleave.quantize
_APART = ("row", "tensor", "block_128x128")  # scales that a kernel of their own finds


def names_of(operator: Any, but: Iterable[str]) -> dict[str, None]:
    """The arguments of all its forms that return something, in their order."""
    forms = [getattr(operator, overload) for overload in operator.overloads() if overload != "out"]
    names = [argument.name for form in forms for argument in form._schema.arguments]
    return dict.fromkeys(name for name in names if name not in but)


def settled(function: str, options: dict[str, Any], known: dict[str, None]) -> dict[str, Any]:
    """A copy, with torch's dtype for a name of it. What no operator has is refused, which torch would do in the words
    of all of its forms, and what would be without effect."""
    for name in options:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            meant = f". Did you mean {near[0]!r}?" if near else f"; it has {', '.join(known)}"
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}{meant}")
    options = dict(options)
    if isinstance(options.get("out_dtype"), str):
        options["out_dtype"] = _dtype_of(options["out_dtype"])
    if options.get("out_scale") is None:
        options.pop("out_scale", None)
        for name, usual in (("scale_major", "k"), ("use_ue8m0", False)):
            if options.pop(name, usual) != usual:
                raise ValueError(f"{name} is given, but no scales are found; pass out_scale, or leave {name} out")
    return options


def _dtype_of(name: str) -> torch.dtype:
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise TypeError(f"out_dtype is {name!r}; it must be a dtype of torch's, or its name, such as 'float16'")
    return dtype


def apart(options: dict[str, Any]) -> bool:
    """Whether D is quantised by an operator of its own."""
    return options.get("out_scale") in _APART


def quantised(multiply: Callable[..., Any], options: dict[str, Any]) -> tuple[Tensor, ...]:
    """D and its scales by two operators, with the bits of `cleave.gemm`'s kernels; what a function makes beside D lies
    between."""
    granularity, scale_major = options["out_scale"], options.pop("scale_major", "k")
    if options.get("zero_rest") is False:
        raise ValueError(f'zero_rest is False beside out_scale="{granularity}", which quantises all rows of D; omit it')

    def quantise(d: Tensor, **form: Any) -> tuple[Tensor, Tensor]:
        if d.dim() != 2:
            raise ValueError(
                f'D is {tuple(d.shape)}, but out_scale="{granularity}" is for products whose D is a matrix'
            )
        return _quantize(d, scale_major=scale_major, **form)

    return _in_two_steps(multiply, quantise, options)


def quantised_pixels(convolve: Callable[..., Any], options: dict[str, Any]) -> tuple[Tensor, ...]:
    """The same of a convolution, whose pixels are rows."""
    granularity = options["out_scale"]
    if granularity not in ("row", "tensor", "block_1x128"):
        raise ValueError(f"out_scale is {granularity!r}; of a convolution it must be 'block_1x128', 'row' or 'tensor'")

    def quantise(y: Tensor, **form: Any) -> tuple[Tensor, Tensor]:
        pixels = y.movedim(1, -1)
        q, scale = _quantize(pixels.flatten(0, -2), **form)
        ones = [1] * (y.dim() - 1) if granularity == "tensor" else pixels.shape[:-1]
        return q.view(pixels.shape).movedim(-1, 1), scale.view(*ones, -1).movedim(-1, 1)

    return _in_two_steps(convolve, quantise, options)


def _in_two_steps(
    multiply: Callable[..., Any], quantise: Callable[..., tuple[Tensor, Tensor]], options: dict[str, Any]
) -> tuple[Tensor, ...]:
    granularity, dtype = options.pop("out_scale"), options.pop("out_dtype", None)
    use_ue8m0 = options.pop("use_ue8m0", False)
    if dtype is None:
        raise TypeError(f'out_dtype is None beside out_scale="{granularity}"; pass torch.int8 or an 8-bit float')
    wide = dtype == torch.int8 or granularity == "block_1x128"
    made = multiply(out_dtype=torch.float32 if wide else torch.bfloat16, **options)
    d, *others = (made,) if isinstance(made, Tensor) else made
    q, scale = quantise(d, dtype=dtype, granularity=granularity, use_ue8m0=use_ue8m0)
    return q, *others, scale
