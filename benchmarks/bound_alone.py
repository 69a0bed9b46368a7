"""Runs on values bound to a device that computes nothing: what the core does alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import onnx

import onnxplug
from onnxplug import ep
from onnxplug.plugins import registry

NAME: Final = "IdleExecutionProvider"
HERE: Final = ep.MemoryLocation("idle", 0)
MODEL: Final = onnx.parser.parse_model(
    """
    < ir_version: 10, opset_import: ["" : 21] >
    g (float[4] x) => (float[4] y) { y = Neg (x) }
    """
)


class Array:
    """An array of numpy's that is said to be elsewhere."""

    def __init__(self, host: np.ndarray[Any, Any]) -> None:
        self.host, self.shape, self.dtype = host, host.shape, host.dtype


def host(array: Any) -> Any:
    """What is on the host for *array*, which may be there."""
    return array.host if isinstance(array, Array) else array


class Memory(ep.Allocator, ep.DataTransfer):
    """The arrays."""

    def empty(
        self, shape: Sequence[int], dtype: ep.DataType, stream: ep.Stream | None = None
    ) -> Any:
        return Array(np.empty(tuple(shape), dtype.numpy))

    def can_copy(self, source: ep.MemoryLocation, target: ep.MemoryLocation) -> bool:
        return True

    def copy(self, pairs: Sequence[tuple[Any, Any]], stream: ep.Stream | None) -> None:
        for source, target in pairs:
            np.copyto(host(target), host(source))


class Done(ep.Event):
    """Nothing is ever queued."""

    def done(self) -> bool:
        return True

    def synchronize(self) -> None:
        return None


class Stream(ep.Stream):
    """An empty queue."""

    def record(self) -> ep.Event:
        return Done()

    def wait(self, event: ep.Event) -> bool:
        return True

    def synchronize(self) -> None:
        return None


class Context(ep.DeviceContext):
    """The device."""

    location = HERE
    transfer = Memory()

    def allocator(self, kind: ep.MemoryKind) -> ep.Allocator | None:
        return self.transfer if kind is ep.MemoryKind.DEVICE else None

    def create_stream(self) -> ep.Stream:
        return Stream()


class Partition(ep.CompiledPartition):
    """Gives what is bound, or always the same."""

    result = Array(np.zeros(4, np.float32))

    def run(
        self, inputs: Sequence[Any], outputs: Sequence[Any | None], context: Any
    ) -> Sequence[Any]:
        return [self.result if outputs[0] is None else outputs[0]]


class Provider(ep.ExecutionProvider):
    """Claims all."""

    location = HERE

    def get_capability(self, graph: ep.Graph) -> ep.CapabilityReport:
        return ep.CapabilityReport.per_node(graph, lambda node: None)

    def compile(self, partition: ep.Partition) -> ep.CompiledPartition:
        return Partition()


class Spaces(ep.MemorySpaces):
    """The device's."""

    owned = frozenset({HERE.space})

    def create_context(self, location: ep.MemoryLocation) -> ep.DeviceContext:
        return Context()


class Factory(ep.EpFactory):
    """Drives one device of its own."""

    spi_version = (1, 0)
    name = NAME
    memory_spaces = Spaces()

    def supported_devices(
        self, devices: Sequence[ep.HardwareDevice]
    ) -> list[ep.EpDevice]:
        device = ep.HardwareDevice(type=ep.DeviceType.NPU, metadata={"is_virtual": "1"})
        return [ep.EpDevice(ep_name=NAME, device=device)]

    def create(self, devices: Any, options: Any, session: Any) -> Provider:
        return Provider()


def prepare_runs() -> dict[str, Callable[[], None]]:
    """Runs on bound values, by what is bound."""
    registry.add(Factory())
    session = onnxplug.InferenceSession(MODEL, providers=[NAME])
    values = [
        onnxplug.OrtValue.ortvalue_from_numpy(np.zeros(4, np.float32), HERE.space)
        for _ in range(2)
    ]

    def bind(output: onnxplug.OrtValue | None) -> Callable[[], None]:
        binding = session.io_binding()
        binding.bind_ortvalue_input("x", values[0])
        if output is None:
            binding.bind_output("y", HERE.space)
        else:
            binding.bind_ortvalue_output("y", output)
        return lambda: session.run_with_iobinding(binding)

    return {"input and output bound": bind(values[1]), "a new output": bind(None)}
