"""ResNet-50 (He et al., 2015, with the stride in the 3x3 convolutions), as torchvision has it.

Parameters have torchvision's names, so its checkpoints load.
"""

from __future__ import annotations

from collections import OrderedDict

from torch import Tensor, nn

EXPANSION = 4


class Bottleneck(nn.Module):
    """1x1, 3x3, 1x1, beside the identity or a strided 1x1."""

    def __init__(self, channels: int, width: int, stride: int = 1):
        super().__init__()
        outputs = width * EXPANSION
        self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or channels != outputs:
            self.downsample = nn.Sequential(
                nn.Conv2d(channels, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return self.relu(y + (x if self.downsample is None else self.downsample(x)))


def stage(channels: int, width: int, blocks: int, stride: int) -> nn.Sequential:
    outputs = width * EXPANSION
    rest = [Bottleneck(outputs, width) for _ in range(blocks - 1)]
    return nn.Sequential(Bottleneck(channels, width, stride), *rest)


def resnet50(num_classes: int = 1000) -> nn.Module:
    """Images [n, 3, height, width] to scores [n, num_classes]."""
    model = nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False),
            bn1=nn.BatchNorm2d(64),
            relu=nn.ReLU(inplace=True),
            maxpool=nn.MaxPool2d(3, stride=2, padding=1),
            layer1=stage(64, 64, blocks=3, stride=1),
            layer2=stage(256, 128, blocks=4, stride=2),
            layer3=stage(512, 256, blocks=6, stride=2),
            layer4=stage(1024, 512, blocks=3, stride=2),
            avgpool=nn.AdaptiveAvgPool2d(1),
            flatten=nn.Flatten(),
            fc=nn.Linear(2048, num_classes),
        )
    )
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return model
