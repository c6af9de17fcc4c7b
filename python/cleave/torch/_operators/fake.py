"""What the operators return, without computing it: for torch.compile, meta tensors and export."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from ..._epilogue.activations import GATED
from ..._epilogue.graph import parse
from . import negated
from .epilogue import outputs

_BLOCK = 128  # elements that share a scale, along each dimension that has blocks
# For arguments that only an overload has.
_ELSE = {"activation": "none", "epilogue": None, "out_dtype": None, "out_scale": None, "indptr": None, "starts": None,
         "counts": None, "gather": None, "residual": None}  # fmt: skip


def declare(results: Mapping[str, Callable[[Any], Any]]) -> None:
    """By the operators' names, from arguments that have theirs; of all their forms."""
    for name, result in results.items():
        operator = getattr(torch.ops.cleave, name)
        for overload in operator.overloads():
            form = getattr(operator, overload)
            torch.library.register_fake(form, _nothing if overload == "out" else _with_names(form._schema, result))
            if overload == "out":
                negated.refuse(form)


def _with_names(schema: Any, result: Callable[[Any], Any]) -> Callable[..., Any]:
    names = [argument.name for argument in schema.arguments]
    given = {a.name: a.default_value for a in schema.arguments if a.has_default_value()}

    def fake(*arguments: Any, **keywords: Any) -> Any:
        named = dict(zip(names, arguments, strict=False)) | keywords
        check_devices(named)
        return result(SimpleNamespace(**_ELSE | given | named))

    return fake


def check_devices(arguments: Mapping[str, Any]) -> None:
    """Raises where some tensors are on the meta device and some are not: torch sends such calls here, too."""
    devices = {name: x.device for name, x in arguments.items() if isinstance(x, Tensor)}
    first = next(iter(devices), "")
    for name, device in devices.items():
        if "meta" in (device.type, devices[first].type) and device != devices[first]:
            raise ValueError(f"{first} is on {devices[first]} and {name} on {device}; move one of them")


def _nothing(*_: Any, **__: Any) -> None:
    """All that an `out` form does is write."""


def _grouped_gemm(call: Any, dtype: torch.dtype) -> Tensor:
    a, b = call.a, call.b
    if a.dim() == b.dim() == 3:
        return _product(call, dtype)
    _check_operands(a, b)
    rows = a.shape[-2] if call.gather is None else call.gather.shape[0]
    shape = (rows, _columns(call))
    if a.dim() == b.dim():
        shape = (_group_count(call), *shape)
    return a.new_empty(shape, dtype=dtype)


def _group_count(call: Any) -> Any:
    if call.indptr is not None:
        return call.indptr.shape[0] - 1
    given = [bounds for bounds in (call.offs, call.starts, call.counts) if bounds is not None]
    torch._check(bool(given), lambda: "a and b are matrices; pass offs, to say where groups end")
    return given[0].shape[0]


def _product(call: Any, dtype: torch.dtype) -> Tensor:
    a, b = call.a, call.b
    _check_operands(a, b)
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return a.new_empty((*batch, a.shape[-2], _columns(call)), dtype=dtype)


def _mixed_gemm(call: Any, dtype: torch.dtype) -> Tensor:
    batch = torch.broadcast_shapes(call.a.shape[:-2], call.packed.shape[:-3])
    return call.a.new_empty((*batch, call.a.shape[-2], call.out_features // _sums_of(call)), dtype=dtype)


def _mixed_grouped_gemm(call: Any, dtype: torch.dtype) -> Tensor:
    if call.offs is None:
        return _mixed_gemm(call, dtype)
    torch._check(call.a.dim() == 2, lambda: f"a is {tuple(call.a.shape)}; it must be a matrix")
    return call.a.new_empty((call.a.shape[0], call.out_features // _sums_of(call)), dtype=dtype)


def _check_operands(a: Tensor, b: Tensor) -> None:
    def refusal() -> str:
        return f"a is {tuple(a.shape)} and b is {tuple(b.shape)}; they cannot be multiplied"

    torch._check(a.dim() in (2, 3) and b.dim() in (2, 3), refusal)
    torch._check(a.shape[-1] == b.shape[-2], refusal)


def _columns(call: Any) -> Any:
    """D's: what two of b's join, or b's."""
    return call.b.shape[-1] // _sums_of(call)


def _sums_of(call: Any) -> int:
    """How many an element of D takes. Groups' packed weights have no activation."""
    joined = 2 if getattr(call, "activation", "none") in GATED else 1
    return joined if call.epilogue is None else len(parse(call.epilogue).sums)


def _float_dtype(a: Tensor) -> torch.dtype:
    return a.dtype if a.itemsize > 1 else torch.bfloat16


def default_dtype(a: Tensor, scale: Tensor | None = None) -> torch.dtype:
    return torch.int32 if a.dtype == torch.int8 and scale is None else _float_dtype(a)


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


def _with_sum(made: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """What an operator makes, and x + residual."""

    def results(call: Any) -> Any:
        results = made(call)
        torch._check(call.residual.shape == call.x.shape, lambda: "residual must have x's shape")
        return (*(results if isinstance(results, tuple) else (results,)), call.residual.new_empty(call.x.shape))

    return results


def _quantize_transposed(call: Any) -> tuple[Tensor, ...]:
    options = call.dtype, call.granularity, call.scale_major
    return (*_quantized(call.x, *options), *_quantized(call.x.new_empty(call.x.shape[::-1]), *options))


def _quantize_grouped(call: Any) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    x, offs = call.x, call.offs
    q, scale = _quantized(x, call.dtype, "block_1x128", call.scale_major)
    (rows, cols), groups = x.shape, offs.shape[0]
    blocks = (rows + (_BLOCK - 1) * torch.sym_min(groups, rows)) // _BLOCK
    scale_t = x.new_empty((blocks, cols), dtype=torch.float32).t()
    q_t = x.new_empty((cols, blocks * _BLOCK), dtype=call.dtype)
    return q, scale, q_t, scale_t, offs.new_empty(groups, dtype=torch.int32)


def _routed(logits: Tensor, top_k: int) -> tuple[Tensor, Tensor]:
    shape = logits.shape[0], top_k
    return logits.new_empty(shape, dtype=torch.float32), logits.new_empty(shape, dtype=torch.int32)


def _offsets(call: Any) -> Tensor:
    return call.expert_ids.new_empty(call.num_experts, dtype=torch.int32)


def _indices(call: Any) -> Tensor:
    return call.expert_ids.new_empty(call.expert_ids.numel(), dtype=torch.int32)


def _moe_unpermute(call: Any) -> Tensor:
    y, weights = call.y, call.weights
    tokens = y.shape[0] // (call.top_k or 1) if weights is None else weights.shape[0]
    return y.new_empty(tokens, y.shape[1])


def _quantized_rows(x: Tensor, rows: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    scales = -(-x.shape[1] // _BLOCK)
    return x.new_empty(rows, x.shape[1], dtype=dtype), x.new_empty(rows, scales, dtype=torch.float32)


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


def _with_scales(d: Tensor, scale_major: str, stacks_rows: bool) -> tuple[Tensor, Tensor]:
    """D and its scales of 1 x 128."""
    *batch, rows, columns = d.shape
    blocks = (columns + _BLOCK - 1) // _BLOCK
    if scale_major == "k":
        return d, d.new_empty((*batch, rows, blocks), dtype=torch.float32)
    if stacks_rows:
        return d, d.new_empty((blocks, *batch, rows), dtype=torch.float32).permute(1, 2, 0)
    return d, d.new_empty((*batch, blocks, rows), dtype=torch.float32).mT


def _outputs(
    call: Any,
    make: Callable[[Any, torch.dtype], Tensor],
    dtype: torch.dtype,
    count_groups: Callable[[Any], Any] | None = None,
) -> Any:
    """D, or what an epilogue function makes: D and others of its shape; or D and its scales."""
    if call.out_scale is not None:
        return _with_scales(make(call, call.out_dtype or dtype), call.scale_major, call.counts is not None)
    if call.epilogue is None:
        return make(call, call.out_dtype or dtype)
    (of_d, _), *others = outputs(call.epilogue)
    d = make(call, call.out_dtype or of_d or dtype)
    groups = None if count_groups is None or d.dim() == 3 else count_groups(call)
    along = "row" if call.a.dim() == 3 else "column"  # where columns of D are cut, or rows
    shapes = [_reduced(d.shape, shape, None if shape == along else groups) for _, shape in others]
    return [d, *(d.new_empty(of, dtype=other or d.dtype) for of, (other, _) in zip(shapes, others, strict=True))]


def _reduced(shape: torch.Size, to: str, groups: Any) -> tuple[Any, ...]:
    """That of an output of an epilogue function, where D is a matrix or a batch of them. groups: that it is reduced
    over, or None."""
    *batch, rows, columns = shape
    height, width = rows if to in ("column", "matrix") else 1, columns if to in ("row", "matrix") else 1
    if batch or to == "matrix":
        return (*batch, height, width)
    own = () if groups is None else (groups,)
    return own if to == "scalar" else (*own, height * width)


_NORMED = {
    "quantize_normed": lambda call: _quantized(call.x, call.dtype, call.granularity, call.scale_major),
    "quantize_normed_asymmetric": _quantize_asymmetric,
    "quantize_normed_static": lambda call: _packed(call.x, call.dtype),
}
_RESULTS = {
    "gemm": lambda call: _outputs(call, _product, default_dtype(call.a)),
    "scaled_gemm": lambda call: _outputs(call, _product, default_dtype(call.a, call.scale_a)),
    "mixed_gemm": lambda call: _outputs(call, _mixed_gemm, _float_dtype(call.a)),
    "mixed_grouped_gemm": lambda call: _outputs(
        call, _mixed_grouped_gemm, _float_dtype(call.a), lambda call: call.offs.shape[0]
    ),
    "grouped_gemm": lambda call: _outputs(call, _grouped_gemm, default_dtype(call.a, call.scale_a), _group_count),
    "quantize": lambda call: _quantized(call.x, call.dtype, call.granularity, call.scale_major),
    "quantize_asymmetric": _quantize_asymmetric,
    "quantize_static": lambda call: _packed(call.x, call.dtype),
    **_NORMED,
    **{name.replace("normed", "normed_sum"): _with_sum(made) for name, made in _NORMED.items()},
    "quantize_transposed": _quantize_transposed,
    "quantize_grouped": _quantize_grouped,
    "lora": _nothing,
    "moe_router_logits": lambda call: call.x.new_empty((call.x.shape[0], call.weight.shape[0]), dtype=torch.float32),
    "moe_route": lambda call: _routed(call.logits, call.top_k),
    "moe_expert_offsets": _offsets,
    "moe_sort_tokens": lambda call: (_offsets(call), _indices(call)),
    "moe_permute": lambda call: (
        call.x.new_empty(call.expert_ids.numel(), call.x.shape[1]),
        _offsets(call),
        _indices(call),
    ),
    "moe_permute_quantized": lambda call: (
        *_quantized_rows(call.x, call.expert_ids.numel(), call.dtype),
        _offsets(call),
        _indices(call),
    ),
    "moe_gather": lambda call: call.x.new_empty(call.indices.shape[0], call.x.shape[1]),
    "moe_gather_quantized": lambda call: _quantized_rows(call.x, call.indices.shape[0], call.dtype),
    "moe_unpermute": _moe_unpermute,
    "moe_unpermute_backward": lambda call: (call.y.new_empty(call.y.shape), call.weights.new_empty(call.weights.shape)),
}


def register() -> None:
    declare(_RESULTS)
