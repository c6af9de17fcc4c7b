"""What torch.vmap makes of torch.ops.cleave.gemm: one call, where the operands are matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor


def along_a_new_axis(
    operator: Any, size: int, along: Sequence[bool], operands: Sequence[Any], options: dict[str, Any]
) -> Tensor | None:
    a, b, bias, c = operands
    of_a, of_b, of_bias, of_c = along
    if of_bias or not (of_a or of_b) or a.dim() - of_a != 2 or b.dim() - of_b != 2:
        return None
    if c is not None and not of_c:
        c = c.expand(size, *c.shape)
    # Rows of a that share b are more rows of one matrix, if nothing else tells a row's place.
    is_packed = of_a and a.stride(0) == a.shape[1] * a.stride(1)
    by_column = bias is None or bias.dim() == 1 or bias.shape[0] == 1
    if is_packed and not of_b and by_column:
        d = operator(a.flatten(0, 1), b, bias, None if c is None else c.flatten(0, 1), **options)
        return d.unflatten(0, (size, a.shape[1]))
    return operator(a, b, bias, c, **options)
