"""A network like EfficientNet-B0 (Tan and Le, 2019): depthwise convolutions between 1x1 ones, and channels that are
weighted by what an image has of them. Nothing is dropped at random.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

# Factor by which channels are widened, channels, blocks, stride of the first one, and side of the filters.
STAGES = (
    (1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3), (6, 112, 3, 1, 5), (6, 192, 4, 2, 5),
    (6, 320, 1, 1, 3),
)  # fmt: skip


def convolution(channels: int, outputs: int, side: int = 1, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    """With its normalisation."""
    conv = nn.Conv2d(channels, outputs, side, stride, padding=side // 2, groups=groups, bias=False)
    nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
    return [conv, nn.BatchNorm2d(outputs)]


class Weighted(nn.Module):
    """Channels times what two layers make of their means."""

    def __init__(self, channels: int, hidden: int):
        super().__init__()
        self.weights = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(channels, hidden, 1),
            nn.SiLU(inplace=True),
            nn.Conv2d(hidden, channels, 1),
            nn.Sigmoid(),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weights(x)


class Block(nn.Module):
    def __init__(self, channels: int, outputs: int, factor: int, stride: int, side: int):
        super().__init__()
        wide = channels * factor
        widened = [*convolution(channels, wide), nn.SiLU(inplace=True)] if factor > 1 else []
        self.layers = nn.Sequential(
            *widened,
            *convolution(wide, wide, side, stride, groups=wide),
            nn.SiLU(inplace=True),
            Weighted(wide, channels // 4),
            *convolution(wide, outputs),
        )
        self.adds = stride == 1 and channels == outputs

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x) if self.adds else self.layers(x)


class EfficientNet(nn.Module):
    """Images [n, 3, height, width] to scores [n, classes]."""

    def __init__(self, classes: int = 1000, stages: Sequence[tuple[int, ...]] = STAGES):
        super().__init__()
        layers, channels = [*convolution(3, 32, 3, 2), nn.SiLU(inplace=True)], 32
        for factor, outputs, blocks, stride, side in stages:
            for block in range(blocks):
                layers.append(Block(channels, outputs, factor, stride if block == 0 else 1, side))
                channels = outputs
        layers += [*convolution(channels, 1280), nn.SiLU(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        self.layers = nn.Sequential(*layers)
        self.head = nn.Linear(1280, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layers(x))
