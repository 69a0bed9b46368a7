"""Sessions in which nothing is computed: what is left of a run is the core's part."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx

import onnxplug
from onnxplug import ep
from onnxplug.plugins import registry
from onnxplug_testing import ToyFactory


class Case(NamedTuple):
    """A model that an EP need not compute, and arrays that fit it."""

    model: str
    feed: Mapping[str, Any]
    results: Sequence[Any]


CASES = {
    "2 inputs of fixed shape, 1 output": Case(
        "(float[1] a, float[1] b) => (float[1] c) { c = any.Any (a, b) }",
        {name: np.ones(1, np.float32) for name in "ab"},
        [np.ones(1, np.float32)],
    ),
    "3 inputs of batch × sequence, 2 outputs": Case(
        "(int64[n, s] a, int64[n, s] b, int64[n, s] c)"
        " => (float[n, s, 8] d, float[n, 8] e) { d, e = any.Any (a, b, c) }",
        {name: np.ones((1, 4), np.int64) for name in "abc"},
        [np.ones((1, 4, 8), np.float32), np.ones((1, 8), np.float32)],
    ),
}


class PresetProvider(ep.ExecutionProvider):
    """Takes every node, and returns the same arrays in each run."""

    def __init__(self, results: Sequence[Any]) -> None:
        self._results = results

    def get_capability(self, graph: ep.Graph) -> ep.CapabilityReport:
        """Claim everything."""
        return ep.CapabilityReport.per_node(graph, lambda node: None)

    def compile(self, partition: ep.Partition) -> Any:
        """A partition whose runs take no time."""
        return PresetPartition(self._results)


class PresetPartition(ep.CompiledPartition):
    """See :class:`PresetProvider`."""

    def __init__(self, results: Sequence[Any]) -> None:
        self._results = results

    def run(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: ep.RunContext | None,
    ) -> Sequence[Any]:
        """The arrays, whatever the inputs."""
        return self._results


class PresetFactory(ToyFactory):
    """Makes EPs that return *results*."""

    name = "PresetExecutionProvider"

    def __init__(self, results: Sequence[Any]) -> None:
        self._results = results

    def create(self, *_: Any) -> Any:
        """One of them."""
        return PresetProvider(self._results)


def prepare_run(case: Case) -> Callable[[None, Mapping[str, Any]], Any]:
    """``InferenceSession.run`` of the case's model."""
    header = '<ir_version: 10, opset_import: ["": 21, "any": 1]> model '
    factory = PresetFactory(case.results)
    registry.add(factory)
    try:
        model = onnx.parser.parse_model(header + case.model)
        return onnxplug.InferenceSession(model, providers=[factory.name]).run
    finally:
        registry.remove(factory.name)
