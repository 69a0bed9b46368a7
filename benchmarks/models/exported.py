"""A decoder whose cache grows, written in PyTorch and exported by it."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Final, Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional as F

TorchExporter: TypeAlias = Literal["torchscript", "dynamo"]
TORCH_EXPORTERS: Final[tuple[TorchExporter, ...]] = ("torchscript", "dynamo")


class _Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first = nn.LayerNorm(width)
        self.both = nn.Linear(width, 3 * width)
        self.mix = nn.Linear(width, width)
        self.second = nn.LayerNorm(width)
        self.inner = nn.Linear(width, 4 * width)
        self.outer = nn.Linear(4 * width, width)

    def forward(
        self, x: Tensor, key: Tensor, value: Tensor, mask: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        batch, length, width = x.shape

        def split(part: Tensor) -> Tensor:
            return part.view(batch, length, self.heads, -1).transpose(1, 2)

        query, k, v = map(split, self.both(self.first(x)).chunk(3, dim=-1))
        key, value = torch.cat((key, k), 2), torch.cat((value, v), 2)
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        x = x + self.mix(mixed.transpose(1, 2).reshape(batch, length, width))
        hidden = F.gelu(self.inner(self.second(x)), approximate="tanh")
        return x + self.outer(hidden), key, value


class Decoder(nn.Module):
    """A decoder as GPT-2: ids and a cache to scores and a longer cache.

    The inputs and outputs are those of :func:`~.varying.growing_decoder`.
    """

    def __init__(
        self,
        *,
        layers: int = 12,
        width: int = 768,
        heads: int = 12,
        words: int = 8192,
        places: int = 1024,
    ) -> None:
        super().__init__()
        self.word = nn.Embedding(words, width)
        self.place = nn.Embedding(places, width)
        self.blocks = nn.ModuleList(_Block(width, heads) for _ in range(layers))
        self.last = nn.LayerNorm(width)
        self.scores = nn.Linear(width, words, bias=False)

    def forward(self, input_ids: Tensor, *cache: Tensor) -> tuple[Tensor, ...]:
        """*cache*: of each layer keys and values, batch × head × past × size."""
        past, length = cache[0].shape[2], input_ids.shape[1]
        columns = torch.arange(past + length, device=input_ids.device)
        rows = torch.arange(length, device=input_ids.device) + past
        mask = columns <= rows[:, None]
        x = self.word(input_ids) + self.place(rows)
        longer: list[Tensor] = []
        for number, block in enumerate(self.blocks):
            x, key, value = block(x, *cache[2 * number : 2 * number + 2], mask)
            longer += key, value
        return self.scores(self.last(x)), *longer


def export_decoder(model: Decoder, exporter: TorchExporter, path: Path) -> None:
    """Write *model* to *path*, with the batch and both lengths left open."""
    heads, size = model.blocks[0].heads, model.word.embedding_dim
    layers = range(len(model.blocks))
    kept = [f"{n}.{kind}" for n in layers for kind in ("key", "value")]
    dtype = model.word.weight.dtype
    cache = [torch.zeros(2, heads, 5, size // heads, dtype=dtype) for _ in kept]
    names = ["input_ids", *(f"past_key_values.{each}" for each in kept)]
    axes = [{0: "batch", 1: "length"}, *[{0: "batch", 2: "past"} for _ in kept]]
    arguments = {
        "args": (torch.zeros(2, 3, dtype=torch.int64), *cache),
        "f": path,
        "input_names": names,
        "output_names": ["scores", *(f"present.{each}" for each in kept)],
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what it traces, its own affair
        if exporter == "torchscript":
            torch.onnx.export(
                model,
                **arguments,
                dynamic_axes=dict(zip(names, axes, strict=True)),
                opset_version=17,
                dynamo=False,
            )
        else:
            torch.onnx.export(
                model,
                **arguments,
                dynamic_shapes=(axes[0], tuple(axes[1:])),
                dynamo=True,
                external_data=False,
                verbose=False,
            )
