"""The EPs that mistakes are planted in have none, as far as chance can tell."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import onnxplug
from onnxplug import ep
from onnxplug_testing.random_models import draw_model

from .planted import program
from .planted.compile_ep import GeneratedFactory
from .planted.device_ep import DeviceFactory
from .planted.exhibit import made_by, model_of
from .planted.operators import OPERATORS


@pytest.fixture(params=[DeviceFactory, GeneratedFactory], ids=lambda each: each.name)
def name(request: pytest.FixtureRequest) -> Iterator[str]:
    """An EP's name, which is registered."""
    onnxplug.register_ep_library("planted", request.param)
    yield request.param.name
    onnxplug.unregister_ep_library("planted")


def session_on(name: str, model: onnx.ModelProto) -> onnxplug.InferenceSession:
    options = onnxplug.SessionOptions()
    options.add_session_config_entry("session.check_results", "1")
    with warnings.catch_warnings():
        # that the EP runs no node of the model
        warnings.simplefilter("ignore", onnxplug.errors.EpWarning)
        return onnxplug.InferenceSession(model, options, providers=[name, "cpu"])


@pytest.fixture(scope="module")
def cases() -> list[Any]:
    """ONNX's own cases of single operators that are taken."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the suite's generators overflow on purpose
        loaded = load_model_tests(kind="node")
    return [case for case in loaded if is_taken(case.model.graph.node)]


def is_taken(nodes: Any) -> bool:
    return len(nodes) == 1 and nodes[0].op_type in OPERATORS


@pytest.mark.exhaustive  # importing the cases takes half a minute
def test_results_are_those_of_onnx_cases(name: str, cases: list[Any]) -> None:
    ran = 0
    for case in cases:
        with session_on(name, case.model) as session:
            if any(node.ep != name for node in session.explain().nodes):
                continue
            inputs, wanted = case.data_sets[0]
            feed = zip(session.get_inputs(), map(as_array, inputs), strict=False)
            found = session.run(None, {item.name: array for item, array in feed})
        for one, other in zip(found, map(as_array, wanted), strict=True):
            np.testing.assert_allclose(
                one, other, rtol=case.rtol, atol=case.atol, err_msg=case.name
            )
        ran += 1
    assert ran > 60


def as_array(value: Any) -> Any:
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    return value


@pytest.mark.parametrize("seed", range(20))
def test_random_models_give_what_the_cpu_ep_does(name: str, seed: int) -> None:
    drawn = draw_model(seed)
    results = []
    for each in (name, "cpu"):
        with session_on(each, drawn.model) as session:
            names = {item.name for item in session.get_inputs()}
            feed = {key: array for key, array in drawn.feeds.items() if key in names}
            results.append(session.run(None, feed))
    for found, wanted in zip(*results, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_no_bytes_do_worse_than_to_be_declined() -> None:
    factory = GeneratedFactory()
    made = made_by(factory)
    onnxplug.register_ep_library("planted", factory)
    text = """g (float[2,3] x) => (float[2] y) <float[3] w = {1, 2, 3}>
        { a = Gemm <transB = 1> (x, x) b = MatMul (x, w) y = Add (b, b) z = Abs (a) }"""
    onnxplug.InferenceSession(model_of(text), providers=[factory.name]).close()
    onnxplug.unregister_ep_library("planted")
    data = program.write(made[0].program)
    draw = random.Random(1)
    x = np.ones((2, 3), np.float32)
    provider = factory.provider(
        factory, {"accumulate": "single", "steps_per_function": 2}
    )
    for _ in range(2000):
        damaged = bytearray(data)
        for _ in range(draw.randint(1, 3)):
            damaged[draw.randrange(len(damaged))] = draw.randrange(256)
        cut = damaged[: draw.choice([len(damaged), draw.randrange(len(damaged))])]
        try:
            restored = provider.serialiser.restore(Node(), memoryview(bytes(cut)))
        except ep.Declined:
            continue
        try:
            restored.run([x], [None], None)
        except (ArithmeticError, IndexError, TypeError, ValueError):
            continue  # other steps than were compiled, on these inputs


class Node:
    """A node that stands for what was compiled: one input, one output."""

    inputs = ("x",)
    outputs = ("y",)
