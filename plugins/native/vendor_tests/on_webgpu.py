"""Compares WebGPU's library with the CPU EP, in a process of its own: prints, for each
case, how far off results are, how many nodes the library ran, and what it refused; told
"captured", how far off runs are that the library captures and replays."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import onnx.parser

import onnxplug

EP = "WebGpuExecutionProvider"
_HEAD = '<ir_version: 8, opset_import: ["": 17]> g '

_CASES = {
    "Add": "(float[2, 8] x) => (float[2, 8] y) { y = Add(x, x) }",
    "Softmax": "(float[4, 16] x) => (float[4, 16] y) { y = Softmax(x) }",
    "Transpose": "(float[2, 3, 4] x) => (float[4, 3, 2] y) "
    "{ y = Transpose<perm=[2, 1, 0]>(x) }",
    "ReduceMean": "(float[2, 3, 8] x) => (float[2, 3, 1] y) "
    "{ y = ReduceMean<axes=[2]>(x) }",
    "Gather": "(float[5, 4] x) => (float[2, 4] y) "
    "{ i = Constant<value=int64[2] {3, 1}>() y = Gather(x, i) }",
    "Shape": "(float[2, 3] x) => (float[3, 2] y) "
    "{ s = Constant<value=int64[2] {3, -1}>() y = Reshape(x, s) }",
    "a tail on the host": "(float[2, 8] x) => (int64[2] y, float[2, 8] z) "
    "{ z = Relu(x) y = Shape(z) }",
    "Det": "(float[3, 3] x) => (float y) { a = Add(x, x) y = Det(a) }",
    "dynamic": '(float["n", 8] x) => (float["n", 8] y) { a = Neg(x) y = Relu(a) }',
}


_BLOCK = """(float[1, 8, 32] x) => (float[1, 8, 32] y) {
  n = LayerNormalization(x, g0, g1)
  q = MatMul(n, wq) k = MatMul(n, wk) v = MatMul(n, wv)
  qr = Reshape(q, s) kr = Reshape(k, s) vr = Reshape(v, s)
  qt = Transpose<perm=[0, 2, 1, 3]>(qr)
  kt = Transpose<perm=[0, 2, 3, 1]>(kr)
  vt = Transpose<perm=[0, 2, 1, 3]>(vr)
  m = MatMul(qt, kt) c = Mul(m, f) p = Softmax<axis=-1>(c) a = MatMul(p, vt)
  at = Transpose<perm=[0, 2, 1, 3]>(a) ar = Reshape(at, j)
  h = Add(x, ar) u = MatMul(h, w1) r = Relu(u) d = MatMul(r, w2) y = Add(h, d)
}"""


def _weight(*shape: int) -> Any:
    random = np.random.default_rng(sum(shape))
    return (random.standard_normal(shape) * 0.3).astype(np.float32)


def _network(text: str, **weights: Any) -> onnx.ModelProto:
    model = onnx.parser.parse_model(_HEAD + text)
    for name, array in weights.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return model


def networks() -> Iterator[tuple[str, onnx.ModelProto]]:
    """Small networks, and what they are called."""
    yield (
        "a CNN",
        _network(
            "(float[1, 3, 16, 16] x) => (float[1, 10] y) { a = Conv<pads=[1, 1, 1, 1]>"
            "(x, w) b = Relu(a) c = MaxPool<kernel_shape=[2, 2], strides=[2, 2]>(b) "
            "d = Conv(c, v) e = GlobalAveragePool(d) f = Flatten(e) y = Gemm(f, u) }",
            w=_weight(8, 3, 3, 3),
            v=_weight(8, 8, 3, 3),
            u=_weight(8, 10),
        ),
    )
    yield (
        "a perceptron",
        _network(
            "(float[2, 64] x) => (float[2, 10] y) "
            "{ a = MatMul(x, w) b = Relu(a) y = Gemm(b, v, u) }",
            w=_weight(64, 32),
            v=_weight(32, 10),
            u=_weight(10),
        ),
    )
    yield (
        "a transformer's block",
        _network(
            _BLOCK,
            g0=_weight(32) + 1,
            g1=_weight(32),
            wq=_weight(32, 32),
            wk=_weight(32, 32),
            wv=_weight(32, 32),
            w1=_weight(32, 128),
            w2=_weight(128, 32),
            s=np.array([1, 8, 4, 8], np.int64),
            j=np.array([1, 8, 32], np.int64),
            f=np.float32(8**-0.5),
        ),
    )


def _distance(found: Any, expected: Any) -> float:
    pairs = zip(found, expected, strict=True)
    return max(float(np.abs(a - b).max() / max(1, np.abs(b).max())) for a, b in pairs)


MEMORY = "WebGPU_Buf"
"""The library's name for that of its device."""


def _on_device(session: onnxplug.InferenceSession, x: Any) -> list[Any]:
    """What is left in the library's memory, of an input that is there."""
    binding = session.io_binding()
    given = onnxplug.OrtValue.ortvalue_from_numpy(x, MEMORY, 0)
    binding.bind_ortvalue_input("x", given)
    for each in session.get_outputs():
        binding.bind_output(each.name, MEMORY, 0)
    session.run_with_iobinding(binding)
    return [each.numpy() for each in binding.get_outputs()]


def _compare(model: onnx.ModelProto) -> tuple[float, int, str]:
    data = model.SerializeToString()
    shape = [d.dim_value or 5 for d in model.graph.input[0].type.tensor_type.shape.dim]
    feeds = [{"x": _weight(*shape) + np.float32(n)} for n in range(4)]
    with onnxplug.InferenceSession(data, providers=["cpu"]) as session:
        expected = [session.run(None, each) for each in feeds]
    with onnxplug.InferenceSession(data, providers=[EP, "cpu"]) as session:
        report = session.explain()
        found: list[Any] = [None] * len(feeds)

        def run(place: int) -> None:
            found[place] = session.run(None, feeds[place])

        threads = [threading.Thread(target=run, args=(n,)) for n in range(len(feeds))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        worst = max(map(_distance, found, expected))
        binding = session.io_binding()
        binding.bind_cpu_input("x", feeds[0]["x"])
        for name in (each.name for each in session.get_outputs()):
            binding.bind_output(name)
        session.run_with_iobinding(binding)
        worst = max(worst, _distance(binding.copy_outputs_to_cpu(), expected[0]))
        worst = max(worst, _distance(_on_device(session, feeds[1]["x"]), expected[1]))
    ran = sum(each.ep == EP for each in report.nodes)
    refused = "" if ran == len(report.nodes) else f"not on {EP}" * (EP in str(report))
    return worst, ran, refused


def _captured(model: onnx.ModelProto) -> float | str:
    """How far off bound runs are that are captured and replayed, or what failed."""
    data = model.SerializeToString()
    shape = [d.dim_value or 5 for d in model.graph.input[0].type.tensor_type.shape.dim]
    feeds = [_weight(*shape) * np.float32(n) for n in range(1, 6)]
    with onnxplug.InferenceSession(data, providers=["cpu"]) as session:
        expected = [session.run(None, {"x": each}) for each in feeds]
    try:
        providers = [(EP, {"enableGraphCapture": "1"}), "cpu"]
        with onnxplug.InferenceSession(data, providers=providers) as session:
            on_device = onnxplug.OrtValue.ortvalue_from_numpy
            given = on_device(feeds[0], "WebGPU_Buf")
            binding = session.io_binding()
            binding.bind_ortvalue_input("x", given)
            outputs = [on_device(np.zeros_like(y), "WebGPU_Buf") for y in expected[0]]
            for known, value in zip(session.get_outputs(), outputs, strict=True):
                binding.bind_ortvalue_output(known.name, value)
            worst = 0.0
            for each, results in zip(feeds, expected, strict=True):
                given.update_inplace(each)
                session.run_with_iobinding(binding)
                worst = max(worst, _distance([y.numpy() for y in outputs], results))
                # what is not captured does not come in between
                found = session.run(None, {"x": feeds[0]})
                worst = max(worst, _distance(found, expected[0]))
            return worst
    except onnxplug.errors.OnnxplugError as error:
        return f"{type(error).__name__}: {error}"


def main() -> None:
    """See the module."""
    texts = {name: _network(text) for name, text in _CASES.items()}
    models = texts | dict(networks())
    compare = _captured if "captured" in sys.argv else _compare
    print(json.dumps({name: compare(each) for name, each in models.items()}))


if __name__ == "__main__":
    main()
