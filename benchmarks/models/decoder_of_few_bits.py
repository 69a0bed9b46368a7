"""A decoder like Llama with weights of few bits, as ONNX Runtime's model builder for
generation writes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

_FLOAT, _INT64 = TensorProto.FLOAT, TensorProto.INT64


class Sizes(NamedTuple):
    """Of a decoder.

    Attributes:
        layers: how many.
        hidden, inner: elements of a token, and of the layer between.
        heads, groups: of queries, and of keys.
        words: of the vocabulary.
        positions: that there are angles for.
        block: weights that share a scale.
        level: MatMulNBits' ``accuracy_level``.
    """

    layers: int = 16
    hidden: int = 2048
    inner: int = 5632
    heads: int = 32
    groups: int = 8
    words: int = 32000
    positions: int = 4096
    block: int = 32
    level: int = 0

    @property
    def size(self) -> int:
        """Elements of a head."""
        return self.hidden // self.heads

    @property
    def read_for_a_token(self) -> int:
        """Bytes of codes and scales that one token needs all of."""
        of_layer = self.hidden * (2 * self.hidden + 2 * self.groups * self.size)
        of_layer += 3 * self.hidden * self.inner
        weights = self.layers * of_layer + self.hidden * self.words
        return weights // 2 + 4 * weights // self.block


_ALIGNMENT = 64
_SMALL = 1024  # bytes of what stays in the model's file


class _Builder:
    def __init__(self, sizes: Sizes, weights: BinaryIO) -> None:
        self.sizes, self.weights = sizes, weights
        self.random = np.random.default_rng(0)
        self.nodes: list[onnx.NodeProto] = []
        self.stored: list[onnx.TensorProto] = []

    def store(self, name: str, array: np.ndarray[Any, Any]) -> str:
        if array.nbytes <= _SMALL:
            self.stored.append(numpy_helper.from_array(array, name))
            return name
        # so that a model may be larger than memory
        self.weights.write(bytes(-self.weights.tell() % _ALIGNMENT))
        place = {
            "location": Path(self.weights.name).name,
            "offset": str(self.weights.tell()),
            "length": str(array.nbytes),
        }
        self.weights.write(array.data)
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        tensor = TensorProto(name=name, data_type=kind, dims=array.shape)
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in place.items():
            tensor.external_data.add(key=key, value=value)
        self.stored.append(tensor)
        return name

    def add(
        self, operator: str, inputs: list[str], outputs: list[str], **more: Any
    ) -> None:
        self.nodes.append(helper.make_node(operator, inputs, outputs, **more))

    def product(self, x: str, y: str, inner: int, columns: int) -> str:
        sizes, random = self.sizes, self.random
        blocks = inner // sizes.block
        codes = random.integers(0, 256, (columns, blocks, sizes.block // 2), np.uint8)
        scales = random.random((columns, blocks), np.float32) * np.float32(
            0.4 / inner**0.5
        )
        names = [x, self.store(f"{y}.codes", codes), self.store(f"{y}.scales", scales)]
        self.add(
            "MatMulNBits", names, [y], domain="com.microsoft", K=inner, N=columns,
            bits=4, block_size=sizes.block, accuracy_level=sizes.level,
        )  # fmt: skip
        return y

    def layer(self, number: int, x: str, residual: str) -> tuple[str, str]:
        """What the next norm takes: the result, and what it is added to."""
        sizes, name = self.sizes, f"layer{number}"
        wide = (sizes.heads + 2 * sizes.groups) * sizes.size
        packed = self.product(x, f"{name}.qkv", sizes.hidden, wide)
        caches = [f"past.{number}.key", f"past.{number}.value"]
        present = [f"present.{number}.key", f"present.{number}.value"]
        self.add(
            "GroupQueryAttention",
            [packed, "", "", *caches, "lengths", "total", "cos", "sin"],
            [f"{name}.attended", *present],
            domain="com.microsoft", num_heads=sizes.heads, kv_num_heads=sizes.groups,
            do_rotary=1, scale=sizes.size**-0.5, local_window_size=-1,
        )  # fmt: skip
        out = self.product(f"{name}.attended", f"{name}.o", sizes.hidden, sizes.hidden)
        x, residual = self.norm(out, residual, f"{name}.norm")
        gate = self.product(x, f"{name}.gate", sizes.hidden, sizes.inner)
        up = self.product(x, f"{name}.up", sizes.hidden, sizes.inner)
        self.add("Sigmoid", [gate], [f"{name}.sigmoid"])
        self.add("Mul", [gate, f"{name}.sigmoid"], [f"{name}.silu"])
        self.add("Mul", [f"{name}.silu", up], [f"{name}.both"])
        down = self.product(f"{name}.both", f"{name}.down", sizes.inner, sizes.hidden)
        return down, residual

    def norm(self, x: str, residual: str, name: str) -> tuple[str, str]:
        """The normalised sum, and the sum."""
        self.add(
            "SkipSimplifiedLayerNormalization", [x, residual, "ones"],
            [name, "", "", f"{name}.sum"], domain="com.microsoft", epsilon=1e-5,
        )  # fmt: skip
        return name, f"{name}.sum"


def save_decoder(sizes: Sizes, path: Path) -> None:
    """Write the model, with caches of any length, or of one that is shared; its weights
    are in a file beside it."""
    with path.with_suffix(".data").open("wb") as weights:
        onnx.save(_decoder(_Builder(sizes, weights)), path)


def _decoder(build: _Builder) -> onnx.ModelProto:
    sizes = build.sizes
    turns = np.arange(sizes.size // 2) / (sizes.size // 2)
    angles = np.arange(sizes.positions)[:, None] / 10000**turns
    build.store("cos", np.cos(angles).astype(np.float32))
    build.store("sin", np.sin(angles).astype(np.float32))
    build.store("ones", np.ones(sizes.hidden, np.float32))
    build.store("one", np.array([1], np.int64))
    embedded = build.random.standard_normal((sizes.words, sizes.hidden), np.float32)
    build.store("embedded", embedded)
    build.add("ReduceSum", ["attention_mask", "one"], ["sums"], keepdims=1)
    build.add("Sub", ["sums", "one"], ["ends"])
    build.add("Cast", ["ends"], ["lengths"], to=TensorProto.INT32)
    build.add("Shape", ["attention_mask"], ["sizes"])
    build.add("Gather", ["sizes", build.store("at", np.array(1))], ["all"], axis=0)
    build.add("Cast", ["all"], ["total"], to=TensorProto.INT32)
    build.add("Gather", ["embedded", "input_ids"], ["tokens"])
    build.add(
        "SimplifiedLayerNormalization", ["tokens", "ones"], ["first"], axis=-1,
        epsilon=1e-5, stash_type=1,
    )  # fmt: skip
    x, residual = "first", "tokens"
    for number in range(sizes.layers):
        x, residual = build.layer(number, x, residual)
        x, residual = build.norm(x, residual, f"norm{number + 1}")
    build.product(x, "logits", sizes.hidden, sizes.words)
    value = helper.make_tensor_value_info
    cache = ["batch", sizes.groups, "past", sizes.size]
    after = ["batch", sizes.groups, "present", sizes.size]
    kinds = [f"{n}.{kind}" for n in range(sizes.layers) for kind in ("key", "value")]
    graph = helper.make_graph(
        build.nodes,
        "decoder",
        [
            value("input_ids", _INT64, ["batch", "new"]),
            value("attention_mask", _INT64, ["batch", "total"]),
            *(value(f"past.{kind}", _FLOAT, cache) for kind in kinds),
        ],
        [
            value("logits", _FLOAT, ["batch", "new", sizes.words]),
            *(value(f"present.{kind}", _FLOAT, after) for kind in kinds),
        ],
        build.stored,
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def feeds(
    sizes: Sizes, new: int, past: int, capacity: int = 0
) -> dict[str, np.ndarray[Any, Any]]:
    """Of *new* tokens after *past* ones, whose caches may have more room."""
    random = np.random.default_rng(past)
    shape = 1, sizes.groups, capacity or past, sizes.size
    kinds = [f"{n}.{kind}" for n in range(sizes.layers) for kind in ("key", "value")]
    return {
        "input_ids": random.integers(0, sizes.words, (1, new)),
        "attention_mask": np.ones((1, past + new), np.int64),
        **{f"past.{k}": random.standard_normal(shape, np.float32) for k in kinds},
    }
