"""torch._int_mm, torch._scaled_mm and torch.nn.functional.scaled_mm."""

from __future__ import annotations

from typing import Any

from .. import _core

__all__ = ["_int_mm", "_scaled_mm", "scaled_mm"]

_BLOCK = 128


def _int_mm(input: Any, mat2: Any, *, out: Any = None) -> Any:
    """int8 [M, K] times int8 [K, N], exactly, as int32 [M, N]."""
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
    for name, swizzle in (("swizzle_a", swizzle_a), ("swizzle_b", swizzle_b)):
        if any(_number(level) for level in _levels(swizzle)):
            raise ValueError(f"{name} is {swizzle}; only scales without swizzle are served")
    if tuple(contraction_dim) not in ((), (1, 0), (-1, -2)):
        raise ValueError(f"contraction_dim is {contraction_dim}; it must be () or (1, 0)")
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
    scales, recipes = _levels(scale), _levels(recipe)
    if len(scales) != 1 or len(recipes) != 1:
        raise ValueError(f"{name} has {len(scales)} levels; scales of one level are served")
    scale, recipe = scales[0], recipes[0]
    k_blocks = -(-k // _BLOCK)
    match _number(recipe):
        case 0:  # TensorWise
            return _shaped(name, scale.reshape(-1, 1), (1, 1))
        case 1:  # RowWise
            return _shaped(name, scale.reshape(-1, 1), (rows, 1))
        case 4:  # BlockWise1x128
            return _shaped(name, scale, (rows, k_blocks))
        case 5:  # BlockWise128x128
            padded = -(-k_blocks // 4) * 4
            return _shaped(name, scale, (padded, -(-rows // _BLOCK)))[:k_blocks].T
    raise ValueError(
        f"the recipe of {name} is {recipe}; TensorWise, RowWise, BlockWise1x128 and "
        "BlockWise128x128 are served"
    )


def _shaped(name: str, scale: Any, shape: tuple[int, int]) -> Any:
    if tuple(scale.shape) != shape:
        raise ValueError(f"{name} is {tuple(scale.shape)}; its recipe needs {shape}")
    return scale


def _levels(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]


def _number(member: Any) -> int:
    """Of a ScalingType or SwizzleType."""
    return int(getattr(member, "value", member))
