"""Gradients of what takes tensors, against torch's own of the same in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


def check_gradients(
    run: Callable[..., Sequence[Tensor]],
    exact: Callable[..., Sequence[Any]],
    tensors: Sequence[Tensor],
    names: Sequence[str],
    compiled: bool,
) -> None:
    """`run` and `exact` make the same results of `tensors`, which `names` has names of. compiled: `run` is, by AOT."""
    torch.compiler.reset()  # else one code object meets too many kinds of arguments
    made = (torch.compile(run, fullgraph=True, backend="aot_eager") if compiled else run)(*tensors)
    doubles = [x.detach().double().requires_grad_() for x in tensors]
    wanted = exact(*doubles)
    mine, theirs = 0, 0
    for got, want in zip(made, wanted, strict=True):
        assert got.shape == want.shape
        torch.testing.assert_close(got.double(), want, rtol=1e-4, atol=1e-4)
        weight = torch.randn_like(want)
        mine, theirs = mine + (got * weight.float()).sum(), theirs + (want * weight).sum()
    gradients = torch.autograd.grad(mine, tensors), torch.autograd.grad(theirs, doubles)
    for name, got, want in zip(names, *gradients, strict=True):
        assert got.shape == want.shape, name
        torch.testing.assert_close(got.double(), want, rtol=1e-3, atol=1e-3, msg=lambda text, n=name: f"{n}: {text}")
