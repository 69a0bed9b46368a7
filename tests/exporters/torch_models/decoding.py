"""GPT-2 as a program that decodes word by word, with caches that have room."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Block(nn.Module):
    """Radford et al., 2019; new keys and values are put where they belong."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.parts, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(
        self, x: Tensor, at: Tensor, seen: Tensor, keys: Tensor, values: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        batch, length, width = x.shape
        shape = (batch, length, self.heads, width // self.heads)
        parts = self.parts(self.before(x)).split(width, 2)
        q, k, v = (part.reshape(shape).transpose(1, 2) for part in parts)
        keys, values = keys.index_copy(2, at, k), values.index_copy(2, at, v)
        y = nn.functional.scaled_dot_product_attention(q, keys, values, attn_mask=seen)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        inner = nn.functional.gelu(self.up(self.between(x)), approximate="tanh")
        return x + self.down(inner), keys, values


class Decoder(nn.Module):
    """The next word, where it stands, and the caches with the last one."""

    def __init__(
        self, words: int = 50, width: int = 32, heads: int = 4, layers: int = 2,
        room: int = 80,
    ) -> None:  # fmt: skip
        super().__init__()
        self.cache = (1, heads, room, width // heads)
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(room, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, word: Tensor, at: Tensor, *caches: Tensor) -> tuple[Tensor, ...]:
        """*word*: [1, 1]; *at*: [1]; of each layer keys and values."""
        x = self.words(word) + self.places(at)
        seen = torch.arange(self.cache[2])[None, None, None] <= at
        kept: list[Tensor] = []
        for number, block in enumerate(self.blocks):
            x, *new = block(x, at, seen, *caches[2 * number : 2 * number + 2])
            kept += new
        return self.head(self.norm(x)).argmax(-1), at + 1, *kept

    def empty(self) -> list[Tensor]:
        """Caches with nothing in them."""
        dtype = self.head.weight.dtype
        return [
            torch.zeros(self.cache, dtype=dtype) for _ in range(2 * len(self.blocks))
        ]
