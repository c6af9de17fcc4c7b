"""Convolutions with filters of one tap: products of pixels, filters and outputs."""

from __future__ import annotations

from typing import Any

import torch

import cleave


def one_tap(kind: str, **options: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """What a float32 convolution makes, as a matrix, and the two matrices that it is the product of."""

    def image(x: torch.Tensor) -> torch.Tensor:
        return x.view(4, 9, 7, -1).movedim(-1, 1)

    def matrix(x: torch.Tensor) -> torch.Tensor:
        return x.movedim(1, -1).reshape(-1, x.shape[1])

    x, y = torch.randn(252, 320, device="cuda"), torch.randn(252, 96, device="cuda")
    w = torch.randn(96, 320, device="cuda")
    filters = w.view(96, 320, 1, 1)
    match kind:
        case "fprop":
            return matrix(cleave.conv2d(image(x), filters, **options)), x, w.mT
        case "dgrad":
            return matrix(cleave.conv2d_dgrad(image(x).shape, filters, image(y), **options)), y, w
        case _:
            return cleave.conv2d_wgrad(image(x), filters.shape, image(y), **options).reshape(96, 320), y.mT, x
