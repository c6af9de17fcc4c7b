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
    granularity, dtype = options.pop("out_scale"), options.pop("out_dtype", None)
    form = {"scale_major": options.pop("scale_major", "k"), "use_ue8m0": options.pop("use_ue8m0", False)}
    if dtype is None:
        raise TypeError(f'out_dtype is None beside out_scale="{granularity}"; pass torch.int8 or an 8-bit float')
    if options.get("zero_rest") is False:
        raise ValueError(f'zero_rest is False beside out_scale="{granularity}", which quantises all rows of D; omit it')
    made = multiply(out_dtype=torch.float32 if dtype == torch.int8 else torch.bfloat16, **options)
    d, *others = (made,) if isinstance(made, Tensor) else made
    if d.dim() != 2:
        raise ValueError(f'D is {tuple(d.shape)}, but out_scale="{granularity}" is for products whose D is a matrix')
    q, scale = _quantize(d, dtype, granularity, **form)
    return q, *others, scale
