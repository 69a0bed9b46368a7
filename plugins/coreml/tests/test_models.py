"""Whole networks on Core AI's runtime: nearly all nodes on it, and right."""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest

import onnxplug

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))  # has the networks

EP = "CoreMLExecutionProvider"

TOLERANCE = 2e-5
"""Of the largest number in a result, by which roundings of float32 may differ."""


class Network(NamedTuple):
    """A model, what it is fed, and what it gives by others' arithmetic."""

    model: Any
    feeds: Mapping[str, Any]
    expected: list[Any]


def load(name: str) -> Network:
    """A network; what is expected is PyTorch's, in float64, or the CPU EP's."""
    if name == "bert-base":
        from models import MODELS

        case = MODELS[name]()
        session = onnxplug.InferenceSession(case.model, providers=["cpu"])
        return Network(case.model, case.feeds, session.run(None, case.feeds))
    pytest.importorskip("torch", reason="make test-coreml installs it")
    from zoo import ZOO, exported

    files = exported(ZOO[name], name)
    with np.load(files.feeds) as feeds, np.load(files.expected) as expected:
        return Network(files.model, dict(feeds), list(expected.values()))


def run_on_core_ai(network: Network) -> onnxplug.InferenceSession:
    session = onnxplug.InferenceSession(network.model, providers=["coreml", "cpu"])
    assert_right(session.run(None, network.feeds), network.expected)
    return session


def assert_right(found: Any, expected: Any) -> None:
    for ours, wanted in zip(found, expected, strict=True):
        atol = TOLERANCE * float(abs(wanted).max())
        np.testing.assert_allclose(ours, wanted, rtol=0, atol=atol)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["resnet50", "mobilenetv2", "bert-base", "unet", "whisper-encoder"]
)
def test_a_whole_network(name: str, coreai: Any) -> None:
    session = run_on_core_ai(load(name))
    explanation = session.explain()
    taken = [node for node in explanation.nodes if node.ep == EP]
    assert len(taken) >= 0.95 * len(explanation.nodes), str(explanation)
    assert len(explanation.partitions) == 1


def for_any_number(model: onnx.ModelProto) -> onnx.ModelProto:
    """A classifier of one picture as one of several."""
    del model.graph.value_info[:]
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    (view,) = (node for node in model.graph.node if node.op_type == "Reshape")
    model.graph.initializer.append(
        onnx.numpy_helper.from_array(np.array([-1, 1280]), "any_number")
    )
    view.input[1] = "any_number"
    return model


@pytest.mark.slow
def test_a_network_for_any_number_of_pictures(coreai: Any) -> None:
    network = load("mobilenetv2")
    model = for_any_number(onnx.load(network.model))
    (image,), (wanted,) = network.feeds.values(), network.expected
    session = onnxplug.InferenceSession(model, providers=["coreml", "cpu"])
    assert {node.ep for node in session.explain().nodes} == {EP}
    for count in (1, 3):
        found = session.run(None, {"image": np.repeat(image, count, axis=0)})
        assert_right(found, [np.repeat(wanted, count, axis=0)])


@pytest.mark.slow
def test_a_network_in_eight_threads(coreai: Any) -> None:
    network = load("mobilenetv2")
    session = run_on_core_ai(network)
    wrong: list[Exception] = []

    def work() -> None:
        try:
            assert_right(session.run(None, network.feeds), network.expected)
        except Exception as error:  # noqa: BLE001 (whatever is wrong)
            wrong.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
