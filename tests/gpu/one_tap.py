"""Convolutions with filters of one tap: products of pixels, filters and outputs.

Every other pixel of a line is left out by the stride: without one the planner takes the kernels of products.
"""

from __future__ import annotations

from typing import Any

import torch

import cleave


def one_tap(kind: str, **options: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """What a float32 convolution makes, as a matrix, and the two matrices that it is the product of."""

    def image(x: torch.Tensor) -> torch.Tensor:
        return x.view(4, 9, 7, -1).movedim(-1, 1)

    def spread(x: torch.Tensor) -> torch.Tensor:
        wide = x.new_zeros(4, 9, 13, x.shape[1])
        wide[:, :, ::2] = x.view(4, 9, 7, -1)
        return wide.movedim(-1, 1)

    def matrix(x: torch.Tensor) -> torch.Tensor:
        return x.movedim(1, -1).reshape(-1, x.shape[1])

    x, y = torch.randn(252, 320, device="cuda"), torch.randn(252, 96, device="cuda")
    w = torch.randn(96, 320, device="cuda")
    filters = w.view(96, 320, 1, 1)
    options["stride"] = (1, 2)
    match kind:
        case "fprop":
            return matrix(cleave.conv2d(spread(x), filters, **options)), x, w.mT
        case "dgrad":
            return matrix(cleave.conv2d_dgrad(spread(x).shape, filters, image(y), **options)[..., ::2]), y, w
        case _:
            return cleave.conv2d_wgrad(spread(x), filters.shape, image(y), **options).reshape(96, 320), y.mT, x
