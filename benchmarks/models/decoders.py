"""GPT-2 and a Llama-like block, over a prompt and one token at a time."""

from __future__ import annotations

import numpy as np

from .graph import Array, Case, Exporter, Graph

_LOWEST = float(np.finfo(np.float32).min)


def gpt2(
    length: int,
    past: int,
    *,
    layers: int = 12,
    width: int = 768,
    heads: int = 12,
    words: int = 50257,
) -> Case:
    """GPT-2 small (Radford et al. 2019): ids to scores and, with a past, its cache.

    Args:
        length: new tokens.
        past: tokens before them, whose keys and values are inputs.
    """
    g = Graph(Exporter.DYNAMO)
    size, whole = width // heads, past + length
    feeds: dict[str, Array] = {"input_ids": g.random.integers(0, words, (1, length))}
    outputs: list[str] = []
    table = g.weight("transformer.wte.weight", words, width)
    place = g.weight("transformer.wpe.weight", 1024, width)
    value = g.add("Gather", table, g.reshape("input_ids", -1, length))
    positions = g.constant(np.arange(past, whole)[None])
    value = g.add("Add", value, g.add("Gather", place, positions))
    mask = g.constant(_causal(length, past))

    def dense(value: str, name: str, rows: int, columns: int) -> str:
        value = g.reshape(value, -1, rows)
        value = g.add(
            "Gemm", value, g.weight(f"{name}.weight", rows, columns),
            g.weight(f"{name}.bias", columns), alpha=1.0, beta=1.0,
        )  # fmt: skip
        return g.reshape(value, 1, length, columns)

    for layer in range(layers):
        name = f"transformer.h.{layer}"
        normal = g.layer_norm(value, f"{name}.ln_1", width, 1e-5)
        both = dense(normal, f"{name}.attn.c_attn", width, 3 * width)
        query, key, content = g.add_many("Split", 3, both, axis=2, num_outputs=3)
        key, content, query = (
            g.transpose(g.reshape(part, 1, length, -1, size), 0, 2, 1, 3)
            for part in (key, content, query)
        )
        if past:
            key, content = _extended(
                g, layer, key, content, (1, heads, past, size), feeds, outputs
            )
        mixed = g.attention(query, key, content, mask, (1, heads, whole, size))
        mixed = g.transpose(mixed, 0, 2, 1, 3)
        mixed = dense(mixed, f"{name}.attn.c_proj", width, width)
        value = g.add("Add", mixed, value)
        normal = g.layer_norm(value, f"{name}.ln_2", width, 1e-5)
        hidden = dense(normal, f"{name}.mlp.c_fc", width, 4 * width)
        hidden = dense(_tanh_gelu(g, hidden), f"{name}.mlp.c_proj", 4 * width, width)
        value = g.add("Add", value, hidden)
    value = g.layer_norm(value, "transformer.ln_f", width, 1e-5)
    value = g.reshape(value, -1, length, width)
    head = g.weight("lm_head.weight", width, words)
    return g.finish("gpt2", feeds, [g.add("MatMul", value, head), *outputs])


def _causal(length: int, past: int) -> Array:
    rows, columns = np.ogrid[past : past + length, : past + length]
    mask = np.where(columns <= rows, np.float32(0), np.float32(_LOWEST))
    return mask.astype(np.float32)[None, None]


def _extended(
    g: Graph,
    layer: int,
    key: str,
    value: str,
    shape: tuple[int, ...],
    feeds: dict[str, Array],
    outputs: list[str],
) -> list[str]:
    """Keys and values behind those of the past, which are inputs; they are outputs."""
    extended = []
    for kind, new in (("key", key), ("value", value)):
        name = f"past_key_values.{layer}.{kind}"
        feeds[name] = g.random.standard_normal(shape, np.float32)
        longer = g.add("Concat", name, new, axis=-2)
        extended.append(g.rename(longer, f"present.{layer}.{kind}"))
    outputs += extended
    return extended


def _tanh_gelu(g: Graph, value: str) -> str:
    half = g.add("Mul", value, g.scalar(0.5))
    cube = g.add("Pow", value, g.scalar(3))
    inside = g.add("Add", value, g.add("Mul", cube, g.scalar(0.044715)))
    inside = g.add("Tanh", g.add("Mul", inside, g.scalar((2 / np.pi) ** 0.5)))
    return g.add("Mul", half, g.add("Add", inside, g.scalar(1)))


def llama(
    length: int,
    past: int,
    *,
    layers: int = 2,
    width: int = 1024,
    heads: int = 16,
    groups: int = 4,
    inner: int = 2816,
) -> Case:
    """Decoder layers as of Llama 2 and 3 (Touvron et al. 2023), without embeddings.

    RMSNorm, rotary positions, *groups* heads of keys and values, SiLU-gated MLP.

    Args:
        length: new tokens, as ``[1, length, width]`` of hidden states.
        past: tokens before them, whose keys and values are inputs.
    """
    g = Graph(Exporter.DYNAMO)
    size, whole = width // heads, past + length
    hidden = g.random.standard_normal((1, length, width), np.float32)
    feeds: dict[str, Array] = {"inputs_embeds": hidden}
    outputs: list[str] = []
    value = "inputs_embeds"
    mask = g.constant(_causal(length, past))
    turns = [g.constant(part) for part in _rotations(past, length, size)]

    def split(value: str, name: str, count: int) -> str:
        value = g.linear(value, name, width, count * size, bias=False)
        return g.transpose(g.reshape(value, 1, length, -1, size), 0, 2, 1, 3)

    for layer in range(layers):
        name = f"model.layers.{layer}"
        normal = _rms_norm(g, value, f"{name}.input_layernorm", width)
        query = split(normal, f"{name}.self_attn.q_proj", heads)
        key = split(normal, f"{name}.self_attn.k_proj", groups)
        content = split(normal, f"{name}.self_attn.v_proj", groups)
        query, key = _rotated(g, query, turns, size), _rotated(g, key, turns, size)
        if past:
            key, content = _extended(
                g, layer, key, content, (1, groups, past, size), feeds, outputs
            )
        key, content = (
            _repeated(g, part, groups, heads // groups, whole, size)
            for part in (key, content)
        )
        mixed = g.attention(query, key, content, mask, (1, heads, whole, size))
        mixed = g.reshape(g.transpose(mixed, 0, 2, 1, 3), 1, length, width)
        mixed = g.linear(mixed, f"{name}.self_attn.o_proj", width, width, bias=False)
        value = g.add("Add", value, mixed)
        normal = _rms_norm(g, value, f"{name}.post_attention_layernorm", width)
        gate = g.linear(normal, f"{name}.mlp.gate_proj", width, inner, bias=False)
        gate = g.add("Mul", gate, g.add("Sigmoid", gate))
        up = g.linear(normal, f"{name}.mlp.up_proj", width, inner, bias=False)
        both = g.add("Mul", gate, up)
        down = g.linear(both, f"{name}.mlp.down_proj", inner, width, bias=False)
        value = g.add("Add", value, down)
    value = _rms_norm(g, value, "model.norm", width)
    return g.finish("llama", feeds, [value, *outputs])


def _rms_norm(g: Graph, value: str, name: str, width: int) -> str:
    square = g.add("Pow", value, g.scalar(2))
    mean = g.add(
        "ReduceMean", square, g.integers(-1), keepdims=1, noop_with_empty_axes=0
    )
    root = g.add("Sqrt", g.add("Add", mean, g.scalar(1e-6)))
    value = g.add("Mul", value, g.add("Reciprocal", root))
    return g.add("Mul", g.weight(f"{name}.weight", width, mean=1), value)


def _rotations(past: int, length: int, size: int) -> tuple[Array, Array]:
    """Cosines and sines of rotary positions (Su et al. 2021), base 10000."""
    speeds = 10000.0 ** -(np.arange(0, size, 2) / size)
    angles = np.arange(past, past + length)[:, None] * np.tile(speeds, 2)
    return tuple(
        part(angles).astype(np.float32)[None, None] for part in (np.cos, np.sin)
    )


def _rotated(g: Graph, value: str, turns: list[str], size: int) -> str:
    def part(start: int, end: int) -> str:
        ends = g.integers(start), g.integers(end)
        return g.add("Slice", value, *ends, g.integers(3), g.integers(1))

    straight = g.add("Mul", value, turns[0])
    first, second = part(0, size // 2), part(size // 2, 2**63 - 1)
    crossed = g.add("Concat", g.add("Neg", second), first, axis=-1)
    return g.add("Add", straight, g.add("Mul", crossed, turns[1]))


def _repeated(
    g: Graph, value: str, groups: int, times: int, length: int, size: int
) -> str:
    value = g.add("Unsqueeze", value, g.integers(2))
    shape = g.integers(1, groups, times, length, size)
    value = g.add("Expand", value, shape)
    return g.reshape(value, 1, groups * times, length, size)
