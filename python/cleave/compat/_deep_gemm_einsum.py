"""DeepGEMM's einsum and fp8_einsum: batched products of permuted tensors, without a copy."""

from __future__ import annotations

from typing import Any

from .. import _core
from ._deep_gemm_recipe import check_recipes, pair

# The axes of a as [batch, M, K], of b as [batch, K, N] and of d as [batch, M, N].
_AXES = {
    "bhr,hdr->bhd": ((1, 0, 2), (0, 2, 1), (1, 0, 2)),
    "bhd,hdr->bhr": ((1, 0, 2), (0, 1, 2), (1, 0, 2)),
    "bhd,bhr->hdr": ((1, 2, 0), (1, 0, 2), (0, 1, 2)),
}


def einsum(expr: str, a: Any, b: Any, d: Any, c: Any = None, use_cublaslt: bool = False) -> None:
    """Fills d with the sum of products that expr names, plus c: "bhr,hdr->bhd", "bhd,hdr->bhr" or "bhd,bhr->hdr".

    use_cublaslt changes nothing here.
    """
    of_a, of_b, of_d = _axes(expr)
    c = None if c is None else c.permute(of_d)
    _core.gemm(a.permute(of_a), b.permute(of_b), c=c, out=d.permute(of_d))


def fp8_einsum(
    expr: str,
    a: tuple[Any, Any],
    b: tuple[Any, Any],
    d: Any,
    c: Any = None,
    recipe: tuple[int, int, int] = (1, 128, 128),
) -> None:
    """The same of 8-bit floats, with float32 scales that have the operands' axes, quotients by 128 rounded up."""
    of_a, of_b, of_d = _axes(expr)
    (a, scale_a), (b, scale_b) = (
        [x.permute(axes) for x in pair(name, operand)] for name, operand, axes in (("a", a, of_a), ("b", b, of_b))
    )
    check_recipes((a, scale_a), (b.mT, scale_b.mT), recipe, None, None)
    c = None if c is None else c.permute(of_d)
    _core.scaled_gemm(a, b, scale_a, scale_b, c=c, out=d.permute(of_d))


def _axes(expr: str) -> tuple[tuple[int, ...], ...]:
    if expr not in _AXES:
        served = ", ".join(f'"{name}"' for name in _AXES)
        raise ValueError(f'expr is "{expr}"; {served} are served')
    return _AXES[expr]
