"""An architecture to export: how it is built, and what it is called with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

Exporter: TypeAlias = Literal["torchscript", "dynamo"]
EXPORTERS: Final[tuple[Exporter, ...]] = ("torchscript", "dynamo")

SLOW: Final[Mapping[Exporter, str]] = {"dynamo": "takes the exporter over ten seconds"}

Sizes: TypeAlias = Mapping[str, int]
"""Sizes of axes by their names."""


class Input(NamedTuple):
    """An input of a model: its axes, and what it is filled with.

    An axis is a number where its size is fixed, and the name of its size where the
    exported model must take any.
    """

    axes: tuple[str | int, ...]
    fill: Callable[[list[int]], Tensor]

    def draw(self, sizes: Sizes) -> Tensor:
        """Values for the *sizes*, of torch's generator."""
        axes = [sizes[a] if isinstance(a, str) else a for a in self.axes]
        return self.fill(axes)

    def dynamic(self) -> dict[int, str]:
        """The axes that the exported model must leave open, by number."""
        return {i: axis for i, axis in enumerate(self.axes) if isinstance(axis, str)}


def normal(*axes: str | int) -> Input:
    """Normally distributed float32."""
    return Input(axes, torch.randn)


def integers(below: int, *axes: str | int) -> Input:
    """int64 from 0 to *below*, exclusive."""
    return Input(axes, lambda sizes: torch.randint(below, sizes))


def mask(*axes: str | int) -> Input:
    """int64, 1 where there is something: row r ends r elements before the others."""

    def ends(sizes: list[int]) -> Tensor:
        rows, length = sizes[0], sizes[-1]
        lengths = (length - torch.arange(rows)).clamp(min=1)
        present = torch.arange(length) < lengths[:, None]
        between = [1] * (len(sizes) - 2)
        return present.reshape(rows, *between, length).expand(sizes).long()

    return Input(axes, ends)


@dataclass(frozen=True)
class Architecture:
    """A model to export and to run.

    Attributes:
        sizes: those it is exported with, and then others that it must run with.
        without: the exporters that are left out, and why.
        sizes_of_runs: the exporters in whose files more than 2 % of the sizes of values
            are known in a run only, and what they depend on.
        misdeclared: by exporter, an output that the file declares with a wrong shape,
            as a pattern of the warning that tells of it.
        dtype: of weights and of inputs that are no integers.
    """

    name: str
    build: Callable[[], nn.Module]
    inputs: Mapping[str, Input]
    sizes: Sequence[Sizes]
    without: Mapping[Exporter, str] = field(default_factory=dict)
    sizes_of_runs: Mapping[Exporter, str] = field(default_factory=dict)
    misdeclared: Mapping[Exporter, str] = field(default_factory=dict)
    dtype: torch.dtype = torch.float32

    def model(self) -> nn.Module:
        """The model in evaluation mode, with random weights that make it lively."""
        torch.manual_seed(0)
        model = self.build().eval().requires_grad_(False)
        enliven(model)
        return model.to(self.dtype)

    def draw(self, sizes: Sizes) -> dict[str, Tensor]:
        """Inputs of the *sizes*, the same in every run."""
        torch.manual_seed(1)
        drawn = {name: given.draw(sizes) for name, given in self.inputs.items()}
        return {
            name: tensor.to(self.dtype) if tensor.is_floating_point() else tensor
            for name, tensor in drawn.items()
        }


def enliven(model: nn.Module) -> None:
    """Draw weights with which every part of *model* shows in its outputs.

    As they are initialised, embeddings and projections are so small that attention is
    all but uniform, biases are zero and norms do nothing: a wrong one would not show.
    """
    for weight in model.parameters():
        if weight.ndim > 1:
            fan_in = weight[0].numel()
            weight.normal_(std=fan_in**-0.5)
        else:
            weight.add_(torch.randn_like(weight), alpha=0.1)
    for name, buffer in model.named_buffers():
        if name.endswith("running_mean"):
            buffer.normal_(std=0.2)
        elif name.endswith("running_var"):
            buffer.uniform_(0.5, 1.5)
