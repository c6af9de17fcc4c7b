"""torch._int_mm, _scaled_mm, _grouped_mm and _scaled_grouped_mm, and those of nn.functional."""

from __future__ import annotations

from typing import Any

from .. import _core
from ._scaling import Recipe, check_plain, level, shaped
from ._torch_grouped import _grouped_mm, _scaled_grouped_mm, grouped_mm, scaled_grouped_mm

__all__ = ["_grouped_mm", "_int_mm", "_scaled_grouped_mm", "_scaled_mm", "grouped_mm", "scaled_grouped_mm", "scaled_mm"]

_BLOCK = 128


def _int_mm(input: Any, mat2: Any, *, out: Any = None) -> Any:
    """int8 [M, K] times int8 [K, N] as int32 [M, N], exact for K < 131072."""
    return _core.gemm(input, mat2, out=out, out_dtype="int32")


def _scaled_mm(
    input: Any,
    mat2: Any,
    scale_a: Any,
    scale_b: Any,
    bias: Any = None,
    scale_result: Any = None,
    out_dtype: Any = None,
    use_fast_accum: bool = False,
    *,
    out: Any = None,
) -> Any:
    """(scale_a * input) @ (scale_b * mat2) + bias, of 8-bit floats.

    scale_a is one value, [M, 1], [M, ceil(K / 128)] or [ceil(M / 128), ceil(K / 128)], scale_b the
    same of mat2 transposed. out_dtype is input's by default. 8-bit results on a CPU are divided by
    scale_result; nothing else uses it, as in torch (2.11 on a GPU was seen to ignore it).
    """
    if out is None and out_dtype is None:
        out_dtype = input.dtype
    result_type = _core.dtype_name(out_dtype if out is None else out.dtype)
    scale_d = None
    if scale_result is not None and result_type.startswith("float8") and not input.is_cuda:
        scale_d = scale_result
    return _core.scaled_gemm(
        input, mat2, scale_a, scale_b, bias=bias, out_dtype=out_dtype, out=out, scale_d=scale_d,
        use_fast_accum=use_fast_accum,
    )  # fmt: skip


def scaled_mm(
    mat_a: Any,
    mat_b: Any,
    scale_a: Any,
    scale_recipe_a: Any,
    scale_b: Any,
    scale_recipe_b: Any,
    swizzle_a: Any = None,
    swizzle_b: Any = None,
    bias: Any = None,
    output_dtype: Any = "bfloat16",
    contraction_dim: list[int] | tuple[int, ...] = (),
    use_fast_accum: bool = False,
) -> Any:
    """mat_a @ mat_b + bias, of 8-bit floats that are scaled as the recipes say.

    Serves, without swizzle: TensorWise; RowWise, scales of M and N values; BlockWise1x128, scales
    [M, ceil(K / 128)] and [N, ceil(K / 128)]; BlockWise128x128, scales [K4, ceil(M / 128)] and
    [K4, ceil(N / 128)], K4 being ceil(K / 128) rounded up to a multiple of 4. output_dtype None is
    mat_a's.
    """
    check_plain(swizzle_a, swizzle_b, contraction_dim)
    k = mat_a.shape[1]
    return _core.scaled_gemm(
        mat_a,
        mat_b,
        _scale("scale_a", scale_a, scale_recipe_a, mat_a.shape[0], k),
        _scale("scale_b", scale_b, scale_recipe_b, mat_b.shape[1], k).T,
        bias=bias,
        out_dtype=mat_a.dtype if output_dtype is None else output_dtype,
        use_fast_accum=use_fast_accum,
    )


def _scale(name: str, scale: Any, recipe: Any, rows: int, k: int) -> Any:
    """One operand's scales as those of A are for cleave.scaled_gemm: rows first."""
    scale, number = level(name, scale, recipe)
    k_blocks = -(-k // _BLOCK)
    match number:
        case Recipe.TENSOR_WISE:
            return shaped(name, scale.reshape(-1, 1), (1, 1))
        case Recipe.ROW_WISE:
            return shaped(name, scale.reshape(-1, 1), (rows, 1))
        case Recipe.BLOCK_1X128:
            return shaped(name, scale, (rows, k_blocks))
        case Recipe.BLOCK_128X128:
            padded = -(-k_blocks // 4) * 4
            return shaped(name, scale, (padded, -(-rows // _BLOCK)))[:k_blocks].T
    raise ValueError(
        f"the recipe of {name} is {recipe}; TensorWise, RowWise, BlockWise1x128 and BlockWise128x128 are served"
    )
