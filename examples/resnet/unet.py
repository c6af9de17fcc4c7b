"""A small U-Net (Ronneberger et al., 2015): strided convolutions down, transposed ones up."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


def block(channels: int, outputs: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels, outputs, 3, stride, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
        nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    """Images [n, channels, height, width] to scores [n, classes, height, width].

    Height and width are multiples of 2 ** (len(widths) - 1).
    """

    def __init__(self, channels: int = 3, classes: int = 2, widths: Sequence[int] = (32, 64, 128)):
        super().__init__()
        first, *deeper = widths
        pairs = list(zip(widths, deeper, strict=False))
        self.top = block(channels, first)
        self.down = nn.ModuleList(block(above, below, stride=2) for above, below in pairs)
        self.up = nn.ModuleList(nn.ConvTranspose2d(below, above, 2, stride=2) for above, below in reversed(pairs))
        self.join = nn.ModuleList(block(2 * above, above) for above, _ in reversed(pairs))
        self.head = nn.Conv2d(first, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        levels = [self.top(x)]
        for down in self.down:
            levels.append(down(levels[-1]))
        y = levels.pop()
        for up, join in zip(self.up, self.join, strict=True):
            y = join(torch.cat([levels.pop(), up(y)], dim=1))
        return self.head(y)
