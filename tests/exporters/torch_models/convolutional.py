"""Convolutional networks for pictures, written out as their papers have them."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .architecture import Architecture, normal


def conv_norm(
    channels: int, out: int, kernel: int = 3, stride: int = 1, groups: int = 1
) -> nn.Sequential:
    """A convolution that keeps the size but for its stride, and BatchNorm."""
    return nn.Sequential(
        nn.Conv2d(channels, out, kernel, stride, kernel // 2, 1, groups, bias=False),
        nn.BatchNorm2d(out),
    )


class UNet(nn.Module):
    """Segmentation: down and up again, with skips (Ronneberger et al., 2015).

    Both ways up are in it: a transposed convolution, and interpolation to the size of
    the skip.
    """

    def __init__(self) -> None:
        super().__init__()
        self.first = conv_norm(3, 6)
        self.second = conv_norm(6, 12)
        self.third = conv_norm(12, 16)
        self.up = nn.ConvTranspose2d(16, 12, 2, stride=2)
        self.merge = conv_norm(24, 8)
        self.mask = nn.Conv2d(14, 2, 1)

    def forward(self, image: Tensor) -> Tensor:
        first = F.relu(self.first(image))
        second = F.relu(self.second(F.max_pool2d(first, 2)))
        third = F.relu(self.third(F.max_pool2d(second, 2)))
        merged = F.relu(self.merge(torch.cat((self.up(third), second), 1)))
        size = first.shape[-2:]
        merged = F.interpolate(merged, size, mode="bilinear", align_corners=False)
        return self.mask(torch.cat((merged, first), 1))


class DenseNet(nn.Module):
    """Each layer sees all before it (Huang et al., 2017)."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 7, 2, 3)
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.BatchNorm2d(8 + 4 * i),
                nn.ReLU(),
                nn.Conv2d(8 + 4 * i, 8, 1),
                nn.BatchNorm2d(8),
                nn.ReLU(),
                nn.Conv2d(8, 4, 3, padding=1),
            )
            for i in range(3)
        )
        self.transition = nn.Sequential(nn.Conv2d(20, 10, 1), nn.AvgPool2d(2))
        self.classes = nn.Linear(10, 5)

    def forward(self, image: Tensor) -> Tensor:
        seen = F.max_pool2d(self.stem(image), 3, 2, 1)
        for layer in self.layers:
            seen = torch.cat((seen, layer(seen)), 1)
        return self.classes(F.adaptive_avg_pool2d(self.transition(seen), 1).flatten(1))


class Bottleneck(nn.Module):
    """ResNet's block of three convolutions, the middle one grouped as in ResNeXt."""

    def __init__(self, channels: int, inner: int, out: int, stride: int) -> None:
        super().__init__()
        self.reduce = conv_norm(channels, inner, 1)
        self.inner = conv_norm(inner, inner, 3, stride, groups=4)
        self.expand = conv_norm(inner, out, 1)
        self.skip = conv_norm(channels, out, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.inner(F.relu(self.reduce(x))))
        return F.relu(self.expand(y) + self.skip(x))


class ResNeXt(nn.Module):
    """Residual blocks of grouped convolutions (Xie et al., 2017)."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv_norm(3, 8, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2))
        self.blocks = nn.Sequential(Bottleneck(8, 8, 16, 1), Bottleneck(16, 16, 24, 2))
        self.head = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, 5)
        )

    def forward(self, image: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem(image)))


class MBConv(nn.Module):
    """EfficientNet's block: expanded, by channel, squeezed and excited, projected."""

    def __init__(self, channels: int, kernel: int) -> None:
        super().__init__()
        inner = channels * 4
        self.expand = conv_norm(channels, inner, 1)
        self.depthwise = conv_norm(inner, inner, kernel, groups=inner)
        self.squeeze = nn.Conv2d(inner, 4, 1)
        self.excite = nn.Conv2d(4, inner, 1)
        self.project = conv_norm(inner, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = F.silu(self.depthwise(F.silu(self.expand(x))))
        weight = F.silu(self.squeeze(y.mean((2, 3), keepdim=True)))
        return x + self.project(y * torch.sigmoid(self.excite(weight)))


class EfficientNet(nn.Module):
    """Blocks with squeeze and excitation (Tan and Le, 2019), and MobileNetV3's end."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv_norm(3, 8, stride=2), nn.Hardswish())
        self.blocks = nn.Sequential(MBConv(8, 3), MBConv(8, 5))
        self.classes = nn.Linear(8, 5)

    def forward(self, image: Tensor) -> Tensor:
        y = F.hardswish(self.blocks(self.stem(image)))
        return self.classes(y.mean((2, 3)))


class Inception(nn.Module):
    """Branches of other kernels, side by side (Szegedy et al., 2015)."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.LocalResponseNorm(3)
        )
        self.point = nn.Conv2d(8, 4, 1)
        self.factorised = nn.Sequential(
            nn.Conv2d(8, 4, (1, 7), padding=(0, 3)),
            nn.Conv2d(4, 4, (7, 1), padding=(3, 0)),
        )
        self.dilated = nn.Conv2d(8, 4, 3, padding=2, dilation=2)
        self.pooled = nn.Conv2d(8, 4, 1)
        self.classes = nn.Linear(16, 5)

    def forward(self, image: Tensor) -> Tensor:
        x = F.max_pool2d(self.stem(image), 3, 2, ceil_mode=True)
        pooled = F.avg_pool2d(x, 3, 1, 1, count_include_pad=False)
        branches = self.point(x), self.factorised(x), self.dilated(x)
        y = F.relu(torch.cat((*branches, self.pooled(pooled)), 1))
        return F.log_softmax(self.classes(y.amax((2, 3))), -1)


class StyleTransfer(nn.Module):
    """Reflected borders, and norms of each picture alone (Johnson et al., 2016)."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(3, 12, 3, 2)
        self.norm = nn.InstanceNorm2d(12, affine=True)
        self.groups = nn.GroupNorm(3, 12)
        self.up = nn.Conv2d(3, 3, 5)

    def forward(self, image: Tensor) -> Tensor:
        y = self.down(F.pad(image, (1, 1, 1, 1), mode="reflect"))
        y = F.elu(self.groups(F.leaky_relu(self.norm(y), 0.2)))
        y = F.pixel_shuffle(y, 2)
        return torch.tanh(self.up(F.pad(y, (2, 2, 2, 2), mode="replicate")))


class CenterNet(nn.Module):
    """Detection by the highest points of a map (Zhou et al., 2019).

    Points that are not the highest around them are dropped by a max pool; the best of
    all are taken with their sizes and offsets.
    """

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            conv_norm(3, 8, stride=2), nn.ReLU(), conv_norm(8, 8, stride=2), nn.ReLU()
        )
        self.heat = nn.Conv2d(8, 3, 1)
        self.boxes = nn.Conv2d(8, 4, 1)

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        features = self.body(image)
        heat = torch.sigmoid(self.heat(features))
        heat = heat * (F.max_pool2d(heat, 3, 1, 1) == heat)
        rows, columns = (torch.arange(n) for n in heat.shape[2:])
        grid = torch.stack(torch.meshgrid(columns, rows, indexing="xy"), -1).float()
        best, classes = heat.max(1)
        scores, places = best.flatten(1).topk(5)
        classes = classes.flatten(1).gather(1, places)
        boxes = self.boxes(features).permute(0, 2, 3, 1)
        centre = (grid + boxes[..., :2]).flatten(1, 2)
        half = F.softplus(boxes[..., 2:]).flatten(1, 2) / 2
        corners = 4 * torch.cat((centre - half, centre + half), -1)
        return scores, classes, corners.gather(1, places[..., None].repeat(1, 1, 4))


class SpatialTransformer(nn.Module):
    """A picture sampled where a small network says (Jaderberg et al., 2015)."""

    def __init__(self) -> None:
        super().__init__()
        self.where = nn.Linear(16, 6)
        self.classes = nn.Conv2d(1, 5, 4, 4)

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        small = F.adaptive_avg_pool2d(image, 4).flatten(1)
        by = self.where(small).reshape(-1, 2, 3) * 0.3 + torch.eye(2, 3)
        grid = F.affine_grid(by, list(image.shape), align_corners=False)
        sampled = F.grid_sample(image, grid, align_corners=False)
        return sampled, self.classes(sampled).flatten(2).mean(-1)


class Vae(nn.Module):
    """A variational autoencoder; the noise is an input (Kingma and Welling, 2014)."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 8, 3, 2, 1), nn.GELU(), nn.Flatten(), nn.Linear(128, 8)
        )
        self.decoder = nn.Sequential(
            nn.Linear(4, 128),
            nn.Mish(),
            nn.Unflatten(1, (8, 4, 4)),
            nn.ConvTranspose2d(8, 1, 3, 2, 1, output_padding=1),
        )

    def forward(self, image: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_variance = self.encoder(image).chunk(2, -1)
        decoded = self.decoder(mean + noise * torch.exp(log_variance / 2))
        divergence = mean**2 + log_variance.exp() - log_variance - 1
        return torch.sigmoid(decoded), divergence.sum(-1) / 2


IMAGE: Final = {"image": normal("batch", 3, "height", "width")}
SIZES: Final = (
    {"batch": 2, "height": 24, "width": 32},
    {"batch": 1, "height": 40, "width": 28},
)

ARCHITECTURES: Final = (
    Architecture("unet", UNet, IMAGE, SIZES),
    Architecture("densenet", DenseNet, IMAGE, SIZES),
    Architecture("resnext", ResNeXt, IMAGE, SIZES),
    Architecture("efficientnet", EfficientNet, IMAGE, SIZES),
    Architecture(
        "inception",
        Inception,
        IMAGE,
        SIZES,
        sizes_of_runs={"dynamo": "heights by another formula than Conv's"},
    ),
    Architecture("style_transfer", StyleTransfer, IMAGE, SIZES),
    Architecture("centernet", CenterNet, IMAGE, SIZES),
    Architecture(
        "spatial_transformer",
        SpatialTransformer,
        {"image": normal("batch", 1, 16, 16)},
        ({"batch": 2}, {"batch": 3}),
    ),
    Architecture(
        "vae",
        Vae,
        {"image": normal("batch", 1, 8, 8), "noise": normal("batch", 4)},
        ({"batch": 2}, {"batch": 5}),
        misdeclared={"torchscript": r"output .* declares \[2, 1, 8, 8\]"},
    ),
)
