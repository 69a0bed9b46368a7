"""Language models that choose 64 words one after another, on an adapter: what is
planned, and what is copied."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import onnxplug
from onnxplug_testing.webgpu_copies import counted

RNG = np.random.default_rng(4)
WORDS, WIDTH, HEADS, GROUPS, INNER, LAYERS, MOST = 96, 64, 4, 2, 96, 2, 80
SIZE, BLOCK, STEPS = WIDTH // HEADS, 32, 64
CACHES = [f"{kind}{layer}" for layer in range(LAYERS) for kind in "kv"]


class Llama:
    """A decoder with weights of 4 bits that chooses the next word, as exporters for
    ONNX Runtime write it, with its caches in arrays that have room."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, np.ndarray[Any, Any]] = {}
        self.full: dict[str, np.ndarray[Any, Any]] = {}
        turns = np.arange(SIZE // 2) / (SIZE // 2)
        self.angles = np.arange(MOST)[:, None] / 100**turns
        embedded = RNG.standard_normal((WORDS, WIDTH))
        self.weights |= {
            "embedded": embedded.astype(np.float32),
            "ones": np.ones(WIDTH, np.float32),
            "one": np.array([1], np.int32),
            "cos": np.cos(self.angles).astype(np.float32),
            "sin": np.sin(self.angles).astype(np.float32),
        }
        self.add("Gather", "embedded token", "x0")
        for layer in range(LAYERS):
            self._layer(layer, f"x{layer}", f"x{layer + 1}")
        self.norm(f"x{LAYERS}", "last")
        self.linear("last", "logits", WIDTH, WORDS)
        self.add("ArgMax", "logits", "next", axis=-1, keepdims=0)
        self.add("Add", "lengths one", "then")

    def add(self, operator: str, inputs: str, outputs: str, **attributes: Any) -> None:
        names, given = inputs.split(), outputs.split()
        self.nodes.append(helper.make_node(operator, names, given, **attributes))

    def norm(self, x: str, y: str) -> None:
        self.add("SimplifiedLayerNormalization", f"{x} ones", y, epsilon=1e-5, axis=-1)

    def linear(self, x: str, y: str, inner: int, columns: int) -> None:
        blocks = inner // BLOCK
        codes = RNG.integers(0, 16, (columns, blocks, BLOCK)).astype(np.uint8)
        scales = (RNG.random((columns, blocks)) / 8 / inner**0.5).astype(np.float32)
        self.weights[f"{y}_b"] = codes[..., ::2] | codes[..., 1::2] << 4
        self.weights[f"{y}_s"] = scales
        wide = (codes.astype(np.float64) - 8) * scales[..., None]
        self.full[y] = wide.reshape(columns, inner).T
        self.add(
            "MatMulNBits", f"{x} {y}_b {y}_s", y, domain="com.microsoft", K=inner,
            N=columns, bits=4, block_size=BLOCK,
        )  # fmt: skip

    def _layer(self, n: int, x: str, y: str) -> None:
        self.norm(x, f"n{n}")
        for name, columns in (("q", WIDTH), ("k", GROUPS * SIZE), ("v", GROUPS * SIZE)):
            self.linear(f"n{n}", f"{name}_{n}", WIDTH, columns)
        self.add(
            "GroupQueryAttention",
            f"q_{n} k_{n} v_{n} k{n} v{n} lengths total cos sin",
            f"a{n} new_k{n} new_v{n}", num_heads=HEADS, kv_num_heads=GROUPS,
            do_rotary=1, domain="com.microsoft",
        )  # fmt: skip
        self.linear(f"a{n}", f"o{n}", WIDTH, WIDTH)
        self.add("Add", f"{x} o{n}", f"r{n}")
        self.norm(f"r{n}", f"m{n}")
        self.linear(f"m{n}", f"g{n}", WIDTH, INNER)
        self.linear(f"m{n}", f"u{n}", WIDTH, INNER)
        self.add("Sigmoid", f"g{n}", f"s{n}")
        self.add("Mul", f"g{n} s{n}", f"gate{n}")
        self.add("Mul", f"gate{n} u{n}", f"both{n}")
        self.linear(f"both{n}", f"d{n}", INNER, WIDTH)
        self.add("Add", f"d{n} r{n}", y)

    def model(self) -> onnx.ModelProto:
        value, i32, i64 = (
            helper.make_tensor_value_info, TensorProto.INT32, TensorProto.INT64,
        )  # fmt: skip
        cache, f32 = [1, GROUPS, MOST, SIZE], TensorProto.FLOAT
        graph = helper.make_graph(
            self.nodes,
            "llama",
            [
                value("token", i64, [1, 1]),
                value("lengths", i32, [1]),
                value("total", i32, []),
                *(value(name, f32, cache) for name in CACHES),
            ],
            [
                value("next", i64, [1, 1]),
                value("then", i32, [1]),
                *(value(f"new_{name}", f32, cache) for name in CACHES),
            ],
            [onnx.numpy_helper.from_array(w, n) for n, w in self.weights.items()],
        )
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def words(self, first: int, count: int) -> list[int]:
        """What it chooses, in float64."""
        kept: list[list[list[Any]]] = [[[], []] for _ in range(LAYERS)]
        found, word = [], first
        for place in range(count):
            x = self.weights["embedded"][word].astype(np.float64)
            for n in range(LAYERS):
                x = self._stepped(n, x, place, kept[n])
            word = int(np.argmax(_normed(x) @ self.full["logits"]))
            found.append(word)
        return found

    def _stepped(self, n: int, x: Any, place: int, kept: list[list[Any]]) -> Any:
        full, normed = self.full, _normed(x)
        q, k, v = ((normed @ full[f"{name}_{n}"]).reshape(-1, SIZE) for name in "qkv")
        q, k = (_turned(part, self.angles[place]) for part in (q, k))
        for rows, new in zip(kept, (k, v), strict=True):
            rows.append(new)
        keys, values = (np.stack(rows, 1) for rows in kept)
        heads = []
        for head in range(HEADS):
            group = head * GROUPS // HEADS
            power = np.exp(keys[group] @ q[head] / SIZE**0.5)
            heads.append(power @ values[group] / power.sum())
        x = x + np.concatenate(heads) @ full[f"o{n}"]
        normed = _normed(x)
        gate, up = normed @ full[f"g{n}"], normed @ full[f"u{n}"]
        return x + (gate / (1 + np.exp(-gate)) * up) @ full[f"d{n}"]


def _normed(x: Any) -> Any:
    return x / np.sqrt((x * x).mean() + 1e-5)


def _turned(x: Any, angles: Any) -> Any:
    half = SIZE // 2
    cos, sin = np.cos(angles), np.sin(angles)
    one, other = x[:, :half], x[:, half:]
    return np.concatenate([one * cos - other * sin, other * cos + one * sin], 1)


@pytest.fixture
def copied(adapter: Any) -> Iterator[dict[str, int]]:
    with counted() as counts:
        yield counts


def on_device(array: np.ndarray[Any, Any]) -> onnxplug.OrtValue:
    return onnxplug.OrtValue.ortvalue_from_numpy(array, "webgpu", 0)


def plans(session: onnxplug.InferenceSession) -> int:
    return sum(each.counts.get("plans", 0) for each in session.explain().partitions)


def test_a_decoder_in_4_bits_copies_only_words(
    beside: Any, copied: dict[str, int]
) -> None:
    """The caches are updated in place, and where the word stands is counted there."""
    llama = Llama()
    session = beside(llama.model())
    first = 5
    caches = {
        name: on_device(np.zeros((1, GROUPS, MOST, SIZE), np.float32))
        for name in CACHES
    }
    tokens = [on_device(np.array([[first]])), on_device(np.array([[0]]))]
    lengths = [on_device(np.array([n], np.int32)) for n in (0, 0)]
    total = np.array(1, np.int32)
    bindings = []
    for here, there in ((0, 1), (1, 0)):
        binding = session.io_binding()
        binding.bind_ortvalue_input("token", tokens[here])
        binding.bind_ortvalue_input("lengths", lengths[here])
        binding.bind_cpu_input("total", total)
        binding.bind_ortvalue_output("next", tokens[there])
        binding.bind_ortvalue_output("then", lengths[there])
        for name, cache in caches.items():
            binding.bind_ortvalue_input(name, cache)
            binding.bind_ortvalue_output(f"new_{name}", cache)
        bindings.append(binding)
    found, counts, made = [], [], []
    for step in range(STEPS):
        total[...] = step + 1
        before = dict(copied)
        session.run_with_iobinding(bindings[step % 2])
        word = tokens[(step + 1) % 2].numpy()
        found.append(int(word[0, 0]))
        counts.append({name: copied[name] - before[name] for name in copied})
        made.append(plans(session))
    assert found == llama.words(first, STEPS)
    assert len(set(found)) > 3
    assert set(made) == {1}
    # the word, and what kernels found of wrong indices: of the embedding, and in each
    # layer of the rows of queries, keys and values, and of lengths
    wanted = {"uploaded": 0, "copied": 8 + 8 * (1 + 4 * LAYERS)}
    assert all(each == wanted for each in counts[1:]), counts[:3]
    before = copied["uploaded"]
    tokens[0].update_inplace(np.array([[first]]))  # one that the host has chosen
    assert copied["uploaded"] - before == 8


@pytest.mark.parametrize("size", [1, 3])
def test_a_slice_from_a_position_on_is_planned_once(
    alone: Any, parse: Any, size: int
) -> None:
    """Where the model states how much it is; the position may come from anywhere."""
    model = parse(
        """
        next = Add(at, one)
        end = Add(next, size)
        part = Slice(table, next, end, axis)
        y = Add(part, x)
        """,
        f"int64[1] at, float[4, {size}, 2] x",
        f"float[4, {size}, 2] y",
        weights=f"int64[1] one = {{1}}, int64[1] size = {{{size}}}, "
        "int64[1] axis = {-2}",
    )
    table = RNG.standard_normal((4, 9, 2)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(table, "table"))
    model.graph.value_info.append(
        helper.make_tensor_value_info("part", TensorProto.FLOAT, [4, size, 2])
    )
    session = alone(model)
    x = RNG.standard_normal((4, size, 2)).astype(np.float32)
    for at in range(9 - size):
        (found,) = session.run(None, {"at": np.array([at]), "x": x})
        np.testing.assert_array_equal(found, table[:, at + 1 : at + 1 + size] + x)
    for at in (-10, -2 - size):  # from the back
        (found,) = session.run(None, {"at": np.array([at]), "x": x})
        wanted = table[:, at + 1 + 9 : at + 1 + 9 + size] + x
        np.testing.assert_array_equal(found, wanted)
    assert plans(session) == 1
    for at in (-11, -1 - size, -2, 9 - size, 2**40, -(2**40)):
        with pytest.raises(onnxplug.errors.NodeError, match="Slice is out of range"):
            session.run(None, {"at": np.array([at]), "x": x})
