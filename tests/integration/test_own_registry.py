"""Sessions whose EPs come from a registry of their own."""

from __future__ import annotations

import pickle

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import onnxplug
from onnxplug.errors import (
    InvalidArgument,
    LibraryInUse,
    PluginBlocked,
    PluginNotFound,
)
from onnxplug.plugins import PluginRegistry
from onnxplug.plugins import registry as registry_of_process
from onnxplug_testing import Knobs, SimulatedFactory, ToyFactory

TOY = "ToyExecutionProvider"
X = np.array([1, 2], np.float32)


def add_twice() -> bytes:
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xz"
    ]
    nodes = [
        helper.make_node("Add", ["x", "x"], ["y"]),
        helper.make_node("Add", ["y", "x"], ["z"]),
    ]
    graph = helper.make_graph(nodes, "twice", values[:1], values[1:])
    model: onnx.ModelProto = helper.make_model(graph)
    return model.SerializeToString()


MODEL = add_twice()


@pytest.fixture
def registry() -> PluginRegistry:
    return PluginRegistry({})


def test_an_ep_is_known_to_its_registry_only(registry: PluginRegistry) -> None:
    registry.add(ToyFactory())
    session = onnxplug.InferenceSession(MODEL, providers=["toy"], registry=registry)
    assert session.get_providers()[0] == TOY
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], 3 * X)
    assert TOY not in [record.name for record in registry_of_process.records()]
    with pytest.raises(PluginNotFound):
        onnxplug.InferenceSession(MODEL, providers=["toy"])


def test_its_settings_count(registry: PluginRegistry) -> None:
    blocked = PluginRegistry({"ONNXPLUG_BLOCK": "cpu"})
    with pytest.raises(PluginBlocked):
        onnxplug.InferenceSession(MODEL, providers=["cpu"], registry=blocked)
    session = onnxplug.InferenceSession(MODEL, providers=["cpu"], registry=registry)
    assert session.get_providers() == ["CPUExecutionProvider"]


def test_it_knows_which_sessions_use_it(registry: PluginRegistry) -> None:
    registry.register_ep_library("mine", ToyFactory)
    session = onnxplug.InferenceSession(MODEL, providers=["toy"], registry=registry)
    session.run(["y"], {"x": X})  # by a variant, which uses the EP, too
    with pytest.raises(LibraryInUse, match="2 sessions on ToyExecutionProvider"):
        registry.unregister_ep_library("mine")
    session.set_providers(["cpu"])
    registry.unregister_ep_library("mine")
    with pytest.raises(PluginNotFound):
        session.set_providers(["toy"])
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], 3 * X)


def test_policies_choose_among_its_eps(registry: PluginRegistry) -> None:
    registry.add(ToyFactory())
    offered: list[str] = []

    def policy(pairs, model):
        offered.extend(pair.ep_name for pair in pairs)
        return [pair for pair in pairs if pair.ep_name == TOY]

    session = onnxplug.InferenceSession(MODEL, policy=policy, registry=registry)
    assert TOY in offered
    assert session.get_providers()[0] == TOY


def test_memory_is_bound_on_its_devices(registry: PluginRegistry) -> None:
    factory = SimulatedFactory(Knobs(ops=frozenset({"Add"})))
    registry.add(factory)
    session = onnxplug.InferenceSession(
        MODEL, providers=[factory.name], registry=registry
    )
    (space,) = {
        copy.target for copy in session.explain().copies if copy.value == "x"
    } - {"cpu"}
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_output("z", space.partition(":")[0])
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(binding.get_outputs()[0].numpy(), 3 * X)


def test_such_a_session_is_not_pickled(registry: PluginRegistry) -> None:
    session = onnxplug.InferenceSession(MODEL, registry=registry)
    with pytest.raises(InvalidArgument, match="cannot be pickled"):
        pickle.dumps(session)
