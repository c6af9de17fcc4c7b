"""What the operators return, without computing it: for torch.compile, meta tensors and export."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from . import _negated

_BLOCK = 128  # elements that share a scale, along each dimension that has blocks


def register() -> None:
    declare(
        {
            "gemm": _gemm,
            "scaled_gemm": _scaled_gemm,
            "scaled_gemm.full": _scaled_gemm,
            "grouped_gemm": _grouped_gemm,
            "grouped_gemm.full": _grouped_gemm,
            "quantize": _quantize,
            "quantize_asymmetric": _quantize_asymmetric,
            "quantize_static": _quantize_static,
            "quantize_grouped": _quantize_grouped,
            "moe_expert_offsets": _moe_expert_offsets,
            "moe_sort_tokens": _moe_sort_tokens,
            "moe_permute": _moe_permute,
            "moe_gather": _moe_gather,
            "moe_unpermute": _moe_unpermute,
            "moe_unpermute_backward": _moe_unpermute_backward,
        }
    )


# For arguments that only an overload has.
_ELSE = {"activation": "none", "out_dtype": None, "indptr": None, "starts": None, "counts": None}


def declare(results: Mapping[str, Callable[[Any], Any]]) -> None:
    """By the operators' names, from arguments that have theirs; of their `out` forms as well."""
    for name, result in results.items():
        operator, _, overload = name.partition(".")
        schema = getattr(getattr(torch.ops.cleave, operator), overload or "default")._schema
        torch.library.register_fake(f"cleave::{name}", _with_names(schema, result))
    for name in dict.fromkeys(name.partition(".")[0] for name in results):
        overloads = getattr(torch.ops.cleave, name)
        if hasattr(overloads, "out"):
            torch.library.register_fake(f"cleave::{name}.out", _nothing)
            _negated.refuse(overloads.out)


def _with_names(schema: Any, result: Callable[[Any], Any]) -> Callable[..., Any]:
    names = [argument.name for argument in schema.arguments]
    given = {a.name: a.default_value for a in schema.arguments if a.has_default_value()}

    def fake(*arguments: Any, **keywords: Any) -> Any:
        by_position = dict(zip(names, arguments, strict=False))
        return result(SimpleNamespace(**_ELSE | given | by_position | keywords))

    return fake


def _nothing(*_: Any, **__: Any) -> None:
    """All that an `out` form does is write."""


def _gemm(call: Any) -> Tensor:
    return _product(call.a, call.b, call.out_dtype or default_dtype(call.a), call.activation)


def _scaled_gemm(call: Any) -> Tensor:
    dtype = call.out_dtype or default_dtype(call.a, call.scale_a)
    return _product(call.a, call.b, dtype, call.activation)


def _grouped_gemm(call: Any) -> Tensor:
    a, b = call.a, call.b
    dtype = call.out_dtype or default_dtype(a, call.scale_a)
    if a.dim() == b.dim() == 3:
        return _product(a, b, dtype, call.activation)
    _check_operands(a, b)
    shape = (a.shape[-2], _columns(b, call.activation))
    if a.dim() == b.dim():
        shape = (_group_count(call.offs, call.indptr, call.starts, call.counts), *shape)
    return a.new_empty(shape, dtype=dtype)


def _group_count(offs: Tensor | None, indptr: Tensor | None, starts: Tensor | None, counts: Tensor | None) -> Any:
    if indptr is not None:
        return indptr.shape[0] - 1
    given = [bounds for bounds in (offs, starts, counts) if bounds is not None]
    torch._check(bool(given), lambda: "a and b are matrices; pass offs, to say where groups end")
    return given[0].shape[0]


def _product(a: Tensor, b: Tensor, dtype: torch.dtype, activation: str) -> Tensor:
    _check_operands(a, b)
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return a.new_empty((*batch, a.shape[-2], _columns(b, activation)), dtype=dtype)


def _check_operands(a: Tensor, b: Tensor) -> None:
    def refusal() -> str:
        return f"a is {tuple(a.shape)} and b is {tuple(b.shape)}; they cannot be multiplied"

    torch._check(a.dim() in (2, 3) and b.dim() in (2, 3), refusal)
    torch._check(a.shape[-1] == b.shape[-2], refusal)


def _columns(b: Tensor, activation: str) -> Any:
    return b.shape[-1] // 2 if activation == "swiglu" else b.shape[-1]


def default_dtype(a: Tensor, scale: Tensor | None = None) -> torch.dtype:
    if a.itemsize > 1:
        return a.dtype
    return torch.int32 if a.dtype == torch.int8 and scale is None else torch.bfloat16


def _quantize(call: Any) -> tuple[Tensor, Tensor]:
    return _quantized(call.x, call.dtype, call.granularity, call.scale_major)


def _quantized(x: Tensor, dtype: torch.dtype, granularity: str, scale_major: str = "k") -> tuple[Tensor, Tensor]:
    rows, cols = _scale_shape(x, granularity)
    if scale_major == "mn":
        scale = x.new_empty((cols, rows), dtype=torch.float32).t()
    else:
        scale = x.new_empty((rows, cols), dtype=torch.float32)
    return _packed(x, dtype), scale


def _quantize_asymmetric(call: Any) -> tuple[Tensor, Tensor, Tensor]:
    q, scale = _quantized(call.x, torch.int8, call.granularity)
    return q, scale, torch.empty_like(scale, dtype=torch.int32)


def _quantize_static(call: Any) -> Tensor:
    return _packed(call.x, call.dtype)


def _quantize_grouped(call: Any) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    x, offs = call.x, call.offs
    q, scale = _quantized(x, call.dtype, "block_1x128", call.scale_major)
    (rows, cols), groups = x.shape, offs.shape[0]
    blocks = (rows + (_BLOCK - 1) * torch.sym_min(groups, rows)) // _BLOCK
    scale_t = x.new_empty((blocks, cols), dtype=torch.float32).t()
    q_t = x.new_empty((cols, blocks * _BLOCK), dtype=call.dtype)
    return q, scale, q_t, scale_t, offs.new_empty(groups, dtype=torch.int32)


def _moe_expert_offsets(call: Any) -> Tensor:
    return call.expert_ids.new_empty(call.num_experts, dtype=torch.int32)


def _moe_sort_tokens(call: Any) -> tuple[Tensor, Tensor]:
    indices = call.expert_ids.new_empty(call.expert_ids.numel(), dtype=torch.int32)
    return _moe_expert_offsets(call), indices


def _moe_permute(call: Any) -> tuple[Tensor, Tensor, Tensor]:
    rows = call.x.new_empty(call.expert_ids.numel(), call.x.shape[1])
    return rows, *_moe_sort_tokens(call)


def _moe_gather(call: Any) -> Tensor:
    return call.x.new_empty(call.indices.shape[0], call.x.shape[1])


def _moe_unpermute(call: Any) -> Tensor:
    y, weights = call.y, call.weights
    tokens = y.shape[0] // (call.top_k or 1) if weights is None else weights.shape[0]
    return y.new_empty(tokens, y.shape[1])


def _moe_unpermute_backward(call: Any) -> tuple[Tensor, Tensor]:
    return call.y.new_empty(call.y.shape), call.weights.new_empty(call.weights.shape)


def _packed(x: Tensor, dtype: torch.dtype) -> Tensor:
    torch._check(x.dim() == 2, lambda: f"x has {x.dim()} dimensions; it must have 2")
    return x.new_empty(x.shape, dtype=dtype)


def _scale_shape(x: Tensor, granularity: str) -> tuple[Any, Any]:
    rows, cols = x.shape
    if granularity == "tensor":
        return 1, 1
    if granularity == "row":
        return rows, 1
    blocks = (cols + _BLOCK - 1) // _BLOCK
    return (rows if granularity == "block_1x128" else (rows + _BLOCK - 1) // _BLOCK), blocks
