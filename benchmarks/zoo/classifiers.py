"""Convolutional networks that tell what a picture shows, as their papers have them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from .layers import Activation, Classes, ConvNorm, Residual


class Bottleneck(Residual):
    """Three convolutions, the middle one of fewer channels, and maybe in groups."""

    def __init__(
        self, channels: int, inner: int, out: int, stride: int, groups: int = 1
    ) -> None:
        super().__init__(
            nn.Sequential(
                ConvNorm(channels, inner, 1, activation=nn.ReLU),
                ConvNorm(inner, inner, 3, stride, groups=groups, activation=nn.ReLU),
                ConvNorm(inner, out, 1),
            ),
            None if channels == out else ConvNorm(channels, out, 1, stride),
            nn.ReLU,
        )


class ResNet(nn.Sequential):
    """Residual networks (He et al., 2016), with the stride at the 3×3 convolution.

    Args:
        groups: of the 3×3 convolutions.
        inner: channels of those in the first stage, the *width* by default.
    """

    def __init__(
        self,
        blocks: Sequence[int] = (3, 4, 6, 3),
        width: int = 64,
        classes: int = 1000,
        groups: int = 1,
        inner: int | None = None,
    ) -> None:
        layers: list[nn.Module] = [
            ConvNorm(3, width, 7, 2, activation=nn.ReLU),
            nn.MaxPool2d(3, 2, 1),
        ]
        channels = width
        for stage, count in enumerate(blocks):
            middle, out = (inner or width) << stage, 4 * width << stage
            for block in range(count):
                stride = 2 if stage and not block else 1
                layers.append(Bottleneck(channels, middle, out, stride, groups))
                channels = out
        super().__init__(*layers, Classes(channels, classes))


class Shuffled(nn.Module):
    """Convolutions of 1×1 in groups, whose channels are dealt out between them, and one
    of each channel by itself; with a stride, joined to what is pooled."""

    def __init__(self, channels: int, out: int, stride: int, groups: int) -> None:
        super().__init__()
        made = out if stride == 1 else out - channels
        # the first block of a network has few channels
        first = 1 if channels < out // 4 else groups
        self.expand = ConvNorm(channels, out // 4, 1, groups=first, activation=nn.ReLU)
        self.groups = groups
        self.rest = nn.Sequential(
            ConvNorm(out // 4, out // 4, 3, stride, groups=out // 4),
            ConvNorm(out // 4, made, 1, groups=groups),
        )
        self.pool = nn.AvgPool2d(3, stride, 1) if stride > 1 else None

    def forward(self, x: Tensor) -> Tensor:
        expanded = self.expand(x)
        shape = [int(size) for size in expanded.shape]
        dealt = expanded.reshape(shape[0], self.groups, -1, *shape[2:]).transpose(1, 2)
        found = self.rest(dealt.reshape(shape))
        if self.pool is None:
            return functional.relu(x + found)
        return functional.relu(torch.cat([self.pool(x), found], 1))


class ShuffleNet(nn.Sequential):
    """ShuffleNet (Zhang et al., 2018) of three groups."""

    def __init__(self, groups: int = 3, classes: int = 1000) -> None:
        layers: list[nn.Module] = [
            ConvNorm(3, 24, 3, 2, activation=nn.ReLU),
            nn.MaxPool2d(3, 2, 1),
        ]
        channels = 24
        for out, count in ((240, 4), (480, 8), (960, 4)):
            for block in range(count):
                layers.append(Shuffled(channels, out, 1 if block else 2, groups))
                channels = out
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
