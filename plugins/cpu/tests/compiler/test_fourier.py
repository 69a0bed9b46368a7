"""DFT and STFT in models, against numpy in float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx.helper
import onnx.numpy_helper
import pytest

import onnxplug

Array = np.ndarray[Any, Any]

INFO = onnx.helper.make_tensor_value_info


class Model:
    """Nodes that are put together, and the arrays that they are fed."""

    def __init__(self, opset: int) -> None:
        self.opset = opset
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.feeds: dict[str, Array] = {}
        self.expected: list[Array] = []

    def constant(self, array: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(onnx.numpy_helper.from_array(np.asarray(array), name))
        return name

    def add(
        self,
        operator: str,
        x: Array,
        inputs: Sequence[str],
        expected: Array,
        **given: int,
    ) -> None:
        """A node that reads *x* and *inputs*."""
        number = len(self.nodes)
        self.feeds[f"x{number}"] = x
        names = [f"x{number}", *inputs]
        node = onnx.helper.make_node(operator, names, [f"y{number}"], **given)
        self.nodes.append(node)
        self.expected.append(expected)

    def session(self) -> onnxplug.InferenceSession:
        graph = onnx.helper.make_graph(
            self.nodes,
            "transforms",
            [INFO(name, 1, [None] * x.ndim) for name, x in self.feeds.items()],
            [INFO(node.output[0], 1, None) for node in self.nodes],
            self.constants,
        )
        imports = [onnx.helper.make_opsetid("", self.opset)]
        model = onnx.helper.make_model(graph, opset_imports=imports, ir_version=9)
        return onnxplug.InferenceSession(model.SerializeToString())

    def check(self, note: str = "") -> None:
        session = self.session()
        found = session.run(None, self.feeds)
        for one, wanted in zip(found, self.expected, strict=True):
            assert one.shape == wanted.shape
            assert np.abs(one - wanted).max() <= 1e-6 * np.abs(wanted).max()
        nodes = session.explain().nodes
        assert {(node.tier, node.note) for node in nodes} == {("compiled", note)}


def numbers(x: Array) -> Array:
    """Real or complex ones of the parts along the last axis."""
    x = x.astype(np.float64)
    return x[..., 0] + (1j * x[..., 1] if x.shape[-1] > 1 else 0)


def parts(values: Array) -> Array:
    return np.stack([values.real, values.imag], -1)


def half(values: Array, axis: int) -> Array:
    return np.take(values, range(values.shape[axis] // 2 + 1), axis)


SHAPES: Mapping[tuple[int, ...], int] = {
    (2, 1, 1): 1,
    (3, 7, 1): 1,
    (20, 2, 2): 0,
    (2, 3, 37, 2): 2,
    (2, 96, 3, 1): 1,
    (5, 400, 1): 1,
    (2, 128, 2): 1,
}
"""And the axes along which transforms go."""


@pytest.mark.parametrize("opset", [17, 20])
def test_transforms_of_any_axis(opset: int) -> None:
    rng = np.random.default_rng(0)
    model = Model(opset)

    def add(
        x: Array, axis: int, length: int | None, expected: Array, **given: int
    ) -> None:
        inputs = ["" if length is None else model.constant(np.int64(length))]
        if opset < 20:
            given["axis"] = axis
        else:
            inputs.append(model.constant(np.int64(axis - x.ndim)))
        model.add("DFT", x, inputs, expected, **given)

    for shape, axis in SHAPES.items():
        x = rng.standard_normal(shape).astype(np.float32)
        z = numbers(x)
        add(x, axis, None, parts(half(np.fft.fft(z, axis=axis), axis)), onesided=1)
        add(x, axis, 12, parts(np.fft.fft(z, 12, axis)))
        add(x, axis, None, parts(np.fft.ifft(z, axis=axis)), inverse=1)
        back = np.fft.irfft(z, 9, axis)[..., None]
        add(x, axis, 9, back, inverse=1, onesided=1)
    model.check()


@pytest.mark.parametrize("length", [2048, 60 * 128, 128 * 40 * 12])
def test_long_transforms(length: int) -> None:
    rng = np.random.default_rng(length)
    x = rng.standard_normal((2, length, 2)).astype(np.float32)
    z = numbers(x)
    model = Model(17)
    model.add("DFT", x, [], parts(np.fft.fft(z, axis=1)))
    model.add("DFT", x, [], parts(np.fft.ifft(z, axis=1)), inverse=1)
    real = numbers(x[..., :1])
    model.add("DFT", x[..., :1], [], parts(np.fft.rfft(real, axis=1)), onesided=1)
    model.check()


def test_a_long_prime_number_is_left_to_arrays() -> None:
    x = np.random.default_rng(0).standard_normal((1, 4099, 1)).astype(np.float32)
    model = Model(17)
    model.add("DFT", x, [], parts(np.fft.fft(numbers(x), axis=1)))
    model.check(
        "on arrays for inputs of some shapes: the length 4099 has a large factor"
    )


def test_frames() -> None:
    rng = np.random.default_rng(0)
    model = Model(17)
    for samples, rank, step, length, windowed, onesided in (
        (50, 2, 3, 9, True, 1),
        (1000, 3, 160, 400, True, 1),
        (90, 3, 100, 64, False, 1),
        (70, 2, 16, 32, True, 0),
        (40, 3, 7, 7, False, 0),
    ):
        shape = (2, samples, 1)[:rank]
        x = rng.standard_normal(shape).astype(np.float32)
        window = rng.random(length).astype(np.float32) if windowed else None
        frames = np.lib.stride_tricks.sliding_window_view(
            x.reshape(2, samples).astype(np.float64), length, 1
        )[:, ::step]
        values = np.fft.fft(frames if window is None else frames * window)
        values = half(values, -1) if onesided else values
        inputs = [
            model.constant(np.int64(step)),
            "" if window is None else model.constant(window),
            model.constant(np.int64(length)),
        ]
        model.add("STFT", x, inputs, parts(values), onesided=onesided)
    model.check()
