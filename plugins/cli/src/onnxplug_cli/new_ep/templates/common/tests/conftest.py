"""The EP, registered, and models run on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import onnx
import pytest

import onnxplug
from onnxplug.ep import Reason

EP = "AcmeExecutionProvider"

Array: TypeAlias = np.ndarray[Any, Any]


class Outcome(NamedTuple):
    """What came of a model.

    Attributes:
        results: of the EP, with the CPU EP behind it.
        expected: of the CPU EP alone.
        refused: why nodes are not on the EP, by operator.
        partitions: how many the EP has.
    """

    results: list[Array]
    expected: list[Array]
    refused: dict[str, Reason]
    partitions: int


@pytest.fixture(scope="session", autouse=True)
def registered() -> Iterator[None]:
    """The EP is known, whether its distribution is installed or not."""
    if EP in {plugin.name for plugin in onnxplug.get_plugins()}:
        yield
        return
    onnxplug.register_ep_library("acme-ep", "acme_ep.plugin:AcmeFactory")
    yield
    onnxplug.unregister_ep_library("acme-ep")


@pytest.fixture
def run() -> Callable[[str, Mapping[str, Array]], Outcome]:
    """Runs a model, in ONNX's text format, on the EP and on the CPU EP.

    The results of each node are held against the graph, and inputs against what they
    were.
    """

    def run_both(text: str, feed: Mapping[str, Array]) -> Outcome:
        model = onnx.parser.parse_model(text)
        options = onnxplug.SessionOptions()
        options.add_session_config_entry("session.check_results", "1")
        with onnxplug.InferenceSession(model, options, providers=[EP]) as session:
            nodes = session.explain().nodes
            refused = {
                node.op_type: passed_over.reason
                for node in nodes
                for passed_over in node.passed_over
                if passed_over.ep == EP
            }
            partitions = {node.partition for node in nodes if node.ep == EP}
            results = session.run(None, dict(feed))
        with onnxplug.InferenceSession(model, providers=["cpu"]) as session:
            expected = session.run(None, dict(feed))
        return Outcome(results, expected, refused, len(partitions))

    return run_both
