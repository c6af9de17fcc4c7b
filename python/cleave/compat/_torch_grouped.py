"""torch._grouped_mm and torch._scaled_grouped_mm, and torch.nn.functional's names for them.

The ranks of the operands say what is grouped, offs where each group ends (int32 or int64, [G], on
the operands' device):

| mat_a     | mat_b     | result    | of group g                               |
|-----------|-----------|-----------|------------------------------------------|
| [M, K]    | [G, K, N] | [M, N]    | its rows of mat_a @ mat_b[g]             |
| [M, K]    | [K, N]    | [G, M, N] | its columns of mat_a @ its rows of mat_b |
| [G, M, K] | [K, N]    | [M, N]    | mat_a[g] @ its columns of mat_b          |
| [G, M, K] | [G, K, N] | [G, M, N] | mat_a[g] @ mat_b[g], without offs        |

What lies past the last offset is zero in the result (torch leaves it as it finds it), and so is the
product of an empty group. float32 is multiplied as torch's own switch says,
torch.backends.cuda.matmul.fp32_precision.
"""

from __future__ import annotations

import sys
from typing import Any

from .. import _core
from ._scaling import Recipe, check_plain, level, shaped


def _grouped_mm(input: Any, mat2: Any, offs: Any = None, bias: Any = None, out_dtype: Any = None) -> Any:
    """input @ mat2 in groups; of input's dtype by default. Not differentiable."""
    return _core.grouped_gemm(input, mat2, offs, bias=bias, out_dtype=out_dtype, precision=_precision(input))


def _precision(operand: Any) -> str:
    """The precision of its products: torch's, or its default for others' arrays without torch."""
    if str(getattr(operand, "dtype", None)).rpartition(".")[2] != "float32":
        return "tf32"  # others have no choice
    if "torch" not in sys.modules:
        return "ieee"
    from .._torch_precision import precision

    return precision()


def grouped_mm(mat_a: Any, mat_b: Any, *, offs: Any = None, bias: Any = None, out_dtype: Any = None) -> Any:
    """mat_a @ mat_b in groups; of mat_a's dtype by default. Not differentiable."""
    return _grouped_mm(mat_a, mat_b, offs, bias, out_dtype)


def _scaled_grouped_mm(
    input: Any,
    mat2: Any,
    scale_a: Any,
    scale_b: Any,
    offs: Any = None,
    bias: Any = None,
    scale_result: Any = None,
    out_dtype: Any = None,
    use_fast_accum: bool = False,
) -> Any:
    """input @ mat2 in groups, of 8-bit numbers with a float32 scale per row and column.

    scale_a is [M] for a matrix of rows, [G, M] for one per group, and [G * M] if K is grouped;
    scale_b the same with N. bfloat16 by default; scale_result is not served.
    """
    if scale_result is not None:
        raise ValueError("scale_result is given; only None is served, as by torch")
    scale_a, scale_b = _scales(input, mat2, scale_a, scale_b, offs)
    return _core.grouped_gemm(
        input, mat2, offs, scale_a=scale_a, scale_b=scale_b, bias=bias, out_dtype=out_dtype,
        use_fast_accum=use_fast_accum,
    )  # fmt: skip


def scaled_grouped_mm(
    mat_a: Any,
    mat_b: Any,
    scale_a: Any,
    scale_recipe_a: Any,
    scale_b: Any,
    scale_recipe_b: Any,
    swizzle_a: Any = None,
    swizzle_b: Any = None,
    bias: Any = None,
    offs: Any = None,
    output_dtype: Any = "bfloat16",
    contraction_dim: list[int] | tuple[int, ...] = (),
    use_fast_accum: bool = False,
) -> Any:
    """mat_a @ mat_b in groups, of 8-bit numbers whose scales are RowWise, as _scaled_grouped_mm's.

    For scales of blocks use cleave.grouped_gemm. output_dtype None is mat_a's.
    """
    check_plain(swizzle_a, swizzle_b, contraction_dim)
    scales = []
    for name, scale, recipe in (("scale_a", scale_a, scale_recipe_a), ("scale_b", scale_b, scale_recipe_b)):
        scale, number = level(name, scale, recipe)
        if number != Recipe.ROW_WISE:
            raise ValueError(
                f"the recipe of {name} is {recipe}; RowWise is served, and scales of blocks by cleave.grouped_gemm"
            )
        scales.append(scale)
    return _scaled_grouped_mm(
        mat_a, mat_b, *scales, offs, bias, use_fast_accum=use_fast_accum,
        out_dtype=mat_a.dtype if output_dtype is None else output_dtype,
    )  # fmt: skip


def _scales(input: Any, mat2: Any, scale_a: Any, scale_b: Any, offs: Any) -> tuple[Any, Any]:
    """As cleave.grouped_gemm takes them."""
    ranks = len(input.shape), len(mat2.shape)
    made = []
    for name, scale, operand, length in (
        ("scale_a", scale_a, input, input.shape[-2]),
        ("scale_b", scale_b, mat2, mat2.shape[-1]),
    ):
        if ranks == (2, 2) and offs is not None:
            groups = offs.shape[0]
            made.append(shaped(name, scale, (groups * length,)).reshape(groups, length))
        else:
            made.append(shaped(name, scale, (*operand.shape[:-2], length)))
    if ranks == (3, 3):
        return made[0][:, :, None], made[1][:, None, :]
    return made[0], made[1]
