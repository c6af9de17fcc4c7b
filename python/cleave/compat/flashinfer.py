"""grouped_mm_bf16 and grouped_mm_fp8 of flashinfer.grouped_mm, group_gemm_fp8_nt_groupwise of gemm.

The rows of group g are a[m_indptr[g] : m_indptr[g + 1]]; m_indptr is int32 [G + 1] on the operands'
device and stays there. Groups may have any size. New outputs are zero in rows of no group; rows of
`out` that are no group's stay as they are. The weights b are [G, N, K].
"""

from __future__ import annotations

from typing import Any

from .. import _core

__all__ = ["group_gemm_fp8_nt_groupwise", "grouped_mm_bf16", "grouped_mm_fp8"]

_GRANULARITIES = ((1, 128, 128), (1, 1, 128))


def grouped_mm_bf16(
    a: Any,
    b: Any,
    m_indptr: Any,
    out: Any = None,
    out_dtype: Any = "bfloat16",
    *,
    backend: str = "cudnn",
    tactic: int = -1,
) -> Any:
    """a [M, K] @ b[group].T, as [M, N].

    out_dtype is that of a new output; backend and tactic are not used.
    """
    return _core.grouped_gemm(a, b.mT, indptr=m_indptr, out=out, out_dtype=out_dtype if out is None else None)


def grouped_mm_fp8(
    a: Any,
    b: Any,
    m_indptr: Any,
    alpha: Any = None,
    out: Any = None,
    out_dtype: Any = "bfloat16",
    *,
    backend: str = "cudnn",
    tactic: int = -1,
) -> Any:
    """The same of 8-bit floats, times alpha, which is a float32 tensor of one value."""
    if alpha is not None and not hasattr(alpha, "new_ones"):
        raise TypeError(f"alpha is {type(alpha).__name__}; it must be a float32 tensor of one value, or None")
    return _core.grouped_gemm(
        a,
        b.mT,
        indptr=m_indptr,
        scale_a=alpha,
        scale_b=None if alpha is None else alpha.new_ones(1),
        out=out,
        out_dtype=out_dtype if out is None else None,
    )


def group_gemm_fp8_nt_groupwise(
    a: Any,
    b: Any,
    a_scale: Any,
    b_scale: Any,
    m_indptr: Any,
    scale_granularity_mnk: tuple[int, int, int] = (1, 128, 128),
    scale_major_mode: str = "MN",
    mma_sm: int = 1,
    out: Any = None,
    out_dtype: Any = None,
) -> Any:
    """The same of 8-bit floats that are scaled in blocks; bfloat16 by default.

    scale_major_mode "K": the scales are [M, K / 128] and [G, N / 128, K / 128], "MN": their
    transposes; quotients are rounded up. scale_granularity_mnk is (1, 128, 128), or (1, 1, 128) for
    scales of b with N for N / 128. mma_sm is not used.
    """
    if tuple(scale_granularity_mnk) not in _GRANULARITIES:
        raise ValueError(
            f"scale_granularity_mnk is {tuple(scale_granularity_mnk)}; (1, 128, 128) and (1, 1, 128) are served"
        )
    if scale_major_mode not in ("MN", "K"):
        raise ValueError(f'scale_major_mode is {scale_major_mode!r}; it must be "MN" or "K"')
    if scale_major_mode == "MN":
        a_scale = a_scale.mT
    else:
        b_scale = b_scale.mT
    return _core.grouped_gemm(a, b.mT, indptr=m_indptr, scale_a=a_scale, scale_b=b_scale, out=out, out_dtype=out_dtype)
