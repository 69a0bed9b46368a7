"""Runs small models, compiled, by two threads, and says how far they are from float64.

    python tests/arm64/small_models.py [bf16]

Prints JSON: the processor as the EP sees it, the largest deviation of each model, and
how many kernels had to be compiled.  Integers have to be exact.  With ``bf16`` products
are of bfloat16 where the processor has instructions for them.  What is expected is
summed by numpy itself: OpenBLAS, which has its products, uses SVE, and in QEMU 7.2 is
wrong with vectors of 2048 bits.

Where ``ONNXPLUG_TEST_COMPILE`` is ``host``, the machine that emulates compiles.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import numpy_helper

import onnxplug
from onnxplug_cpu.compiler.machine.isa import host_isa
from onnxplug_cpu.compiler.runtime import jit

Array = np.ndarray[Any, Any]

HEADER = '<ir_version: 10, opset_import: ["": 23]> m'


class Model(NamedTuple):
    """A model, and what it should compute of its feeds.

    Attributes:
        text: the graph, as ``onnx.parser`` reads it, without its initializers.
        weights: the initializers.
        expected: the results in float64, or exact integers.
    """

    text: str
    weights: dict[str, Array]
    feeds: dict[str, Array]
    expected: Callable[[], list[Array]]


def product(rng: np.random.Generator) -> Model:
    """A product with a constant factor, which is packed, and rows of its softmax."""
    a = rng.standard_normal((130, 200), np.float32)
    b = rng.standard_normal((200, 150), np.float32) / 14
    return Model(
        "(float[130,200] a) => (float[130,150] y) { c = MatMul(a, b) y = Softmax(c) }",
        {"b": b},
        {"a": a},
        lambda: [softmax(np.einsum("ik,kj->ij", a.astype(np.float64), b))],
    )


def convolutions(rng: np.random.Generator) -> Model:
    """Of 3 × 3 pixels of many channels, and of each by itself."""
    x = rng.standard_normal((1, 16, 20, 20), np.float32)
    w = rng.standard_normal((32, 16, 3, 3), np.float32) / 12
    d = rng.standard_normal((32, 1, 3, 3), np.float32) / 3
    bias = rng.standard_normal(32, np.float32)

    def expected() -> list[Array]:
        c = np.einsum("bchwij,ocij->bohw", windows(x), w.astype(np.float64))
        c = np.maximum(c + bias[:, None, None], 0)
        return [np.einsum("bchwij,cij->bchw", windows(c), d[:, 0].astype(np.float64))]

    return Model(
        "(float[1,16,20,20] x) => (float[1,32,20,20] y) {"
        " c = Conv<pads = [1,1,1,1]>(x, w, bias) r = Relu(c)"
        " y = Conv<pads = [1,1,1,1], group = 32>(r, d) }",
        {"w": w, "d": d, "bias": bias},
        {"x": x},
        expected,
    )


def attention(rng: np.random.Generator) -> Model:
    """A norm of rows, and attention over what it gives."""
    x = rng.standard_normal((1, 2, 40, 32), np.float32)
    scale, bias = rng.standard_normal((2, 32), np.float32)

    def expected() -> list[Array]:
        wide = x.astype(np.float64)
        centred = wide - wide.mean(-1, keepdims=True)
        deviation = np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
        n = centred / deviation * scale + bias
        scores = np.einsum("bhik,bhjk->bhij", n, n) / np.sqrt(32)
        return [np.einsum("bhij,bhjk->bhik", softmax(scores), n)]

    return Model(
        "(float[1,2,40,32] x) => (float[1,2,40,32] y) {"
        " n = LayerNormalization<epsilon = 1e-5>(x, scale, bias)"
        " y = Attention(n, n, n) }",
        {"scale": scale, "bias": bias},
        {"x": x},
        expected,
    )


def codes(rng: np.random.Generator) -> Model:
    """Products of bytes, the first with a sign and without."""
    u = rng.integers(0, 256, (37, 150), np.uint8)
    s = rng.integers(-128, 128, (37, 150), np.int8)
    w = rng.integers(-128, 128, (150, 70), np.int8)
    zero = np.uint8(131)
    return Model(
        "(uint8[37,150] u, int8[37,150] s) => (int32[37,70] y, int32[37,70] z)"
        " { y = MatMulInteger(u, w, zero) z = MatMulInteger(s, w) }",
        {"w": w, "zero": np.array(zero)},
        {"u": u, "s": s},
        lambda: [(u.astype(np.int64) - zero) @ w, s.astype(np.int64) @ w],
    )


def halves(rng: np.random.Generator) -> Model:
    """Products of float16, and functions of them."""
    a = rng.standard_normal((33, 64)).astype(np.float16)
    b = (rng.standard_normal((64, 48)) / 8).astype(np.float16)
    return Model(
        "(float16[33,64] a) => (float16[33,48] y) { c = MatMul(a, b) y = Tanh(c) }",
        {"b": b},
        {"a": a},
        lambda: [
            np.tanh(np.einsum("ik,kj->ij", *(f.astype(np.float64) for f in (a, b))))
        ],
    )


MODELS = (product, convolutions, attention, codes, halves)


def softmax(scores: Array) -> Array:
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def windows(x: Array) -> Array:
    """Those of 3 × 3 pixels, as an array with two axes more, of float64."""
    wide = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    return np.lib.stride_tricks.sliding_window_view(wide, (3, 3), (2, 3))


def session_of(model: Model, way: str) -> onnxplug.InferenceSession:
    proto = onnx.parser.parse_model(f"{HEADER} {model.text}")
    proto.graph.initializer.extend(
        numpy_helper.from_array(value, name) for name, value in model.weights.items()
    )
    options = onnxplug.SessionOptions()
    options.intra_op_num_threads = 2
    entries = {"precision": "bf16"} if way == "bf16" else {}
    return onnxplug.InferenceSession(
        proto.SerializeToString(),
        options,
        providers=[("CPUExecutionProvider", entries)],
    )


def deviations(model: Model, way: str) -> Iterator[float]:
    session = session_of(model, way)
    for turn in range(8):
        time.sleep(0.01 * (turn % 4))  # threads sleep, and are woken
        found = session.run(None, model.feeds)
        for got, wanted in zip(found, model.expected(), strict=True):
            assert got.shape == wanted.shape
            yield float(np.abs(got.astype(wanted.dtype) - wanted).max())


def main(way: str) -> dict[str, Any]:
    """What was found: see the module."""
    if os.environ.get("ONNXPLUG_TEST_COMPILE") == "host":
        import compiled_by_host

        jit.emit_object = compiled_by_host.HostCompiler().emit_object
    compiled: list[str] = []
    compile_object = jit.compile_object

    def counted(kernel: Any, isa: Any) -> bytes:
        compiled.append(kernel.key)
        return compile_object(kernel, isa)

    jit.compile_object = counted
    chosen = [product] if way == "bf16" else MODELS
    worst = {
        make.__name__: max(deviations(make(np.random.default_rng(1)), way))
        for make in chosen
    }
    isa = host_isa()
    assert isa is not None
    return {
        "name": isa.name,
        "features": isa.features.replace("+", "").split(","),
        "worst": worst,
        "compiled": len(compiled),
    }


if __name__ == "__main__":
    print(json.dumps(main("".join(sys.argv[1:]))))
