"""Random weights with which networks do what trained ones do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn


def draw_weights(model: nn.Module, feeds: Mapping[str, Tensor]) -> None:
    """Draw weights of torch's generator, and fit running statistics to *feeds*.

    As they are initialised, projections and embeddings are so small that attention is
    all but uniform, biases are zero and norms do nothing.  And a network whose
    BatchNorms do not know what comes in ends in infinities.
    """
    for name, weight in model.named_parameters():
        if weight.ndim > 1:
            weight.normal_(std=weight[0].numel() ** -0.5)
        elif name.endswith("weight"):
            weight.uniform_(0.5, 1.5)
        else:
            weight.normal_(std=0.1)
    with _statistics_that_follow(model):
        model(*feeds.values())


@contextmanager
def _statistics_that_follow(model: nn.Module) -> Iterator[None]:
    """A run within takes running statistics from what it meets, and uses them."""

    def follow(norm: Any, given: tuple[Tensor, ...]) -> None:
        channels = given[0].transpose(0, 1).flatten(1)
        # other inputs have other statistics
        spread = torch.empty(len(channels)).uniform_(0.8, 1.25)
        variance = channels.var(1, correction=0) * spread + 1e-3
        off = 0.1 * torch.randn(len(channels)) * variance.sqrt()
        norm.running_mean.copy_(channels.mean(1) + off)
        norm.running_var.copy_(variance)

    norms = [part for part in model.modules() if hasattr(part, "running_mean")]
    hooks = [norm.register_forward_pre_hook(follow) for norm in norms]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
