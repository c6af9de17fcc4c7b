"""vLLM's quantisations of activations."""

from __future__ import annotations

from typing import Any

from .. import _core
from ._deep_gemm_layout import get_tma_aligned_size
from ._deep_gemm_recipe import BLOCK
from ._rows import rows_of, written_rows

_FP8 = "float8_e4m3fn"

# group_shape: rows and columns that share a scale, -1 for all of them.
_GRANULARITIES = {(-1, -1): "tensor", (1, -1): "row", (1, BLOCK): "block_1x128", (BLOCK, BLOCK): "block_128x128"}


def scaled_fp8_quant(
    input: Any,
    scale: Any = None,
    num_token_padding: int | None = None,
    scale_ub: Any = None,
    use_per_token_if_dynamic: bool = False,
    output: Any = None,
    group_shape: tuple[int, int] | None = None,
) -> tuple[Any, Any]:
    """input [M, K] as float8_e4m3fn, and its scales: those given, or found, one [1] or by row [M, 1].

    scale: float32, one value, or of group_shape (rows, columns), -1 for all: (-1, -1), (1, -1), (1, 128) or (128,
    128). num_token_padding: at least so many rows of output and of a scale by row, those beyond M with any contents.
    scale_ub must be None.
    """
    _refuse_bound(scale_ub)
    if len(input.shape) != 2:
        raise ValueError(f"input is {tuple(input.shape)}; it must be a matrix: pass input.reshape(-1, columns)")
    if group_shape is not None and scale is None:
        raise ValueError("group_shape is given without scale; scales that are found are one, or by row: leave it out")
    m, k = input.shape
    if output is None:
        output = _empty(input, (max(num_token_padding or 0, m), k), _FP8)
    elif num_token_padding is not None:
        raise ValueError("num_token_padding is given, but so is output; pass one of them")
    if scale is not None:
        _core.quantize(input, _FP8, _granularity(scale, group_shape), scale=scale, out=output[:m])
    elif use_per_token_if_dynamic:
        scale = _empty(input, (output.shape[0], 1), "float32")
        _core.quantize(input, _FP8, "row", out=output[:m], scale_out=scale[:m])
    else:
        scale = _empty(input, (1,), "float32")
        _core.quantize(input, _FP8, "tensor", out=output[:m], scale_out=scale.reshape(1, 1))
    return output, scale


def scaled_int8_quant(input: Any, scale: Any = None, azp: Any = None, symmetric: bool = True) -> tuple[Any, Any, Any]:
    """input [..., K] as int8, its scales and, unless symmetric, its zero points (else None).

    Without scale both are found by row, [M, 1]; with scale, one value, azp is given too unless symmetric.
    """
    rows = rows_of(input)
    if scale is None:
        q, scale, *zero = _core.quantize(rows, "int8", "row", symmetric=symmetric)
        return q.reshape(input.shape), scale, zero[0] if zero else None
    if symmetric == (azp is not None):
        raise ValueError("azp goes with symmetric=False, both or neither, where scale is given")
    given = {} if symmetric else {"zero": azp.reshape(-1), "symmetric": False}
    q, *_ = _core.quantize(rows, "int8", "tensor", scale=scale, **given)
    return q.reshape(input.shape), scale, azp


def per_token_group_quant_fp8(
    x: Any,
    group_size: int,
    eps: float = 1e-10,
    dtype: Any = None,
    column_major_scales: bool = False,
    tma_aligned_scales: bool = False,
    out_q: Any = None,
    use_ue8m0: bool | None = None,
) -> tuple[Any, Any]:
    """x [..., K] as 8-bit floats, and a scale for each 128 neighbours, [..., K / 128].

    column_major_scales: in memory column by column; with tma_aligned_scales each begins at a multiple of 16 bytes.
    use_ue8m0: True rounds them up to powers of two, as float32. group_size is 128; eps changes nothing.
    """
    _check_group(group_size, x)
    rows = rows_of(x)
    out = {"use_ue8m0": bool(use_ue8m0)} | ({} if out_q is None else {"out": written_rows(out_q)})
    if column_major_scales and len(x.shape) != 2:
        raise ValueError(f"x has {len(x.shape)} dimensions; with column_major_scales it must have 2")
    if column_major_scales and tma_aligned_scales:
        m, k = rows.shape
        columns = _empty(x, (k // BLOCK, get_tma_aligned_size(m, 4)), "float32")
        out["scale_out"] = columns.T[:m]
    elif column_major_scales:
        out["scale_major"] = "mn"
    q, scale = _core.quantize(rows, _FP8 if dtype is None else dtype, "block_1x128", **out)
    return q.reshape(x.shape), _grouped_as(x, scale)


def per_token_group_quant_int8(x: Any, group_size: int, eps: float = 1e-10, dtype: Any = None) -> tuple[Any, Any]:
    """The same as int8, the scales row by row."""
    _check_group(group_size, x)
    q, scale = _core.quantize(rows_of(x), "int8" if dtype is None else dtype, "block_1x128")
    return q.reshape(x.shape), _grouped_as(x, scale)


def _granularity(scale: Any, group_shape: tuple[int, int] | None) -> str:
    if scale.size == 1 if isinstance(scale.size, int) else scale.numel() == 1:
        return "tensor"
    if group_shape is None and len(scale.shape) == 1:
        raise ValueError("scale has one dimension and there is no group_shape; pass (1, -1) for a scale of each row")
    shape = (1, BLOCK) if group_shape is None else tuple(group_shape)
    if shape not in _GRANULARITIES:
        raise ValueError(f"group_shape is {shape}; {', '.join(map(str, _GRANULARITIES))} are served")
    return _GRANULARITIES[shape]


def _check_group(group_size: int, x: Any) -> None:
    if group_size != BLOCK:
        raise ValueError(f"group_size is {group_size}; {BLOCK} is served")
    if x.shape[-1] % group_size:
        raise ValueError(f"x is {tuple(x.shape)}; its last dimension must be a multiple of group_size, {group_size}")


def _grouped_as(x: Any, scale: Any) -> Any:
    return scale if len(x.shape) == 2 else scale.reshape(*x.shape[:-1], scale.shape[1])


def _refuse_bound(scale_ub: Any) -> None:
    if scale_ub is not None:
        raise ValueError("scale_ub is given; scales without a bound are served: pass None")


def _empty(like: Any, shape: tuple[int, ...], dtype: str) -> Any:
    import torch

    return torch.empty(shape, dtype=getattr(torch, dtype), device=like.device)
