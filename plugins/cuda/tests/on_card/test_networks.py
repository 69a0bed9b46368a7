"""Whole models on a card, against ONNX's evaluator."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import onnxplug

from .. import networks
from .conftest import EP

RNG = np.random.default_rng(7)
EXACT, ROUNDED = 1e-5, 4e-3
"""What results may be off by, of the largest: with sums of float32, and with factors
that are rounded to TF32."""

FEEDS = {
    "mlp": [RNG.standard_normal((n, 32)).astype(np.float32) for n in (3, 7, 200)],
    "resnet": [RNG.standard_normal((n, 3, 32, 32)).astype(np.float32) for n in (1, 9)],
    "bert": [RNG.integers(0, networks.WORDS, shape) for shape in ((1, 7), (16, 20))],
}


def close(found: Any, wanted: Any, error: float = EXACT) -> None:
    for one, other in zip(found, wanted, strict=True):
        assert one.shape == other.shape and one.dtype == other.dtype
        np.testing.assert_allclose(one, other, 0, error * np.abs(other).max())


def on_gpu(array: Any) -> onnxplug.OrtValue:
    return onnxplug.OrtValue.ortvalue_from_numpy(array, "cuda", 0)


@pytest.mark.parametrize("tf32", [0, 1])
@pytest.mark.parametrize("name", FEEDS)
def test_a_network_is_on_the_device_alone(alone: Any, name: str, tf32: int) -> None:
    model = getattr(networks, name)()
    session, reference = alone(model, use_tf32=tf32), ReferenceEvaluator(model)
    for x in FEEDS[name]:
        wanted = reference.run(None, {"x": x})
        for _ in range(3):
            close(session.run(None, {"x": x}), wanted, ROUNDED if tf32 else EXACT)
    assert {node.ep for node in session.explain().nodes} == {EP}


def decode(session: onnxplug.InferenceSession, model: onnx.ModelProto) -> None:
    """Decode some tokens behind a cache that stays on the device."""
    reference = ReferenceEvaluator(model)
    size = networks.WIDTH // networks.HEADS
    empty = np.zeros((1, networks.HEADS, 0, size), np.float32)
    known, past = [empty, empty], [on_gpu(empty), on_gpu(empty)]
    tokens = np.array([[5, 17, 3, 40]])
    for _ in range(12):
        scores, *known = reference.run(
            None, {"x": tokens, "past_k": known[0], "past_v": known[1]}
        )
        binding = session.io_binding()
        binding.bind_cpu_input("x", tokens)
        for name, value in zip(("past_k", "past_v"), past, strict=True):
            binding.bind_ortvalue_input(name, value)
        for name, device in (("y", "cpu"), ("k", "cuda"), ("v", "cuda")):
            binding.bind_output(name, device)
        session.run_with_iobinding(binding)
        found, *past = binding.get_outputs()
        close([found.numpy()], [scores])
        tokens = scores[:, -1:].argmax(-1)
    close([each.numpy() for each in past], known)


def test_a_decoder_has_its_growing_cache_on_the_device(alone: Any) -> None:
    model = networks.gpt2()
    session = alone(model, use_tf32=0)
    for _ in range(2):
        decode(session, model)
    assert {node.ep for node in session.explain().nodes} == {EP}


@pytest.mark.parametrize("name", FEEDS)
def test_a_captured_network_is_replayed(alone: Any, name: str) -> None:
    model = getattr(networks, name)()
    session = alone(model, use_tf32=0, enable_cuda_graph="1")
    reference = ReferenceEvaluator(model)
    (output,) = (each.name for each in session.get_outputs())
    content = FEEDS[name][0]
    wanted = reference.run(None, {"x": content})
    x, y = on_gpu(content), on_gpu(np.zeros_like(wanted[0]))
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", x)
    binding.bind_ortvalue_output(output, y)
    for turn in range(5):
        content = np.roll(content, turn)
        x.update_inplace(content)
        session.run_with_iobinding(binding)
        close([y.numpy()], reference.run(None, {"x": content}))


def test_threads_share_a_session(alone: Any) -> None:
    model = networks.mlp()
    session, reference = alone(model, use_tf32=0), ReferenceEvaluator(model)
    wrong: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for turn in range(40):
                x = np.full((1 + number % 3, 32), 0.1 * (number - turn), np.float32)
                close(session.run(None, {"x": x}), reference.run(None, {"x": x}))
        except BaseException as error:  # noqa: BLE001
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


PRODUCTS = [(5, 64, 48), (128, 768, 3072), (1000, 520, 264), (64, 4096, 24)]
KINDS = {"FLOAT": 2e-6, "FLOAT16": 1e-3, "BFLOAT16": 8e-3, "DOUBLE": 1e-14}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows, inner, columns", PRODUCTS)
def test_products_are_those_of_float64(
    alone: Any, rows: int, inner: int, columns: int, kind: str
) -> None:
    """Those of cuBLASLt and the EP's own, with a bias and Relu behind them."""
    dtype = onnx.helper.tensor_dtype_to_np_dtype(getattr(onnx.TensorProto, kind))
    factors = [
        RNG.standard_normal(shape).astype(dtype)
        for shape in ((rows, inner), (inner, columns), (columns,))
    ]
    word = kind.lower()
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 21]>
        g ({word}[n, {inner}] a, {word}[{inner}, {columns}] b, {word}[{columns}] c)
          => ({word}[n, {columns}] y)
        {{ p = MatMul (a, b)  s = Add (p, c)  y = Relu (s) }}"""
    )
    (found,) = alone(model, use_tf32=0).run(
        None, dict(zip("abc", factors, strict=True))
    )
    a, b, c = (each.astype(np.float64) for each in factors)
    wanted = np.maximum(a @ b + c, 0)
    error = np.abs(found.astype(np.float64) - wanted).max() / np.abs(wanted).max()
    assert error <= KINDS[kind]


@pytest.mark.parametrize("left", ["int8", "uint8"])
@pytest.mark.parametrize("right", ["int8", "uint8"])
@pytest.mark.parametrize("rows", [4, 77, 512])
def test_products_of_codes_are_exact(
    alone: Any, left: str, right: str, rows: int
) -> None:
    a, b = (
        RNG.integers(np.iinfo(word).min, np.iinfo(word).max, shape, word, True)
        for word, shape in ((left, (rows, 272)), (right, (272, 96)))
    )
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 21]>
        g ({left}[n, 272] a, {right}[272, 96] b, {left} z, {right} o)
          => (int32[n, 96] y) {{ y = MatMulInteger (a, b, z, o) }}"""
    )
    zeros = np.array(3, left), np.array(7, right)
    feeds = {"a": a, "b": b, "z": zeros[0], "o": zeros[1]}
    (found,) = alone(model).run(None, feeds)
    wanted = (a.astype(np.int64) - 3) @ (b.astype(np.int64) - 7)
    np.testing.assert_array_equal(found, wanted)
