"""A typed graph to claim from, and a run as an EP sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from onnxplug import ep
from onnxplug.ep import CapturePhase, DataType, Stream, TensorType
from onnxplug.graph import Attribute, AttributeType, Graph, Node, Weight
from onnxplug.partition import GraphPartition
from onnxplug_testing import (
    DeviceArray,
    Knobs,
    SimulatedContext,
    SimulatedFactory,
    SimulatedStream,
)

Row = tuple[str, tuple[str | None, ...], tuple[str | None, ...], dict[str, Any]]


@dataclass
class Context:
    """A run of one EP."""

    stream: Stream | None = None
    cancelled: bool = False
    deadline: float | None = None
    profiler: None = None
    options: Mapping[str, str] = field(default_factory=dict)
    capture: CapturePhase | None = None


@dataclass
class Session:
    """A session, as far as a simulated factory asks it."""

    contexts: Sequence[SimulatedContext]

    def context(self, location: ep.MemoryLocation) -> SimulatedContext:
        return next(one for one in self.contexts if one.location == location)


class Lab:
    """One simulated EP, and copies to and from its device."""

    def __init__(self, options: Mapping[str, Any] | None = None, **knobs: Any) -> None:
        self.factory = SimulatedFactory(Knobs(**knobs))
        (device,) = self.factory.supported_devices([])
        location = ep.MemoryLocation(self.factory.knobs.space, 0)
        self.context = self.factory.memory_spaces.create_context(location)
        session: Any = Session([self.context])
        self.provider = self.factory.create([device], options or {}, session)
        self.allocator = self.context.device

    def up(self, array: np.ndarray) -> DeviceArray:
        dtype = DataType.from_numpy(array.dtype)
        target = self.allocator.empty(array.shape, dtype)
        self.context.transfer.copy([(array, target)], None)
        return target

    def down(self, array: DeviceArray) -> np.ndarray:
        target = np.zeros(array.shape, self.context.data_type(array).numpy)
        self.context.transfer.copy([(array, target)], None)
        return target

    def stream(self) -> SimulatedStream:
        stream = self.context.create_stream()
        assert stream is not None
        return stream


@pytest.fixture
def make_lab() -> type[Lab]:
    return Lab


@pytest.fixture
def context() -> type[Context]:
    return Context


@pytest.fixture
def make_graph() -> Callable[..., Graph]:
    """A graph of nodes ``(operator, inputs, outputs)`` or ``(…, attributes)``.

    Attributes are integers or tuples of them.  Values are float32[4], but those whose
    dtype is given.
    """

    def make(
        nodes: Sequence[tuple[Any, ...]],
        *,
        inputs: Sequence[str],
        outputs: Sequence[str],
        constants: Mapping[str, np.ndarray] | None = None,
        dtypes: Mapping[str, DataType | None] | None = None,
        opset: int = 21,
    ) -> Graph:
        made = [name for node in nodes for name in node[2] if name]
        types: dict[str, Any] = {
            name: TensorType(DataType.FLOAT32, (4,)) for name in [*inputs, *made]
        }
        for name, dtype in (dtypes or {}).items():
            types[name] = TensorType(dtype, (4,))
        return Graph(
            "test",
            inputs=inputs,
            outputs=outputs,
            nodes=[make_node(*node) for node in nodes],
            constants={
                name: Weight.from_array(array)
                for name, array in (constants or {}).items()
            },
            types=types,
            opset_imports={"": opset, "com.acme": 1},
        )

    return make


def make_node(
    op: str,
    inputs: tuple[str | None, ...],
    outputs: tuple[str | None, ...],
    attributes: Mapping[str, Any] | None = None,
) -> Node:
    domain, _, op_type = op.rpartition(".")
    typed = {
        name: Attribute(
            AttributeType.INTS if isinstance(value, tuple) else AttributeType.INT, value
        )
        for name, value in (attributes or {}).items()
    }
    return Node(op_type, inputs, outputs, typed, domain=domain, name=f"make_{outputs}")


@pytest.fixture
def whole() -> Callable[[Graph], GraphPartition]:
    """All of a graph as one partition."""
    return lambda graph: GraphPartition(graph, graph.nodes)


@pytest.fixture
def chain(make_graph) -> Graph:
    """``y = |-relu(x)|``"""
    return make_graph(
        [
            ("Relu", ("x",), ("a",)),
            ("Neg", ("a",), ("b",)),
            ("Abs", ("b",), ("y",)),
        ],
        inputs=["x"],
        outputs=["y"],
    )
