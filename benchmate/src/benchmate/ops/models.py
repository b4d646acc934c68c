"""AlexNet and ResNet-50 as operators: the networks of the papers, written for this package."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class AlexNet(nn.Module):
    """AlexNet in the single-column form of Krizhevsky, "One weird trick for parallelizing convolutional neural networks" (2014).

    Takes images (n, 3, h, w), h and w at least 63, usually 224. Gives (n, classes).
    """

    def __init__(self, num_classes: int = 1000, dropout: float = 0.5) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        # in, out, kernel, stride, padding, pooled after it
        for inside, outside, kernel, stride, padding, is_pooled in (
            (3, 64, 11, 4, 2, True),
            (64, 192, 5, 1, 2, True),
            (192, 384, 3, 1, 1, False),
            (384, 256, 3, 1, 1, False),
            (256, 256, 3, 1, 1, True),
        ):
            layers += [nn.Conv2d(inside, outside, kernel, stride, padding), nn.ReLU(inplace=True)]
            if is_pooled:
                layers.append(nn.MaxPool2d(3, 2))
        self.features = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(6), nn.Flatten())
        self.classifier = nn.Sequential(
            nn.Dropout(dropout),
            nn.Linear(256 * 6 * 6, 4096),
            nn.ReLU(inplace=True),
            nn.Dropout(dropout),
            nn.Linear(4096, 4096),
            nn.ReLU(inplace=True),
            nn.Linear(4096, num_classes),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Logits (n, classes)."""
        return self.classifier(self.features(images))


class _Bottleneck(nn.Module):
    def __init__(self, inside: int, width: int, stride: int) -> None:
        super().__init__()
        outside = 4 * width
        self.body = nn.Sequential(
            *_convolution(inside, width, 1),
            nn.ReLU(inplace=True),
            # The stride is here and not in the first convolution: "ResNet v1.5", what everybody measures.
            *_convolution(width, width, 3, stride),
            nn.ReLU(inplace=True),
            *_convolution(width, outside, 1),
        )
        is_same = stride == 1 and inside == outside
        self.shortcut = nn.Identity() if is_same else nn.Sequential(*_convolution(inside, outside, 1, stride))
        self.activation = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.activation(self.body(x) + self.shortcut(x))


class ResNet50(nn.Module):
    """ResNet-50 of He et al., "Deep residual learning" (2015), 25.6 million parameters.

    Takes images (n, 3, h, w), h and w at least 32, usually 224. Gives (n, classes).
    """

    def __init__(self, num_classes: int = 1000) -> None:
        super().__init__()
        stages: list[nn.Module] = [*_convolution(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
        inside = 64
        for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
            for block in range(blocks):
                stages.append(_Bottleneck(inside, width, stride if block == 0 else 1))
                inside = 4 * width
        self.features = nn.Sequential(*stages, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.classifier = nn.Linear(inside, num_classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Logits (n, classes)."""
        return self.classifier(self.features(images))


def _convolution(inside: int, outside: int, kernel: int, stride: int = 1) -> tuple[Any, Any]:
    return nn.Conv2d(inside, outside, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(outside)
