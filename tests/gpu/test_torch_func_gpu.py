"""torch.ops.cleave under torch.func, on CUDA tensors."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", minversion="2.10")

from transform_checks import check_transforms, differentiable_calls  # noqa: E402

import cleave.torch  # noqa: E402


def test_every_operator() -> None:
    with cleave.torch.float32_precision("ieee"):
        for _, op, given in differentiable_calls("cuda"):
            check_transforms(op, given)
