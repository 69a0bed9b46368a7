"""Convolutional networks that tell what a picture shows, as their papers have them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor, nn

from .layers import Activation, Classes, ConvNorm, Residual


class Bottleneck(Residual):
    """Three convolutions, the middle one over a quarter of the channels."""

    def __init__(self, channels: int, inner: int, stride: int) -> None:
        out = 4 * inner
        super().__init__(
            nn.Sequential(
                ConvNorm(channels, inner, 1, activation=nn.ReLU),
                ConvNorm(inner, inner, 3, stride, activation=nn.ReLU),
                ConvNorm(inner, out, 1),
            ),
            None if channels == out else ConvNorm(channels, out, 1, stride),
            nn.ReLU,
        )


class ResNet(nn.Sequential):
    """Residual networks (He et al., 2016), with the stride at the 3×3 convolution."""

    def __init__(
        self,
        blocks: Sequence[int] = (3, 4, 6, 3),
        width: int = 64,
        classes: int = 1000,
    ) -> None:
        layers: list[nn.Module] = [
            ConvNorm(3, width, 7, 2, activation=nn.ReLU),
            nn.MaxPool2d(3, 2, 1),
        ]
        channels = width
        for stage, count in enumerate(blocks):
            inner = width << stage
            for block in range(count):
                stride = 2 if stage and not block else 1
                layers.append(Bottleneck(channels, inner, stride))
                channels = 4 * inner
        super().__init__(*layers, Classes(channels, classes))


class SqueezeExcitation(nn.Module):
    """Each channel times what the means of all channels say of it (Hu et al., 2018)."""

    def __init__(self, channels: int, squeezed: int) -> None:
        super().__init__()
        self.weigh = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(channels, squeezed, 1),
            nn.SiLU(),
            nn.Conv2d(squeezed, channels, 1),
            nn.Sigmoid(),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weigh(x)


class Stage(NamedTuple):
    """Blocks of as many channels; the first has the stride."""

    expand: int
    kernel: int
    stride: int
    channels: int
    blocks: int


class InvertedResiduals(nn.Sequential):
    """Blocks in which channels are expanded, convolved one by one, and projected.

    Args:
        stem, head: channels before and behind the stages.
        excite: whether blocks are squeezed and excited.
    """

    def __init__(
        self,
        stages: Sequence[Stage],
        stem: int,
        head: int,
        classes: int,
        activation: Activation,
        excite: bool,
    ) -> None:
        layers: list[nn.Module] = [ConvNorm(3, stem, 3, 2, activation=activation)]
        channels = stem
        for stage in stages:
            for block in range(stage.blocks):
                stride = 1 if block else stage.stride
                inner = channels * stage.expand
                parts: list[nn.Module] = []
                if stage.expand > 1:
                    parts.append(ConvNorm(channels, inner, 1, activation=activation))
                parts.append(
                    ConvNorm(
                        inner,
                        inner,
                        stage.kernel,
                        stride,
                        groups=inner,
                        activation=activation,
                    )
                )
                if excite:
                    parts.append(SqueezeExcitation(inner, max(1, channels // 4)))
                parts.append(ConvNorm(inner, stage.channels, 1))
                body = nn.Sequential(*parts)
                same = stride == 1 and channels == stage.channels
                layers.append(Residual(body) if same else body)
                channels = stage.channels
        layers.append(ConvNorm(channels, head, 1, activation=activation))
        super().__init__(*layers, Classes(head, classes))


class MobileNetV2(InvertedResiduals):
    """Inverted residuals with linear bottlenecks (Sandler et al., 2018)."""

    STAGES = (
        Stage(1, 3, 1, 16, 1),
        Stage(6, 3, 2, 24, 2),
        Stage(6, 3, 2, 32, 3),
        Stage(6, 3, 2, 64, 4),
        Stage(6, 3, 1, 96, 3),
        Stage(6, 3, 2, 160, 3),
        Stage(6, 3, 1, 320, 1),
    )

    def __init__(
        self,
        stages: Sequence[Stage] = STAGES,
        stem: int = 32,
        head: int = 1280,
        classes: int = 1000,
    ) -> None:
        super().__init__(stages, stem, head, classes, nn.ReLU6, excite=False)


class EfficientNet(InvertedResiduals):
    """EfficientNet-B0 (Tan and Le, 2019)."""

    STAGES = (
        Stage(1, 3, 1, 16, 1),
        Stage(6, 3, 2, 24, 2),
        Stage(6, 5, 2, 40, 2),
        Stage(6, 3, 2, 80, 3),
        Stage(6, 5, 1, 112, 3),
        Stage(6, 5, 2, 192, 4),
        Stage(6, 3, 1, 320, 1),
    )

    def __init__(
        self,
        stages: Sequence[Stage] = STAGES,
        stem: int = 32,
        head: int = 1280,
        classes: int = 1000,
    ) -> None:
        super().__init__(stages, stem, head, classes, nn.SiLU, excite=True)
