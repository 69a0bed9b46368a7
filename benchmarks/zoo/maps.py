"""Convolutional networks that say something of each place in a picture."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .layers import ConvNorm, Residual


def twice(channels: int, out: int) -> nn.Sequential:
    """Two convolutions of 3×3."""
    return nn.Sequential(
        ConvNorm(channels, out, activation=nn.ReLU),
        ConvNorm(out, out, activation=nn.ReLU),
    )


class UNet(nn.Module):
    """Down, and up again beside it (Ronneberger et al., 2015), the same size out.

    Half as wide as in the paper.
    """

    def __init__(
        self, widths: Sequence[int] = (32, 64, 128, 256, 512), classes: int = 21
    ) -> None:
        super().__init__()
        pairs = list(itertools.pairwise(widths))
        self.first = twice(3, widths[0])
        self.down = nn.ModuleList(twice(a, b) for a, b in pairs)
        self.up = nn.ModuleList(
            nn.ConvTranspose2d(b, a, 2, 2) for a, b in reversed(pairs)
        )
        self.merge = nn.ModuleList(twice(2 * a, a) for a, _ in reversed(pairs))
        self.classes = nn.Conv2d(widths[0], classes, 1)

    def forward(self, image: Tensor) -> Tensor:
        seen = [self.first(image)]
        for down in self.down:
            seen.append(down(F.max_pool2d(seen[-1], 2)))
        x = seen.pop()
        for up, merge in zip(self.up, self.merge, strict=True):
            x = merge(torch.cat((seen.pop(), up(x)), 1))
        return self.classes(x)


class Split(nn.Module):
    """A stage of YOLOv8: half of the channels go through blocks, all are joined."""

    def __init__(self, channels: int, out: int, count: int, residual: bool) -> None:
        super().__init__()
        half = out // 2
        self.enter = ConvNorm(channels, out, 1, activation=nn.SiLU)
        blocks = [
            nn.Sequential(
                ConvNorm(half, half, activation=nn.SiLU),
                ConvNorm(half, half, activation=nn.SiLU),
            )
            for _ in range(count)
        ]
        self.blocks = nn.ModuleList(
            Residual(block) if residual else block for block in blocks
        )
        self.leave = ConvNorm((2 + count) * half, out, 1, activation=nn.SiLU)

    def forward(self, x: Tensor) -> Tensor:
        parts = list(self.enter(x).chunk(2, 1))
        for block in self.blocks:
            parts.append(block(parts[-1]))
        return self.leave(torch.cat(parts, 1))


class Pyramid(nn.Module):
    """Maxima over windows of 5, 9 and 13, by one pool again and again."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        half = channels // 2
        self.enter = ConvNorm(channels, half, 1, activation=nn.SiLU)
        self.pool = nn.MaxPool2d(5, 1, 2)
        self.leave = ConvNorm(4 * half, channels, 1, activation=nn.SiLU)

    def forward(self, x: Tensor) -> Tensor:
        pools = [self.enter(x)]
        for _ in range(3):
            pools.append(self.pool(pools[-1]))
        return self.leave(torch.cat(pools, 1))


class Yolo(nn.Module):
    """A detector in the form of YOLOv8 (Jocher et al., 2023), of its smallest size.

    For each place on maps of a stride of 8, 16 and 32 pixels: a box as (x, y, width,
    height) in pixels, each edge the mean of a distribution over *bins* distances, and
    a probability for each class.
    """

    def __init__(
        self,
        widths: Sequence[int] = (16, 32, 64, 128, 256),
        counts: Sequence[int] = (1, 2, 2, 1),
        classes: int = 80,
        bins: int = 16,
        size: int = 320,
    ) -> None:
        super().__init__()
        self.bins = bins
        layers: list[nn.Module] = [ConvNorm(3, widths[0], 3, 2, activation=nn.SiLU)]
        for channels, out, count in zip(widths, widths[1:], counts, strict=False):
            layers += [
                ConvNorm(channels, out, 3, 2, activation=nn.SiLU),
                Split(out, out, count, residual=True),
            ]
        layers.append(Pyramid(widths[-1]))
        # as far as the maps of a stride of 8, 16 and 32 pixels
        self.backbone = nn.ModuleList(
            (
                nn.Sequential(*layers[:5]),
                nn.Sequential(*layers[5:7]),
                nn.Sequential(*layers[7:]),
            )
        )
        small, middle, large = widths[2:]
        self.up = nn.ModuleList(
            (
                Split(large + middle, middle, 1, residual=False),
                Split(middle + small, small, 1, residual=False),
            )
        )
        self.shrink = nn.ModuleList(
            (
                ConvNorm(small, small, 3, 2, activation=nn.SiLU),
                ConvNorm(middle, middle, 3, 2, activation=nn.SiLU),
            )
        )
        self.down = nn.ModuleList(
            (
                Split(small + middle, middle, 1, residual=False),
                Split(middle + large, large, 1, residual=False),
            )
        )
        self.boxes = nn.ModuleList(self._head(w, small, 4 * bins) for w in widths[2:])
        inner = max(small, min(classes, 100))
        self.classes = nn.ModuleList(self._head(w, inner, classes) for w in widths[2:])
        centres, strides = [], []
        for stride in (8, 16, 32):
            places = torch.arange(size // stride) + 0.5
            y, x = torch.meshgrid(places, places, indexing="ij")
            centres.append(torch.stack((x, y)).flatten(1))
            strides.append(torch.full((1, centres[-1].shape[1]), float(stride)))
        self.register_buffer("centres", torch.cat(centres, 1))
        self.register_buffer("strides", torch.cat(strides, 1))

    @staticmethod
    def _head(channels: int, inner: int, out: int) -> nn.Sequential:
        return nn.Sequential(
            ConvNorm(channels, inner, activation=nn.SiLU),
            ConvNorm(inner, inner, activation=nn.SiLU),
            nn.Conv2d(inner, out, 1),
        )

    def forward(self, image: Tensor) -> Tensor:
        small = self.backbone[0](image)
        middle = self.backbone[1](small)
        large = self.backbone[2](middle)
        middle = self.up[0](torch.cat((self._larger(large), middle), 1))
        small = self.up[1](torch.cat((self._larger(middle), small), 1))
        middle = self.down[0](torch.cat((self.shrink[0](small), middle), 1))
        large = self.down[1](torch.cat((self.shrink[1](middle), large), 1))
        maps = small, middle, large
        boxes = torch.cat(
            [box(x).flatten(2) for box, x in zip(self.boxes, maps, strict=True)], 2
        )
        classes = torch.cat(
            [some(x).flatten(2) for some, x in zip(self.classes, maps, strict=True)], 2
        )
        return torch.cat((self._boxes(boxes), classes.sigmoid()), 1)

    @staticmethod
    def _larger(x: Tensor) -> Tensor:
        return F.interpolate(x, scale_factor=2.0, mode="nearest")

    def _boxes(self, bins: Tensor) -> Tensor:
        by_edge = bins.unflatten(1, (4, self.bins)).softmax(2)
        distances = torch.arange(self.bins, dtype=bins.dtype)
        edges = (by_edge * distances[:, None]).sum(2)
        before, after = edges.chunk(2, 1)
        first, last = self.centres - before, self.centres + after
        return torch.cat(((first + last) / 2, last - first), 1) * self.strides
