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
    # bound values have one size, so each run takes the same cache
    yield "gpt2-decode-fp32", SEQUENCES["gpt2-decode"]._replace(grows=False)
    yield f"{LINKS}-launches", Network(chain, {"rows": (8, 64)})


ON_GPUS: Final[Mapping[str, Network]] = dict(_variants())
"""By their names: batches of pictures of 224², and of sentences of 128 words; a word
behind 100 others; and what says how long a launch takes."""
