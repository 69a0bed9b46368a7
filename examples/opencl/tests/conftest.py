"""The EP, registered, and models run on it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import onnx
import pytest

import onnxplug
from onnxplug.ep import Reason

EP = "OpenClExecutionProvider"

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
    """The EP is known, whether its distribution is installed or not.

    Without a device tests are skipped, or fail if ONNXPLUG_REQUIRE names ``opencl``.
    """
    try:
        from onnxplug_opencl_example.context import found_devices

        devices = found_devices()
    except ImportError as error:
        missing(f"OpenCL cannot be used: {error}")
    if not devices:
        missing("OpenCL finds no device; pip install 'pyopencl[pocl]'")
    if EP in {plugin.name for plugin in onnxplug.get_plugins()}:
        yield
        return
    onnxplug.register_ep_library(
        "opencl", "onnxplug_opencl_example.plugin:OpenClFactory"
    )
    yield
    onnxplug.unregister_ep_library("opencl")


def missing(reason: str) -> None:
    if "opencl" in os.environ.get("ONNXPLUG_REQUIRE", "").split(","):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture
def run() -> Callable[[str, Mapping[str, Array]], Outcome]:
    """Runs a model, in ONNX's text format, on the EP and on the CPU EP.

    The results of each node are held against the graph, and inputs against what they
    were.
    """

    def run_both(text: str, feed: Mapping[str, Array], opset: int = 21) -> Outcome:
        model = onnx.parser.parse_model(
            f'<ir_version: 8, opset_import: ["": {opset}]> {text}'
        )
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
