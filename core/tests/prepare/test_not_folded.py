"""What goes wrong when constants are computed ahead is in the session's report."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import onnxplug
from onnxplug import ep
from onnxplug.authoring.kernels import KernelExecutionProvider
from onnxplug.plugins import PluginRegistry
from onnxplug_testing import ToyFactory

MODEL = onnx.parser.parse_model(
    """
    < ir_version: 10, opset_import: ["" : 21] >
    agraph (float[2] x) => (float[2] z)
    < float[2] one = {1, 1}, float[2] two = {2, 2} >
    { three = Add (one, two) z = Mul (x, three) }
    """
)


class Provider(KernelExecutionProvider):
    """Adds and multiplies, and fails at *stage* where all is constant."""

    def __init__(self, stage: str) -> None:
        super().__init__()
        self.stage = stage

    def fail_at(self, stage: str) -> None:
        if stage == self.stage:
            raise ZeroDivisionError(f"in {stage}")

    def get_capability(self, graph: ep.Graph) -> ep.Capability:
        inputs = [name for node in graph.nodes for name in node.inputs if name]
        if "x" not in inputs:
            self.fail_at("get_capability")
        return super().get_capability(graph)

    def find_kernel(self, graph: ep.Graph, node: ep.Node) -> Any:
        if self.stage == "refuse" and len(graph.nodes) == 1:
            return ep.Reason(ep.RefusalCode.OTHER, "not alone")
        return {"Add": np.add, "Mul": np.multiply}[node.op_type]

    def compile(self, partition: ep.Partition) -> ep.CompiledPartition:
        if partition.inputs:
            return super().compile(partition)
        self.fail_at("compile")
        compiled = super().compile(partition)
        run, close = compiled.run, compiled.close

        def fail_in_run(*arguments: Any) -> Any:
            self.fail_at("run")
            return run(*arguments)

        def fail_in_close() -> None:
            close()
            self.fail_at("close")

        compiled.run, compiled.close = fail_in_run, fail_in_close  # type: ignore[method-assign]
        return compiled


def open_session(stage: str) -> onnxplug.InferenceSession:
    class Factory(ToyFactory):
        def create(self, devices: Any, options: Any, session: Any) -> Any:
            return Provider(stage)

    registry = PluginRegistry({})
    registry.add(Factory())
    options = onnxplug.SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    return onnxplug.InferenceSession(
        MODEL, options, providers=["toy"], registry=registry
    )


def test_what_is_computed_ahead_is_not_in_it() -> None:
    explanation = open_session("never").explain()
    assert explanation.not_folded == []
    assert [node.op_type for node in explanation.nodes] == ["Mul"]


@pytest.mark.parametrize("stage", ["get_capability", "compile", "run", "close"])
def test_an_exception_is_in_it(stage: str) -> None:
    session = open_session(stage)
    (left,) = session.explain().not_folded
    assert left.reason == f"ZeroDivisionError: in {stage}"
    assert f"(ZeroDivisionError: in {stage})" in str(session.explain())
    assert [node.op_type for node in session.explain().nodes] == ["Add", "Mul"]
    (z,) = session.run(None, {"x": np.ones(2, np.float32)})
    np.testing.assert_array_equal(z, [3, 3])


def test_a_refusal_is_in_it() -> None:
    (left,) = open_session("refuse").explain().not_folded
    assert left.reason.startswith("no EP on the host computes it")
    assert "not alone" in left.reason
