"""Networks in the sizes that GPUs are measured with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor, nn

from . import SEQUENCES, ZOO, Network

BATCHES: Final = (1, 8, 64)
LINKS: Final = 64
"""Nodes of the chain that says what a launch takes."""

SIDE: Final = 4096
"""Of large matrices."""

IMAGES: Final = (16, 256, 56, 56)
"""Large ones, whose channels become as many."""

TIMES: Final = 8
"""How often a large layer is applied, so that types change at the ends alone."""


class Narrow(nn.Module):
    """A network whose weights are of 16 bits; numbers come and go as float32.

    Converted to another type as a whole, it computes in that.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network.half()

    def forward(self, *given: Tensor) -> Tensor:
        dtype = next(self.network.parameters()).dtype
        found = self.network(
            *(x.to(dtype) if x.is_floating_point() else x for x in given)
        )
        return found.to(torch.float32) if dtype is torch.float16 else found


def narrow(build: Callable[..., nn.Module], **sizes: Any) -> nn.Module:
    """What *build* gives, in float16."""
    return Narrow(build(**sizes))


class Repeated(nn.Module):
    """A layer that is applied to its own results."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(TIMES):
            x = self.layer(x)
        return x


def products() -> nn.Module:
    """Products of large matrices, whose results are as large as their factors."""
    layer = nn.Linear(SIDE, SIDE, bias=False)
    nn.init.normal_(layer.weight, std=SIDE**-0.5)
    return Repeated(layer)


def convolutions() -> nn.Module:
    """Convolutions by windows of 3²."""
    channels = IMAGES[1]
    layer = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
    nn.init.normal_(layer.weight, std=(9 * channels) ** -0.5)
    return Repeated(layer)


def chain() -> nn.Module:
    """Rows that are normalised again and again, each time by a kernel."""
    return nn.Sequential(*(nn.Softmax(-1) for _ in range(LINKS)))


def _variants() -> Iterator[tuple[str, Network]]:
    for name, network in (
        ("resnet50", ZOO["resnet50"]),
        ("bert-base", SEQUENCES["bert-base"]),
    ):
        for batch in BATCHES:
            inputs = {key: (batch, *shape[1:]) for key, shape in network.inputs.items()}
            whole = network._replace(inputs=inputs)
            yield f"{name}-{batch}-fp32", whole
            half = whole._replace(build=partial(narrow, network.build))
            yield f"{name}-{batch}-fp16", half
    for name, network in (
        ("products", Network(products, {"rows": (SIDE, SIDE)})),
        ("convolutions", Network(convolutions, {"image": IMAGES})),
    ):
        yield f"{name}-fp32", network
        half = network._replace(build=partial(narrow, network.build))
        yield f"{name}-fp16", half
    # bound values have one size, so each run takes the same cache
    yield "gpt2-decode-fp32", SEQUENCES["gpt2-decode"]._replace(grows=False)
    yield f"{LINKS}-launches", Network(chain, {"rows": (8, 64)})


ON_GPUS: Final[Mapping[str, Network]] = dict(_variants())
"""By their names: batches of pictures of 224², and of sentences of 128 words; a word
behind 100 others; large layers, which say what share of its peak the card reaches; and
what says how long a launch takes."""
