"""What several networks are made of."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

Activation = Callable[[], nn.Module]


class ConvNorm(nn.Sequential):
    """A convolution that keeps the size but for its stride, BatchNorm, activation."""

    def __init__(
        self,
        channels: int,
        out: int,
        kernel: int = 3,
        stride: int = 1,
        *,
        groups: int = 1,
        activation: Activation = nn.Identity,
    ) -> None:
        super().__init__(
            nn.Conv2d(
                channels,
                out,
                kernel,
                stride,
                kernel // 2,
                groups=groups,
                bias=False,
            ),
            nn.BatchNorm2d(out),
            activation(),
        )


class Residual(nn.Module):
    """*body* added to what comes in, or to what *skip* makes of it."""

    def __init__(
        self,
        body: nn.Module,
        skip: nn.Module | None = None,
        activation: Activation = nn.Identity,
    ) -> None:
        super().__init__()
        self.body = body
        self.skip = skip or nn.Identity()
        self.activation = activation()

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(self.body(x) + self.skip(x))


class Classes(nn.Sequential):
    """A score for each class, from the mean of each channel."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__(
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)
        )


class StackedLstm(nn.Module):
    """Layers of LSTM (Hochreiter and Schmidhuber, 1997), and what each step gives."""

    def __init__(self, width: int = 512, layers: int = 2) -> None:
        super().__init__()
        self.layers = nn.LSTM(width, width, layers, batch_first=True)

    def forward(self, steps: Tensor) -> Tensor:
        return self.layers(steps)[0]
