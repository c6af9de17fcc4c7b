"""Grouped products in float64, group by group: what they should be, for tests with torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from cleave._epilogue.activations import GATED
from cleave.testing.activations import activate
from cleave.testing.arrays import TorchArrays

Range = tuple[int, int]


def bounds_of(ranges: Sequence[Range], kind: str, dtype: torch.dtype = torch.int32) -> Any:
    """Keywords that say so; `kind` is "offs", "indptr", "starts"."""

    def tensor(values: Sequence[int]) -> torch.Tensor:
        return torch.tensor(values, dtype=dtype)

    ends = [end for _, end in ranges]
    if kind == "offs":
        return {"offs": tensor(ends)}
    if kind == "indptr":
        return {"indptr": tensor([0, *ends])}
    return {
        "starts": tensor([begin for begin, _ in ranges]),
        "sizes": tensor([end - begin for begin, end in ranges]),
    }


def product(
    a: torch.Tensor,
    b: torch.Tensor,
    ranges: Sequence[Range],
    bias: torch.Tensor | None = None,
    c: torch.Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    activation: str = "none",
) -> torch.Tensor:
    """Zero where there is no group. A bias of three dimensions has its groups first."""

    def one(x: torch.Tensor, y: torch.Tensor, group: int, c: torch.Tensor | None) -> torch.Tensor:
        d = alpha * (x @ y)
        if c is not None:
            d = d + beta * c
        if bias is not None:
            d = d + (bias[group] if bias.dim() == 3 else bias)
        return activate(TorchArrays("cpu"), activation, d)

    if a.dim() == 2 and b.dim() == 2:
        return torch.stack(
            [
                one(a[:, begin:end], b[begin:end], group, None if c is None else c[group])
                for group, (begin, end) in enumerate(ranges)
            ]
        )
    parts, at = [], 0
    along, total = (0, a.shape[0]) if b.dim() == 3 else (1, b.shape[1])
    columns = b.shape[-1] // 2 if activation in GATED else b.shape[-1]

    def zeros(count: int) -> torch.Tensor:
        shape = (count, columns) if along == 0 else (a.shape[1], count)
        return torch.zeros(shape, dtype=a.dtype)

    for group, (begin, end) in enumerate(ranges):
        parts.append(zeros(begin - at))
        own = None if c is None else c.narrow(along, begin, end - begin)
        if along == 0:
            parts.append(one(a[begin:end], b[group], group, own))
        else:
            parts.append(one(a[group], b[:, begin:end], group, own))
        at = end
    return torch.cat([*parts, zeros(total - at)], along)
