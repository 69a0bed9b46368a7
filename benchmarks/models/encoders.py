"""BERT, DistilBERT and the Vision Transformer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .graph import Case, Exporter, Graph

_LOWEST = float(np.finfo(np.float32).min)


def bert(
    exporter: Exporter,
    *,
    layers: int = 12,
    width: int = 768,
    heads: int = 12,
    inner: int = 3072,
    words: int = 30522,
    length: int = 128,
    padding: int = 20,
) -> Case:
    """BERT-base of one sequence (Devlin et al. 2018): ids to the last hidden state."""
    g = Graph(exporter)
    ids = "input_ids"
    feeds = {
        ids: g.random.integers(0, words, (1, length)),
        "attention_mask": _padded(length, padding),
        "token_type_ids": np.zeros((1, length), np.int64),
    }
    value = g.add(
        "Gather", g.weight("embeddings.word_embeddings.weight", words, width), ids
    )
    kind = g.weight("embeddings.token_type_embeddings.weight", 2, width)
    value = g.add("Add", value, g.add("Gather", kind, "token_type_ids"))
    place = g.weight("embeddings.position_embeddings.weight", 512, width)
    positions = g.constant(np.arange(length)[None])
    value = g.add("Add", value, g.add("Gather", place, positions))
    value = g.layer_norm(value, "embeddings.LayerNorm", width, 1e-12)
    mask = (_mask_of_dynamo if exporter is Exporter.DYNAMO else _mask_of_torchscript)(
        g, length
    )
    for layer in range(layers):
        name = f"encoder.layer.{layer}"
        mixed = _self_attention(
            g, value, f"{name}.attention.self", mask, heads, length, width
        )
        mixed = g.linear(mixed, f"{name}.attention.output.dense", width, width)
        value = g.layer_norm(
            g.add("Add", mixed, value),
            f"{name}.attention.output.LayerNorm",
            width,
            1e-12,
        )
        hidden = g.gelu(g.linear(value, f"{name}.intermediate.dense", width, inner))
        hidden = g.linear(hidden, f"{name}.output.dense", inner, width)
        value = g.layer_norm(
            g.add("Add", hidden, value), f"{name}.output.LayerNorm", width, 1e-12
        )
    return g.finish("bert", feeds, [value])


def _padded(length: int, padding: int) -> np.ndarray:
    return (np.arange(length) < length - padding).astype(np.int64)[None]


def _mask_of_torchscript(g: Graph, length: int) -> str:
    mask = g.add("Unsqueeze", "attention_mask", g.integers(1))
    mask = g.add("Unsqueeze", mask, g.integers(2))
    mask = g.add("Cast", mask, to=1)
    mask = g.add("Sub", g.scalar(1), mask)
    return g.add("Mul", mask, g.scalar(_LOWEST))


def _mask_of_dynamo(g: Graph, length: int) -> str:
    present = g.add("Cast", "attention_mask", to=9)
    places = np.zeros((1, 1, 1, length, 2), np.int64)
    places[..., 1] = np.arange(length)
    keys = g.add("GatherND", present, g.constant(places), batch_dims=0)
    queries = g.constant(np.ones((1, 1, length, 1), np.bool_))
    both = g.add("And", queries, keys)
    return g.add("Where", both, g.scalar(0), g.scalar(_LOWEST))


def _self_attention(
    g: Graph,
    value: str,
    name: str,
    mask: str,
    heads: int,
    length: int,
    width: int,
    parts: Sequence[str] = ("query", "key", "value"),
) -> str:
    size = width // heads
    split = (1, length, -1, size)
    if g.exporter is Exporter.DYNAMO:
        query, key, content = (
            g.transpose(
                g.reshape(g.linear(value, f"{name}.{part}", width, width), *split),
                0, 2, 1, 3,
            )
            for part in parts
        )  # fmt: skip
        mixed = g.attention(query, key, content, mask, (1, heads, length, size))
    else:
        query = g.linear(value, f"{name}.query", width, width)
        key = g.reshape(g.linear(value, f"{name}.key", width, width), *split)
        content = g.reshape(g.linear(value, f"{name}.value", width, width), *split)
        content = g.transpose(content, 0, 2, 1, 3)
        query = g.transpose(g.reshape(query, *split), 0, 2, 1, 3)
        scores = g.add("MatMul", query, g.transpose(key, 0, 2, 3, 1))
        scores = g.add("Div", scores, g.scalar(size**0.5))
        weights = g.add("Softmax", g.add("Add", scores, mask), axis=-1)
        mixed = g.add("MatMul", weights, content)
    return g.reshape(g.transpose(mixed, 0, 2, 1, 3), 1, length, width)


def distilbert(
    *,
    layers: int = 6,
    width: int = 768,
    heads: int = 12,
    inner: int = 3072,
    words: int = 30522,
    length: int = 128,
    padding: int = 20,
) -> Case:
    """DistilBERT of one sequence (Sanh et al. 2019), by the older exporter."""
    g = Graph(Exporter.TORCHSCRIPT)
    size = width // heads
    split = (1, -1, heads, size)
    feeds = {
        "input_ids": g.random.integers(0, words, (1, length)),
        "attention_mask": _padded(length, padding),
    }
    table = g.weight("embeddings.word_embeddings.weight", words, width)
    place = g.weight("embeddings.position_embeddings.weight", 512, width)
    value = g.add("Gather", table, "input_ids")
    positions = g.constant(np.arange(length)[None])
    value = g.add("Add", value, g.add("Gather", place, positions))
    value = g.layer_norm(value, "embeddings.LayerNorm", width, 1e-12)
    for layer in range(layers):
        name = f"transformer.layer.{layer}"
        query, key, content = (
            g.reshape(
                g.linear(value, f"{name}.attention.{part}_lin", width, width), *split
            )
            for part in "qkv"
        )
        query, content = (g.transpose(x, 0, 2, 1, 3) for x in (query, content))
        query = g.add("Div", query, g.scalar(size**0.5))
        scores = g.add("MatMul", query, g.transpose(key, 0, 2, 3, 1))
        absent = g.add("Equal", "attention_mask", g.constant(np.array(0)))
        absent = g.reshape(absent, 1, 1, 1, length)
        absent = g.add("Expand", absent, g.integers(1, heads, length, length))
        scores = g.add("Where", absent, g.scalar(_LOWEST), scores)
        mixed = g.add("MatMul", g.add("Softmax", scores, axis=-1), content)
        mixed = g.reshape(g.transpose(mixed, 0, 2, 1, 3), 1, -1, width)
        mixed = g.linear(mixed, f"{name}.attention.out_lin", width, width)
        value = g.layer_norm(
            g.add("Add", mixed, value), f"{name}.sa_layer_norm", width, 1e-12
        )
        hidden = g.gelu(g.linear(value, f"{name}.ffn.lin1", width, inner))
        hidden = g.linear(hidden, f"{name}.ffn.lin2", inner, width)
        value = g.layer_norm(
            g.add("Add", hidden, value), f"{name}.output_layer_norm", width, 1e-12
        )
    return g.finish("distilbert", feeds, [value])


def vit(
    *,
    layers: int = 12,
    width: int = 768,
    heads: int = 12,
    inner: int = 3072,
    image: int = 224,
    patch: int = 16,
    classes: int = 1000,
) -> Case:
    """ViT-B/16 (Dosovitskiy et al. 2020): an image to the scores of its classes."""
    g = Graph(Exporter.DYNAMO)
    side = image // patch
    length = side * side + 1
    pixels = g.random.standard_normal((1, 3, image, image), np.float32)
    root = "vit.embeddings"
    value = g.add(
        "Conv",
        "pixel_values",
        g.weight(f"{root}.patch_embeddings.projection.weight", width, 3, patch, patch),
        g.weight(f"{root}.patch_embeddings.projection.bias", width),
        kernel_shape=[patch] * 2, strides=[patch] * 2, pads=[0] * 4,
        dilations=[1, 1], group=1, auto_pad="NOTSET",
    )  # fmt: skip
    value = g.transpose(g.reshape(value, 1, width, side * side), 0, 2, 1)
    first = g.weight(f"{root}.cls_token", 1, 1, width)
    value = g.add("Concat", first, value, axis=1)
    place = g.weight(f"{root}.position_embeddings", 1, length, width)
    value = g.add("Add", value, place)
    mask = g.constant(np.zeros((1, 1, length, length), np.float32))
    for layer in range(layers):
        name = f"vit.layers.{layer}"
        normal = g.layer_norm(value, f"{name}.layernorm_before", width, 1e-12)
        mixed = _self_attention(
            g,
            normal,
            f"{name}.attention",
            mask,
            heads,
            length,
            width,
            ("q_proj", "k_proj", "v_proj"),
        )
        mixed = g.linear(mixed, f"{name}.attention.o_proj", width, width)
        value = g.add("Add", mixed, value)
        normal = g.layer_norm(value, f"{name}.layernorm_after", width, 1e-12)
        hidden = g.gelu(g.linear(normal, f"{name}.mlp.fc1", width, inner))
        hidden = g.linear(hidden, f"{name}.mlp.fc2", inner, width)
        value = g.add("Add", hidden, value)
    value = g.layer_norm(value, "vit.layernorm", width, 1e-12)
    value = g.add("Gather", value, g.constant(np.array(0)), axis=1)
    value = g.add(
        "Gemm", value, g.weight("classifier.weight", classes, width),
        g.weight("classifier.bias", classes), alpha=1.0, beta=1.0, transB=1,
    )  # fmt: skip
    return g.finish("vit", {"pixel_values": pixels}, [value])
