"""Models of any size, with the shapes that exporters compute for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx

from .graph import Array, Exporter, Graph

_LOWEST = float(np.finfo(np.float32).min)


class _Sizes:
    """Sizes of values as scalars, and shapes made of them, as exporters write them."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def of(self, value: str, axis: int) -> str:
        """The size of an axis, as a vector of one."""
        g = self.graph
        size = g.add("Gather", g.add("Shape", value), _scalar(g, axis), axis=0)
        return g.add("Unsqueeze", size, g.integers(0))

    def shape(self, *sizes: str | int) -> str:
        """A shape of sizes and numbers."""
        g = self.graph
        parts = [g.integers(s) if isinstance(s, int) else s for s in sizes]
        return g.add("Concat", *parts, axis=0)


def _scalar(g: Graph, number: int) -> str:
    return g.constant(np.array(number, np.int64))


def varying_bert(
    *,
    layers: int = 12,
    width: int = 768,
    heads: int = 12,
    inner: int = 3072,
    words: int = 30522,
    places: int = 512,
) -> onnx.ModelProto:
    """BERT-base of any batch and length: ids and a mask to the last hidden state."""
    g = Graph(Exporter.DYNAMO)
    sizes = _Sizes(g)
    ids, size = "input_ids", width // heads
    value = g.add(
        "Gather", g.weight("embeddings.word_embeddings.weight", words, width), ids
    )
    place = g.weight("embeddings.position_embeddings.weight", places, width)
    length = sizes.of(ids, 1)
    rows = g.add("Slice", place, g.integers(0), length, g.integers(0))
    value = g.add("Add", value, rows)
    value = g.layer_norm(value, "embeddings.LayerNorm", width, 1e-12)
    mask = g.add("Unsqueeze", "attention_mask", g.integers(1, 2))
    mask = g.add("Sub", g.scalar(1), g.add("Cast", mask, to=1))
    mask = g.add("Mul", mask, g.scalar(_LOWEST))

    def split(value: str, name: str) -> str:
        made = g.linear(value, name, width, width)
        shape = sizes.shape(sizes.of(value, 0), sizes.of(value, 1), heads, size)
        return g.transpose(g.add("Reshape", made, shape), 0, 2, 1, 3)

    for layer in range(layers):
        name = f"encoder.layer.{layer}"
        query, key, content = (
            split(value, f"{name}.attention.self.{part}")
            for part in ("query", "key", "value")
        )
        mixed = _attention(g, query, key, content, mask, size)
        mixed = g.transpose(mixed, 0, 2, 1, 3)
        shape = sizes.shape(sizes.of(mixed, 0), sizes.of(mixed, 1), width)
        mixed = g.add("Reshape", mixed, shape)
        mixed = g.linear(mixed, f"{name}.attention.output.dense", width, width)
        value = g.layer_norm(
            g.add("Add", mixed, value), f"{name}.attention.output.norm", width, 1e-12
        )
        hidden = g.gelu(g.linear(value, f"{name}.intermediate.dense", width, inner))
        hidden = g.linear(hidden, f"{name}.output.dense", inner, width)
        value = g.layer_norm(
            g.add("Add", hidden, value), f"{name}.output.norm", width, 1e-12
        )
    inputs = {
        ids: (onnx.TensorProto.INT64, ("batch", "length")),
        "attention_mask": (onnx.TensorProto.INT64, ("batch", "length")),
    }
    return g.finish_varying("varying-bert", inputs, {value: ("batch", "length", width)})


def growing_decoder(
    *,
    layers: int = 12,
    width: int = 768,
    heads: int = 12,
    words: int = 8192,
    places: int = 1024,
) -> onnx.ModelProto:
    """A decoder as GPT-2 with a cache of any length: ids to scores and a longer cache.

    Positions and the causal mask follow from the length of the cache.
    """
    g = Graph(Exporter.DYNAMO)
    sizes = _Sizes(g)
    ids, size = "input_ids", width // heads
    inputs: dict[str, tuple[int, Sequence[str | int]]] = {
        ids: (onnx.TensorProto.INT64, ("batch", "length"))
    }
    outputs: dict[str, Sequence[str | int]] = {}
    first = "past_key_values.0.key"
    length, past = sizes.of(ids, 1), sizes.of(first, 2)
    whole = g.add("Add", past, length)
    value = g.add("Gather", g.weight("transformer.wte.weight", words, width), ids)
    place = g.weight("transformer.wpe.weight", places, width)
    value = g.add("Add", value, g.add("Slice", place, past, whole, g.integers(0)))
    numbers = g.constant(np.arange(places))
    columns = g.add("Slice", numbers, g.integers(0), whole, g.integers(0))
    rows = g.add("Slice", numbers, past, whole, g.integers(0))
    rows = g.add("Unsqueeze", rows, g.integers(1))
    seen = g.add("LessOrEqual", columns, rows)
    mask = g.add("Where", seen, g.scalar(0), g.scalar(_LOWEST))

    for layer in range(layers):
        name = f"transformer.h.{layer}"
        normal = g.layer_norm(value, f"{name}.ln_1", width, 1e-5)
        both = g.linear(normal, f"{name}.attn.c_attn", width, 3 * width)
        parts = g.add_many("Split", 3, both, axis=2, num_outputs=3)
        query, key, content = (
            g.transpose(
                g.add(
                    "Reshape",
                    part,
                    sizes.shape(sizes.of(part, 0), sizes.of(part, 1), heads, size),
                ),
                0, 2, 1, 3,
            )
            for part in parts
        )  # fmt: skip
        longer = []
        for kind, new in (("key", key), ("value", content)):
            earlier = f"past_key_values.{layer}.{kind}"
            inputs[earlier] = (
                onnx.TensorProto.FLOAT,
                ("batch", heads, "past", size),
            )
            joined = g.add("Concat", earlier, new, axis=2)
            longer.append(g.rename(joined, f"present.{layer}.{kind}"))
            outputs[longer[-1]] = ("batch", heads, "past + length", size)
        mixed = _attention(g, query, *longer, mask, size)
        mixed = g.transpose(mixed, 0, 2, 1, 3)
        shape = sizes.shape(sizes.of(mixed, 0), sizes.of(mixed, 1), width)
        mixed = g.add("Reshape", mixed, shape)
        mixed = g.linear(mixed, f"{name}.attn.c_proj", width, width)
        value = g.add("Add", mixed, value)
        normal = g.layer_norm(value, f"{name}.ln_2", width, 1e-5)
        hidden = g.gelu(g.linear(normal, f"{name}.mlp.c_fc", width, 4 * width))
        hidden = g.linear(hidden, f"{name}.mlp.c_proj", 4 * width, width)
        value = g.add("Add", value, hidden)
    value = g.layer_norm(value, "transformer.ln_f", width, 1e-5)
    scores = g.add("MatMul", value, g.weight("lm_head.weight", width, words))
    return g.finish_varying(
        "growing-decoder", inputs, {scores: ("batch", "length", words), **outputs}
    )


def _attention(g: Graph, query: str, key: str, value: str, mask: str, size: int) -> str:
    scores = g.add("MatMul", query, g.transpose(key, 0, 1, 3, 2))
    scores = g.add("Mul", scores, g.scalar(size**-0.5))
    weights = g.add("Softmax", g.add("Add", scores, mask), axis=-1)
    return g.add("MatMul", weights, value)


def bert_feeds(batch: int, length: int, words: int = 30522) -> dict[str, Array]:
    """Inputs of :func:`varying_bert`; each sequence is padded by a few tokens."""
    random = np.random.default_rng(batch * 1000 + length)
    mask = np.ones((batch, length), np.int64)
    mask[:, length - length // 8 :] = 0
    ids = random.integers(0, words, (batch, length))
    return {"input_ids": ids, "attention_mask": mask}


def decoder_feeds(
    length: int, past: int, *, layers: int = 12, heads: int = 12, size: int = 64
) -> Mapping[str, Array]:
    """Inputs of :func:`growing_decoder`: *length* ids behind a random cache."""
    random = np.random.default_rng(past)
    feeds = {"input_ids": random.integers(0, 8192, (1, length))}
    for layer in range(layers):
        for kind in ("key", "value"):
            feeds[f"past_key_values.{layer}.{kind}"] = random.standard_normal(
                (1, heads, past, size), np.float32
            )
    return feeds
