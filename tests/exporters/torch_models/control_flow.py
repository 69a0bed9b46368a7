"""Models that branch and repeat by what they compute.

Each exporter has its own way to write that: TorchScript compiles Python's ``if``,
``for`` and ``while``, ``torch.export`` has functions for them.  Both are written here;
where there is no ``torch.export`` to go by, the model runs as TorchScript.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch._higher_order_ops import scan, while_loop

from .architecture import EXPORTERS, Architecture, Input, integers, normal


def scripted(function: Callable[..., Any]) -> Any:
    """*function* compiled by TorchScript, which is deprecated and still much used."""
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", "`torch.jit.script` is depr", DeprecationWarning
        )
        return torch.jit.script(function)


@scripted
def brighten(image: Tensor, dark: Tensor, bright: Tensor) -> Tensor:
    if bool(image.mean() > 0):
        return torch.tanh(image * bright)
    else:
        if bool(image.min() < -100):
            return image.clamp(min=-100.0)
        return image * dark + 1


class Branches(nn.Module):
    """Another computation for dark pictures than for bright ones."""

    def __init__(self) -> None:
        super().__init__()
        self.dark = nn.Parameter(torch.empty(3, 1, 1))
        self.bright = nn.Parameter(torch.empty(3, 1, 1))

    def forward(self, image: Tensor) -> Tensor:
        if not torch.compiler.is_exporting():
            return brighten(image, self.dark, self.bright)

        def dark(image: Tensor) -> Tensor:
            return torch.cond(
                image.min() < -100,
                lambda image: image.clamp(min=-100.0),
                lambda image: image * self.dark + 1,
                (image,),
            )

        def bright(image: Tensor) -> Tensor:
            return torch.tanh(image * self.bright)

        return torch.cond(image.mean() > 0, bright, dark, (image,))


@scripted
def settle(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    y = torch.zeros_like(x)
    change = torch.ones([])
    steps = torch.zeros([], dtype=torch.long)
    while bool(change > 1e-3):
        new = torch.tanh(y @ weight * 0.5 + x)
        change = (new - y).abs().max()
        y = new
        steps = steps + 1
    return y, steps


class DeepEquilibrium(nn.Module):
    """A layer repeated until it changes nothing more (Bai et al., 2019)."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(8, 8))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        if not torch.compiler.is_exporting():
            return settle(x, self.weight)

        def unsettled(y: Tensor, change: Tensor, steps: Tensor) -> Tensor:
            return change > 1e-3

        def again(y: Tensor, change: Tensor, steps: Tensor) -> tuple[Tensor, ...]:
            new = torch.tanh(y @ self.weight * 0.5 + x)
            return new, (new - y).abs().max(), steps + 1

        zero = torch.zeros([], dtype=torch.long)
        start = torch.zeros_like(x), torch.ones([]), zero
        y, _, steps = while_loop(unsettled, again, start)
        return y, steps


@scripted
def remember(x: Tensor, state: Tensor, decay: Tensor) -> tuple[Tensor, Tensor]:
    outputs: list[Tensor] = []
    for step in range(x.size(0)):
        state = state * decay + x[step] * (1 - decay)
        outputs.append(torch.relu(state))
    return torch.stack(outputs), state


class StateSpace(nn.Module):
    """A linear recurrence over time, as state-space models have (Gu et al., 2022)."""

    def __init__(self) -> None:
        super().__init__()
        self.decay = nn.Parameter(torch.zeros(6))
        self.leave = nn.Linear(6, 4)

    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        decay = torch.sigmoid(self.decay)
        if not torch.compiler.is_exporting():
            y, state = remember(x, state, decay)
            return self.leave(y), state

        def step(state: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            state = state * decay + x * (1 - decay)
            return state, torch.relu(state)

        state, y = scan(step, state, x)
        return self.leave(y), state


@scripted
def write(words: Tensor, embedding: Tensor, scores: Tensor, room: int) -> Tensor:
    while room > 0 and int(words[-1]) != 0:
        seen = embedding[words].mean(0)
        words = torch.cat((words, (scores @ seen).argmax().reshape(1)))
        room -= 1
    return words


class GreedyDecoder(nn.Module):
    """Writes a word after the other until one is 0, or until it has written six."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Parameter(torch.empty(12, 8))
        self.scores = nn.Parameter(torch.empty(12, 8))

    def forward(self, words: Tensor) -> Tensor:
        return write(words, self.embedding, self.scores, 6)


class KeptTokens(nn.Module):
    """Only those elements go on that score enough; how many, nobody knows before."""

    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Linear(8, 1)
        self.leave = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        keep = self.score(x).squeeze(-1) > 0
        return self.leave(x[keep]), keep.nonzero()


def pictures(sizes: list[int]) -> Tensor:
    """Two dark pictures, three that are darker than the model takes, or four bright."""
    return torch.randn(sizes) + {2: -2, 3: -200, 4: 2}[sizes[0]]


ARCHITECTURES: Final = (
    Architecture(
        "branches",
        Branches,
        {"image": Input(("batch", 3, 4, 4), pictures)},
        ({"batch": 2}, {"batch": 3}, {"batch": 4}),
    ),
    Architecture(
        "deep_equilibrium",
        DeepEquilibrium,
        {"x": normal("batch", 8)},
        ({"batch": 2}, {"batch": 5}),
        sizes_of_runs=dict.fromkeys(EXPORTERS, "a loop's state, of any shape"),
    ),
    Architecture(
        "state_space",
        StateSpace,
        {"x": normal("time", "batch", 6), "state": normal("batch", 6)},
        ({"time": 4, "batch": 2}, {"time": 9, "batch": 3}),
        sizes_of_runs=dict.fromkeys(EXPORTERS, "a loop's state, of any shape"),
    ),
    Architecture(
        "greedy_decoder",
        GreedyDecoder,
        {"words": integers(12, "words")},
        ({"words": 2}, {"words": 4}, {"words": 11}),
        sizes_of_runs={"torchscript": "how many words have been written"},
        without={"dynamo": "torch.export's loops keep the shapes of what they carry"},
    ),
    Architecture(
        "kept_tokens",
        KeptTokens,
        {"x": normal("batch", "time", 8)},
        ({"batch": 2, "time": 5}, {"batch": 3, "time": 9}),
        sizes_of_runs=dict.fromkeys(EXPORTERS, "how many elements are kept"),
    ),
)
