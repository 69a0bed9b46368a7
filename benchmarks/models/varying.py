"""Models of any size, with the shapes that exporters compute for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

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


def text_recogniser(*, classes: int = 6625, states: int = 48) -> onnx.ModelProto:
    """A reader of lines of text, as PP-OCR has them: pictures of a height of 48 and any
    width through separable convolutions and two bidirectional LSTMs to the
    probabilities of characters for each eighth pixel."""
    g = Graph(Exporter.DYNAMO)

    def convolved(
        value: str, name: str, shape: Sequence[int], **attributes: Any
    ) -> str:
        scale = (2 / np.prod(shape[1:])) ** 0.5
        weight = g.weight(f"{name}.weight", *shape, scale=float(scale))
        return g.add(
            "Conv", value, weight, g.weight(f"{name}.bias", shape[0]), **attributes
        )

    border = {"pads": [1, 1, 1, 1]}
    value = convolved("x", "stem", (16, 3, 3, 3), strides=[2, 2], **border)
    value = g.add("HardSwish", value)
    sizes = [(16, 32, 1, 1), (32, 64, 2, 1), (64, 64, 1, 1), (64, 128, 2, 1)]
    sizes += [(128, 128, 1, 1), (128, 256, 2, 1), (256, 256, 1, 1)]
    for number, (into, out, down, along) in enumerate(sizes):
        value = convolved(
            value, f"{number}.depthwise", (into, 1, 3, 3),
            group=into, strides=[down, along], **border,
        )  # fmt: skip
        value = g.add("HardSwish", value)
        value = convolved(value, f"{number}.pointwise", (out, into, 1, 1))
        value = g.add("HardSwish", value)
    value = g.add("MaxPool", value, kernel_shape=[3, 2], strides=[3, 2])
    value = g.transpose(g.add("Squeeze", value, g.integers(2)), 2, 0, 1)
    for layer, width in enumerate((256, 2 * states)):
        made = g.add_many(
            "LSTM", 1, value,
            g.weight(f"{layer}.input", 2, 4 * states, width, scale=width**-0.5),
            g.weight(f"{layer}.state", 2, 4 * states, states, scale=states**-0.5),
            g.weight(f"{layer}.lstm.bias", 2, 8 * states),
            hidden_size=states, direction="bidirectional",
        )  # fmt: skip
        value = g.transpose(made[0], 0, 2, 1, 3)
        value = g.add("Reshape", value, g.integers(0, 0, 2 * states))
    value = g.linear(g.transpose(value, 1, 0, 2), "characters", 2 * states, classes)
    value = g.add("Softmax", value, axis=-1)
    shape = ("batch", 3, 48, "width")
    inputs = {"x": (onnx.TensorProto.FLOAT, shape)}
    return g.finish_varying("recogniser", inputs, {value: ("batch", None, classes)})


def line_of_text(width: int) -> dict[str, Array]:
    """A picture for :func:`text_recogniser`."""
    random = np.random.default_rng(width)
    return {"x": random.standard_normal((1, 3, 48, width), np.float32)}


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
