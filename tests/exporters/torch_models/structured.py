"""Models for tables, graphs and series of numbers."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .architecture import EXPORTERS, Architecture, integers, normal


class DeepAndCross(nn.Module):
    """Bags of categories and numbers, crossed with each other (Wang et al., 2021)."""

    def __init__(self) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(50, 6, mode="mean")
        self.user = nn.Embedding(20, 6)
        self.cross = nn.ModuleList(nn.Linear(16, 16) for _ in range(2))
        self.deep = nn.Sequential(
            nn.Linear(16, 12), nn.BatchNorm1d(12), nn.SELU(), nn.Linear(12, 4)
        )
        self.score = nn.Linear(20, 1)

    def forward(self, user: Tensor, bought: Tensor, numbers: Tensor) -> Tensor:
        x = torch.cat((self.user(user), self.bag(bought), torch.log1p(numbers**2)), -1)
        crossed = x
        for cross in self.cross:
            crossed = x * cross(crossed) + crossed
        both = torch.cat((crossed, self.deep(x)), -1)
        return torch.sigmoid(self.score(both)).squeeze(-1)


class GraphNetwork(nn.Module):
    """Messages along edges, summed and averaged where they meet (Gilmer, 2017)."""

    def __init__(self) -> None:
        super().__init__()
        self.message = nn.Linear(12, 8)
        self.update = nn.GRUCell(8, 6)
        self.classes = nn.Linear(6, 3)

    def forward(self, nodes: Tensor, edges: Tensor) -> tuple[Tensor, Tensor]:
        start, end = edges[0], edges[1]
        for _ in range(2):
            message = F.relu(self.message(torch.cat((nodes[start], nodes[end]), -1)))
            total = torch.zeros_like(nodes[:, :1]).repeat(1, 8)
            nodes = self.update(
                total.scatter_add(0, end[:, None].repeat(1, 8), message), nodes
            )
        places = end.unsqueeze(-1).expand(-1, 6)
        largest = torch.scatter_reduce(nodes, 0, places, nodes[start], "amax")
        return self.classes(nodes), largest


class NBeats(nn.Module):
    """A forecast, block by block of what is left (Oreshkin et al., 2020)."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(12, 16), nn.Softsign(), nn.Linear(16, 6))
            for _ in range(2)
        )
        self.register_buffer("powers", torch.arange(3.0))

    def forward(self, series: Tensor) -> Tensor:
        mean = series.mean(-1, keepdim=True)
        spread = series.std(-1, keepdim=True)
        left = ((series - mean) / spread).flip(-1)
        when = torch.linspace(-1, 1, 16).unsqueeze(-1) ** self.powers
        forecast = torch.zeros_like(series[:, :4])
        for block in self.blocks:
            trend, season = block(left).chunk(2, -1)
            waves = torch.cos(when * torch.pi)
            fitted = trend @ when.T + season @ waves.T
            left, forecast = left - fitted[:, :12], forecast + fitted[:, 12:]
        return torch.cumsum(forecast * spread + mean, -1)


ARCHITECTURES: Final = (
    Architecture(
        "deep_and_cross",
        DeepAndCross,
        {
            "user": integers(20, "batch"),
            "bought": integers(50, "batch", "bought"),
            "numbers": normal("batch", 4),
        },
        ({"batch": 3, "bought": 4}, {"batch": 5, "bought": 7}),
        sizes_of_runs=dict.fromkeys(EXPORTERS, "the bags of EmbeddingBag, by a loop"),
    ),
    Architecture(
        "graph_network",
        GraphNetwork,
        {"nodes": normal("nodes", 6), "edges": integers(5, 2, "edges")},
        ({"nodes": 5, "edges": 9}, {"nodes": 8, "edges": 20}),
        misdeclared={"torchscript": r"output .* declares \['If\d+_dim_0'\]"},
    ),
    Architecture(
        "nbeats", NBeats, {"series": normal("batch", 12)}, ({"batch": 2}, {"batch": 5})
    ),
)
